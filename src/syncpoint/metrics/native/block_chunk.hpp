// One chunk, block by block: reads floats, lets the loops run, sets apart what is not compared.
// Included once for each instruction set, after its vocabulary.
//
// No standard containers or algorithms here: their code would be compiled for the newer instruction
// set and might then be the copy that the linker keeps for all.
#pragma once

#include <cstring>

#include "block_sift.hpp"

namespace syncpoint::SYNCPOINT_ISA {

class Chunk {
 public:
  Chunk(const LanePlan& plan, const LaneSources& sources, LaneBuffers& buffers)
      : plan_(plan), sources_(sources), buffers_(buffers), sieve_(plan, constants_, buffers) {
    for (int k = 0; k < 4; ++k) {
      constants_.target_scale[k] = plan.target.scale;
      constants_.reference_scale[k] = plan.reference.scale;
      constants_.rtol[k] = plan.rtol;
      constants_.atol[k] = plan.atol;
      constants_.thousandth[k] = 1e-3;
      constants_.five_thousandths[k] = 5e-3;
    }
  }

  Sums measure(std::int64_t begin, std::size_t count, LaneMemory& memory, Tally& tally) {
    memory_ = &memory;
    tally_ = &tally;
    for (std::size_t done = 0; done < count; done += kBlock) {
      const Block block = read(begin, done, count);
      begin_ = begin + static_cast<std::int64_t>(done);
      with_scales([&]<int Scaled>() { take<Scaled>(block); });
    }
    return finish(begin, count);
  }

  SecondSums look_again(std::int64_t begin, std::size_t count, bool all_compared,
                        const SecondLook& look) {
    BlockSecond lanes;
    std::int64_t padding = 0;  // it is zero, which is below every border
    with_scales([&]<int Scaled>() {
      each_compared<Scaled>(begin, count, all_compared, [&](const Block& block) {
        padding += static_cast<std::int64_t>(block.padded() - block.count);
        if (!look.bulk) {
          look_again_block<Scaled, true, false>(block, constants_, look, lanes);
        } else if (look.robust) {
          look_again_block<Scaled, true, true>(block, constants_, look, lanes);
        } else {
          look_again_block<Scaled, false, true>(block, constants_, look, lanes);
        }
      });
    });
    return {total(lanes.robust), total(lanes.bulk_reference_squares),
            total(lanes.bulk_error_squares), greatest(lanes.bulk_max_abs),
            total(lanes.bulk_count) - padding};
  }

 private:
  // Counts that are not in the lanes of a survey.
  struct Alike {
    std::int64_t equal = 0;
    std::int64_t target_zero = 0;
    std::int64_t reference_zero = 0;
    std::int64_t reference_exponents = 0;
  };

  // Calls what is compiled for the scales of this pair.
  template <class Work>
  void with_scales(Work work) {
    const int target = plan_.target.scale != 1 ? kTargetScaled : 0;
    const int reference = plan_.reference.scale != 1 ? kReferenceScaled : 0;
    switch (target | reference) {
      case 0:
        return work.template operator()<0>();
      case kTargetScaled:
        return work.template operator()<kTargetScaled>();
      case kReferenceScaled:
        return work.template operator()<kReferenceScaled>();
      default:
        return work.template operator()<kBothScaled>();
    }
  }

  Block read(std::int64_t begin, std::size_t done, std::size_t count) {
    const std::size_t n = count - done < kBlock ? count - done : kBlock;
    const std::int64_t at = begin + static_cast<std::int64_t>(done);
    Block block;
    block.target = read_floats(sources_.target, plan_.target, at, n, buffers_.target);
    block.reference = read_floats(sources_.reference, plan_.reference, at, n, buffers_.reference);
    block.count = n;
    block.next_target = sources_.target.ahead();
    block.next_reference = sources_.reference.ahead();
    block.target_size = sources_.target.item_size();
    block.reference_size = sources_.reference.item_size();
    return block;
  }

  template <int Scaled>
  void take(const Block& block) {
    if (!memory_->expect_unusual) {
      if (!Scaled && same_ends(block) && add_equal(block)) return;
      if (add_ordinary<Scaled>(block, nullptr, true)) return;
    }
    const Block kept = sieve_.sift<Scaled>(block, tally_->counts);
    memory_->expect_unusual = kept.count != block.count;
    some_left_out_ |= memory_->expect_unusual;
    if (kept.count) add_ordinary<Scaled>(kept, buffers_.place, false);
  }

  static bool same_ends(const Block& block) {
    constexpr std::size_t kProbe = 8;
    if (block.count != kBlock) return false;
    for (std::size_t i : {std::size_t{0}, kBlock / 2, kBlock - kProbe}) {
      if (std::memcmp(block.target + i, block.reference + i, kProbe * sizeof(float))) return false;
    }
    return true;
  }

  bool add_equal(const Block& block) {
    BlockSums sums;
    BlockSurvey survey;
    const bool whole = plan_.tier == Tier::all;
    const bool same = whole ? sum_equal_block<true>(block, sums, survey)
                            : sum_equal_block<false>(block, sums, survey);
    if (!same) return false;
    if (!all_finite(sums.target_squares) || any_low(survey)) return false;
    add_sums(sums);
    add_survey(survey);
    const auto n = static_cast<std::int64_t>(block.count);
    compared_ += n;
    equal_ += n;
    count_overflow<0>(block, survey);
    if (memory_->max_abs < 0) set_greatest(0, begin_);
    if (plan_.tier == Tier::base) return true;
    const std::int64_t defined = n - total8(survey.reference_zero);
    Counts& counts = tally_->counts;
    counts.relative_count += defined;
    counts.within_1e3 += defined;
    counts.within_5e3 += defined;
    counts.close += n;
    return true;
  }

  // False, with nothing counted, if the block has elements that must not be compared. `places`:
  // where the elements were in the block, if some were left out of it; `count`: whether equal
  // elements and zeros were not counted before.
  template <int Scaled>
  bool add_ordinary(const Block& block, const std::uint32_t* places, bool count) {
    const bool relative = plan_.tier != Tier::base;
    const bool whole = plan_.tier == Tier::all;
    const bool together = relative && !memory_->expect_zeros && block.count == block.padded();
    BlockSums sums;
    F64x4 most = all(memory_->max_abs);
    RelativeCounts quotients = relative_;
    double* error = buffers_.error;
    if (together) {
      whole ? sum_relative_block<Scaled, true>(block, constants_, sums, most, quotients, error)
            : sum_relative_block<Scaled, false>(block, constants_, sums, most, quotients, error);
    } else {
      whole ? sum_block<Scaled, true>(block, constants_, sums, most, error)
            : sum_block<Scaled, false>(block, constants_, sums, most, error);
    }
    // Squares of floats cannot overflow a double, so the sum is finite if every element is.
    if (!all_finite(add(sums.target_squares, sums.reference_squares))) return false;
    BlockSurvey survey;
    Alike alike;
    constexpr bool kScaledReference = (Scaled & kReferenceScaled) != 0;
    whole && !kScaledReference ? survey_block<Scaled, true>(block, constants_, survey)
                               : survey_block<Scaled, false>(block, constants_, survey);
    survey_rest(block, survey, alike);
    if (any_low(survey)) return false;
    if (Scaled && (!plan_.float_scales || !none_set(survey.equal))) {
      survey.equal = no_counts8();
      alike.equal += count_equal_block<Scaled>(block, constants_);
    }

    if (relative) add_relative<Scaled>(block, together, sums, quotients);
    add_sums(sums);
    compared_ += static_cast<std::int64_t>(block.count);
    count_overflow<Scaled>(block, survey);
    if (any_above(most, all(memory_->max_abs))) find_greatest(block, greatest(most), places);
    if (whole) {
      if (kScaledReference) {
        const std::int64_t zeros = alike.reference_zero + total8(survey.reference_zero);
        exponents_ += exponents_with_scale<Scaled>(block, constants_,
                                                   static_cast<std::int64_t>(block.count) - zeros);
      } else {
        exponents_ += alike.reference_exponents;
      }
      add_ulp(block);
      add_histogram(block, alike.equal + total8(survey.equal));
    }
    if (count) {
      equal_ += alike.equal;
      tally_->counts.target.zero += alike.target_zero;
      tally_->counts.reference.zero += alike.reference_zero;
    } else {
      survey.equal = survey.target_zero = survey.reference_zero = no_counts8();
    }
    add_survey(survey);
    return true;
  }

  bool any_low(const BlockSurvey& survey) const {
    return (lanes_up_to(survey.target_min, all8(plan_.target.low)) |
            lanes_up_to(survey.reference_min, all8(plan_.reference.low))) != 0;
  }

  // The elements after the last whole vector.
  void survey_rest(const Block& block, BlockSurvey& survey, Alike& alike) const {
    const std::size_t first = block.count / 8 * 8;
    if (first == block.count) return;
    float t[8], r[8];
    for (std::size_t k = 0; k < 8; ++k) {
      // The first of them again in the lanes that are not filled.
      const bool there = first + k < block.count;
      t[k] = float_at(block.target, there ? first + k : first);
      r[k] = float_at(block.reference, there ? first + k : first);
      if (!there) continue;
      alike.equal += value(plan_.target, t[k]) == value(plan_.reference, r[k]);
      alike.target_zero += t[k] == 0;
      alike.reference_zero += r[k] == 0;
      std::uint32_t bits;
      std::memcpy(&bits, &r[k], sizeof bits);
      alike.reference_exponents += (bits & 0x7fffffffu) >> 23;
    }
    survey.target_min = min8(load8(t), survey.target_min);
    survey.target_max = max8(load8(t), survey.target_max);
    survey.reference_min = min8(load8(r), survey.reference_min);
    survey.reference_max = max8(load8(r), survey.reference_max);
  }

  template <int Scaled>
  void add_relative(const Block& block, bool together, BlockSums& sums,
                    const RelativeCounts& quotients) {
    if (together && all_finite(sums.quotients)) {
      relative_ = quotients;
      tally_->counts.relative_count += static_cast<std::int64_t>(block.count);
      return;
    }
    const std::int64_t before = total(relative_.nonzero);
    relative_block<Scaled>(block, constants_, sums.quotients, relative_);
    tally_->counts.close -= static_cast<std::int64_t>(block.padded() - block.count);
    const std::int64_t nonzero = total(relative_.nonzero) - before;
    memory_->expect_zeros = nonzero != static_cast<std::int64_t>(block.count);
  }

  void add_sums(const BlockSums& more) {
    sums_.target = add(sums_.target, more.target);
    sums_.reference = add(sums_.reference, more.reference);
    sums_.target_squares = add(sums_.target_squares, more.target_squares);
    sums_.reference_squares = add(sums_.reference_squares, more.reference_squares);
    sums_.products = add(sums_.products, more.products);
    sums_.errors = add(sums_.errors, more.errors);
    sums_.error_squares = add(sums_.error_squares, more.error_squares);
    sums_.quotients = add(sums_.quotients, more.quotients);
  }

  void add_survey(const BlockSurvey& more) {
    survey_.target_min = min8(survey_.target_min, more.target_min);
    survey_.target_max = max8(survey_.target_max, more.target_max);
    survey_.reference_min = min8(survey_.reference_min, more.reference_min);
    survey_.reference_max = max8(survey_.reference_max, more.reference_max);
    survey_.equal = add8(survey_.equal, more.equal);
    survey_.target_zero = add8(survey_.target_zero, more.target_zero);
    survey_.reference_zero = add8(survey_.reference_zero, more.reference_zero);
    survey_.reference_exponents = add8(survey_.reference_exponents, more.reference_exponents);
  }

  template <int Scaled>
  void count_overflow(const Block& block, const BlockSurvey& survey) {
    const double limit = plan_.overflow_limit;
    if (!(limit < __builtin_inf())) return;
    const auto peak = [](F32x8 least, F32x8 most, double scale) {
      return greatest8(max8(abs8(least), abs8(most))) * __builtin_fabs(scale);
    };
    if (Scaled) {
      const double t = peak(survey.target_min, survey.target_max, plan_.target.scale);
      const double r = peak(survey.reference_min, survey.reference_max, plan_.reference.scale);
      if (t < limit && r < limit) return;
    } else {
      const F32x8 t = max8(abs8(survey.target_min), abs8(survey.target_max));
      const F32x8 r = max8(abs8(survey.reference_min), abs8(survey.reference_max));
      if (!lanes_up_to(all8(static_cast<float>(limit)), max8(t, r))) return;
    }
    count_overflow_block<Scaled>(block, limit);
  }

  template <int Scaled>
  SYNCPOINT_HOT void count_overflow_block(const Block& block, double limit) {
    I64x4 t = no_counts(), r = no_counts();
    // The padding is zero, and no limit is.
    for (std::size_t i = 0; i < block.padded(); i += 4) {
      t = count_up_to(t, all(limit), abs(target_at<Scaled>(block, i, constants_)));
      r = count_up_to(r, all(limit), abs(reference_at<Scaled>(block, i, constants_)));
    }
    tally_->counts.target.overflow += total(t);
    tally_->counts.reference.overflow += total(r);
  }

  SYNCPOINT_HOT void find_greatest(const Block& block, double error, const std::uint32_t* places) {
    for (std::size_t i = 0; i < block.count; ++i) {
      const double d = value(plan_.target, float_at(block.target, i)) -
                       value(plan_.reference, float_at(block.reference, i));
      if (__builtin_fabs(d) != error) continue;
      set_greatest(error, begin_ + static_cast<std::int64_t>(places ? places[i] : i));
      return;
    }
  }

  void set_greatest(double error, std::int64_t index) {
    memory_->max_abs = max_abs_ = error;
    max_abs_index_ = index;
  }

  void add_ulp(const Block& block) {
    double& most = tally_->counts.max_ulp;
    const auto raise = [&most](double to) { most = to > most ? to : most; };
    switch (plan_.ulp) {
      case UlpLoop::none:
        return;
      case UlpLoop::floats:
        ulp_ = ulp_floats(block, ulp_);
        return;
      case UlpLoop::any:
        return raise(ulp_any(block, plan_.mantissa, plan_.min_exponent));
      case UlpLoop::halves: {
        const std::uint32_t distance = greatest_unsigned(ulp_halves(block));
        // Rounding may have hidden one unit of 2^-13.
        if ((distance + 1.0) * 0x1p-13 <= most) return;
        const bool rounded = any_rounded(plan_.target, block.target, block.padded()) ||
                             any_rounded(plan_.reference, block.reference, block.padded());
        return raise(rounded ? ulp_any(block, plan_.mantissa, plan_.min_exponent)
                             : distance * 0x1p-13);
      }
    }
  }

  static bool any_rounded(const LaneSide& side, const float* values, std::size_t n) {
    return side.dtype == DType::f32 && any_below_halves(values, n);
  }

  void add_histogram(const Block& block, std::int64_t equal) {
    const std::size_t padded = (block.count + 31) / 32 * 32;
    for (std::size_t i = block.padded(); i < padded; ++i) buffers_.error[i] = 0;
    const std::int64_t before = bins_[0];
    const int most = exponents_of(buffers_.error, padded, buffers_.exponent);
    top_bin_ = most > top_bin_ ? most : top_bin_;
    count_exponents(buffers_.exponent, padded, most, bins_);
    const auto pad = static_cast<std::int64_t>(padded - block.count);
    if (bins_[0] - before != equal + pad) count_tiny(block);
  }

  // Errors too small for a byte.
  SYNCPOINT_HOT void count_tiny(const Block& block) {
    for (std::size_t i = 0; i < block.count; ++i) {
      const double error = buffers_.error[i];
      if (error > 0 && error < 0x1p-126) tally_->errors.add(__builtin_ilogb(error), 1);
    }
  }

  // Visits the compared elements of a chunk again.
  template <int Scaled, class Visit>
  void each_compared(std::int64_t begin, std::size_t count, bool all_compared, Visit visit) {
    Counts counted_before;
    for (std::size_t done = 0; done < count; done += kBlock) {
      const Block block = read(begin, done, count);
      const Block kept = all_compared ? block : sieve_.sift<Scaled>(block, counted_before);
      if (kept.count) visit(kept);
    }
  }

  Sums finish(std::int64_t begin, std::size_t count) {
    Counts& counts = tally_->counts;
    counts.compared += compared_;
    counts.equal += equal_ + total8(survey_.equal);
    counts.target.zero += total8(survey_.target_zero);
    counts.reference.zero += total8(survey_.reference_zero);
    counts.reference_exponents += exponents_ + total8(survey_.reference_exponents);
    counts.relative_count += total(relative_.nonzero);
    counts.relative_undefined += total(relative_.undefined);
    counts.within_1e3 += total(relative_.within_1e3);
    counts.within_5e3 += total(relative_.within_5e3);
    counts.close += total(relative_.close);
    const double quotient = greatest(relative_.greatest);
    if (quotient > counts.max_relative) counts.max_relative = quotient;
    const double unit = __builtin_ldexp(1.0, plan_.mantissa - 23);
    const double ulp =
        plan_.ulp_is_error && plan_.tier == Tier::all ? max_abs_ : greatest_unsigned(ulp_) * unit;
    if (ulp > counts.max_ulp) counts.max_ulp = ulp;
    for (int e = 1; e <= top_bin_; ++e) tally_->errors.add(e + kByteBase - 1023, bins_[e]);

    Sums sums;
    sums.target.sum = total(sums_.target);
    sums.target.squares = total(sums_.target_squares);
    sums.reference.sum = total(sums_.reference);
    sums.reference.squares = total(sums_.reference_squares);
    sums.dot = total(sums_.products);
    sums.abs = total(sums_.errors);
    sums.squares = total(sums_.error_squares);
    sums.relative = total(sums_.quotients);
    sums.max_abs = max_abs_;
    sums.max_abs_index = max_abs_index_;
    if (plan_.step > 0) sums.step_squares = sums.squares / plan_.step / plan_.step;
    if (compared_ == 0) return sums;
    finish_side(plan_.target, survey_.target_min, survey_.target_max, sums.target, counts.target);
    finish_side(plan_.reference, survey_.reference_min, survey_.reference_max, sums.reference,
                counts.reference);
    const bool plain = plain_moments(sums.target) & plain_moments(sums.reference);
    if (!plain) with_scales([&]<int Scaled>() { deviations<Scaled>(begin, count, sums); });
    return sums;
  }

  static void finish_side(const LaneSide& side, F32x8 least, F32x8 most, SideSums& sums,
                          SideTally& tally) {
    const double a = value(side, least8(least));
    const double b = value(side, greatest8(most));
    const double low = a < b ? a : b;
    const double high = a < b ? b : a;
    if (low < tally.min) tally.min = low;
    if (high > tally.max) tally.max = high;
    sums.greatest = -low > high ? -low : high;
  }

  // The squared deviations as a difference; false if too many bits cancel in it.
  bool plain_moments(SideSums& sums) const {
    const auto n = static_cast<double>(compared_);
    const double squared_deviations = sums.squares - sums.sum * sums.sum / n;
    sums.moments = {n, sums.sum / n, 0, squared_deviations};
    return sums.squares == 0 || squared_deviations > sums.squares / 32;
  }

  // The deviations from the mean, one by one.
  template <int Scaled>
  SYNCPOINT_HOT void deviations(std::int64_t begin, std::size_t count, Sums& sums) {
    const double t_mean = sums.target.moments.base, r_mean = sums.reference.moments.base;
    F64x4 t_slip = zeros(), r_slip = zeros(), t_squares = zeros(), r_squares = zeros();
    double t_rest[2] = {0, 0}, r_rest[2] = {0, 0};
    const auto visit = [&](const Block& block) {
      std::size_t i = 0;
      for (; i + 4 <= block.count; i += 4) {
        const F64x4 t = sub(target_at<Scaled>(block, i, constants_), all(t_mean));
        const F64x4 r = sub(reference_at<Scaled>(block, i, constants_), all(r_mean));
        t_slip = add(t_slip, t);
        r_slip = add(r_slip, r);
        t_squares = mul_add(t, t, t_squares);
        r_squares = mul_add(r, r, r_squares);
      }
      for (; i < block.count; ++i) {
        const double t = value(plan_.target, float_at(block.target, i)) - t_mean;
        const double r = value(plan_.reference, float_at(block.reference, i)) - r_mean;
        t_rest[0] += t;
        t_rest[1] += t * t;
        r_rest[0] += r;
        r_rest[1] += r * r;
      }
    };
    each_compared<Scaled>(begin, count, !some_left_out_, visit);
    const auto n = static_cast<double>(compared_);
    const auto settle = [n](Moments& moments, double slip, double squares) {
      moments.rest = slip / n;
      moments.squared_deviations = squares - slip * slip / n;
    };
    settle(sums.target.moments, total(t_slip) + t_rest[0], total(t_squares) + t_rest[1]);
    settle(sums.reference.moments, total(r_slip) + r_rest[0], total(r_squares) + r_rest[1]);
  }

  const LanePlan& plan_;
  const LaneSources& sources_;
  LaneBuffers& buffers_;
  Constants constants_;
  Sieve sieve_;
  LaneMemory* memory_ = nullptr;
  Tally* tally_ = nullptr;
  std::int64_t begin_ = 0;  // of the block
  std::int64_t compared_ = 0;
  std::int64_t equal_ = 0;
  std::int64_t exponents_ = 0;  // those of the reference that are not in the lanes of the survey
  bool some_left_out_ = false;
  BlockSums sums_;
  BlockSurvey survey_;
  RelativeCounts relative_;
  double max_abs_ = -1;
  std::int64_t max_abs_index_ = -1;
  I32x8 ulp_ = no_counts8();
  std::int64_t bins_[256] = {};
  int top_bin_ = 0;
};

inline Sums measure_chunk(const LanePlan& plan, const LaneSources& sources, std::int64_t begin,
                          std::size_t count, LaneBuffers& buffers, LaneMemory& memory,
                          Tally& tally) {
  return Chunk(plan, sources, buffers).measure(begin, count, memory, tally);
}

inline SecondSums look_again_chunk(const LanePlan& plan, const LaneSources& sources,
                                   std::int64_t begin, std::size_t count, LaneBuffers& buffers,
                                   bool all_compared, const SecondLook& look) {
  return Chunk(plan, sources, buffers).look_again(begin, count, all_compared, look);
}

}  // namespace syncpoint::SYNCPOINT_ISA
