// Sets apart the elements of a block that are not compared: holes and masks, by the rules of
// Elements::fate_of, eight elements at a time. Included once for each instruction set.
#pragma once

#include "block_read.hpp"

namespace syncpoint::SYNCPOINT_ISA {

class Sieve {
 public:
  Sieve(const LanePlan& plan, const Constants& constants, LaneBuffers& buffers)
      : plan_(plan), constants_(constants), buffers_(buffers) {}

  // The elements that are compared, without gaps; the others are counted.
  template <int Scaled>
  SYNCPOINT_HOT Block sift(const Block& block, Counts& counts) {
    const F32x8 infinity = all8(__builtin_inff()), zero = all8(0);
    const F32x8 target_low = all8(plan_.target.low), reference_low = all8(plan_.reference.low);
    I32x8 target_zero = no_counts8(), reference_zero = no_counts8();
    std::int64_t equal = 0;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < block.count; i += 8) {
      const unsigned present = block.count - i >= 8 ? 255u : (1u << (block.count - i)) - 1;
      const F32x8 t = load8(block.target + i);
      const F32x8 r = load8(block.reference + i);
      const unsigned same = same_values<Scaled>(block, i, t, r);
      const unsigned usual =
          lanes_between(target_low, t, infinity) & lanes_between(reference_low, r, infinity);
      equal += __builtin_popcount(same & present);
      target_zero = count_equal8(target_zero, t, zero);
      reference_zero = count_equal8(reference_zero, r, zero);
      if (~usual & present) count_unusual(block, i, ~usual & present, same, counts);
      compact(usual & present, t, r, static_cast<std::uint32_t>(i), buffers_.kept_target + kept,
              buffers_.kept_reference + kept, buffers_.place + kept);
      kept += static_cast<std::size_t>(__builtin_popcount(usual & present));
    }
    // The padding is zero on both sides.
    const auto pad = static_cast<std::int64_t>((block.count + 7) / 8 * 8 - block.count);
    counts.equal += equal;
    counts.target.zero += total8(target_zero) - pad;
    counts.reference.zero += total8(reference_zero) - pad;
    Block out = block;
    out.target = buffers_.kept_target;
    out.reference = buffers_.kept_reference;
    out.count = kept;
    for (std::size_t i = kept; i < out.padded(); ++i) {
      buffers_.kept_target[i] = buffers_.kept_reference[i] = 0;
    }
    return out;
  }

 private:
  // The rules of Elements::fate_of for the given lanes of eight elements.
  SYNCPOINT_INLINE void count_unusual(const Block& block, std::size_t i, unsigned lanes,
                                      unsigned same, Counts& counts) const {
    const F32x8 t = load8(block.target + i);
    const F32x8 r = load8(block.reference + i);
    const F32x8 infinity = all8(__builtin_inff());
    const unsigned t_low = lanes_up_to(t, all8(plan_.target.low)) & lanes;
    const unsigned r_low = lanes_up_to(r, all8(plan_.reference.low)) & lanes;
    const unsigned t_inf = lanes_same(abs8(t), infinity) & lanes;
    const unsigned r_inf = lanes_same(abs8(r), infinity) & lanes;
    unsigned masked = t_low & r_low;
    counts.target.inf += __builtin_popcount(t_inf);
    counts.reference.inf += __builtin_popcount(r_inf);
    if (masked != lanes) {
      const unsigned t_nan = lanes_nan(t) & lanes, r_nan = lanes_nan(r) & lanes;
      if (t_low & ~masked) masked |= t_low & lowest_of_a_type(plan_.reference, r);
      if (r_low & ~masked) masked |= r_low & lowest_of_a_type(plan_.target, t);
      const unsigned holes = (t_nan | r_nan | t_inf | r_inf) & ~masked;
      const unsigned alone = (t_low | r_low) & ~masked & ~holes;
      const unsigned agreeing = alone ? agree_as_masks(block, i, alone) : 0;
      const unsigned unequal = holes & ~(same | (t_nan & r_nan));
      counts.mismatched += __builtin_popcount(unequal | (alone & ~agreeing));
      counts.masked += __builtin_popcount(agreeing);
      counts.equal += __builtin_popcount(t_nan & r_nan);
      counts.target.nan += __builtin_popcount(t_nan);
      counts.reference.nan += __builtin_popcount(r_nan);
      if (plan_.overflow_limit < __builtin_inf()) {
        counts.target.overflow += __builtin_popcount(t_inf & ~masked);
        counts.reference.overflow += __builtin_popcount(r_inf & ~masked);
      }
    }
    counts.masked += __builtin_popcount(masked);
  }

  template <int Scaled>
  unsigned same_values(const Block& block, std::size_t i, F32x8 t, F32x8 r) const {
    if (!Scaled) return lanes_same(t, r);
    const auto half = [&](std::size_t k) {
      return lanes_equal(target_at<Scaled>(block, k, constants_),
                         reference_at<Scaled>(block, k, constants_));
    };
    return half(i) | half(i + 4) << 4;
  }

  // See Elements::fate_of; the lowest double is no float.
  static unsigned lowest_of_a_type(const LaneSide& side, F32x8 x) {
    if (!side.may_mask) return 0;
    return lanes_same(x, all8(-65504.0f)) | lanes_same(x, all8(-0x1.fep127f)) |
           lanes_same(x, all8(-0x1.fffffep127f));
  }

  SYNCPOINT_HOT unsigned agree_as_masks(const Block& block, std::size_t first,
                                        unsigned lanes) const {
    unsigned agreeing = 0;
    for (unsigned k = 0; k < 8; ++k) {
      if (!(lanes >> k & 1)) continue;
      const double t = value(plan_.target, float_at(block.target, first + k));
      const double r = value(plan_.reference, float_at(block.reference, first + k));
      const bool agree = __builtin_fabs(t - r) <= plan_.mask_rtol * __builtin_fabs(r);
      agreeing |= static_cast<unsigned>(agree) << k;
    }
    return agreeing;
  }

  const LanePlan& plan_;
  const Constants& constants_;
  LaneBuffers& buffers_;
};

}  // namespace syncpoint::SYNCPOINT_ISA
