// The loops over one block, for the instruction set whose vocabulary was included before
// (namespace SYNCPOINT_ISA). Each is a function of its own, so that the compiler gives it all the
// registers; `tools/check_spills.py` looks at what became of them.
//
// Element i of a block is summed in lane i mod 4, whichever loop sums it, so the same block yields
// the same bits on every way through this file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lanes.hpp"

namespace syncpoint::SYNCPOINT_ISA {

#define SYNCPOINT_HOT __attribute__((noinline))
#define SYNCPOINT_STEP __attribute__((always_inline))

// Elements that a sum loop takes at once; blocks are padded to a multiple of it with zeros.
inline constexpr std::size_t kStride = 16;

struct BlockSums {
  F64x4 target = zeros();
  F64x4 reference = zeros();
  F64x4 target_squares = zeros();
  F64x4 reference_squares = zeros();
  F64x4 products = zeros();
  F64x4 errors = zeros();
  F64x4 error_squares = zeros();
  F64x4 quotients = zeros();
};

struct RelativeCounts {
  F64x4 greatest = zeros();
  I64x4 within_1e3 = no_counts();
  I64x4 within_5e3 = no_counts();
  I64x4 close = no_counts();
  I64x4 nonzero = no_counts();
  I64x4 undefined = no_counts();
};

struct BlockSurvey {
  F32x8 target_min = all8(__builtin_inff());
  F32x8 target_max = all8(-__builtin_inff());
  F32x8 reference_min = all8(__builtin_inff());
  F32x8 reference_max = all8(-__builtin_inff());
  I32x8 equal = no_counts8();
  I32x8 target_zero = no_counts8();
  I32x8 reference_zero = no_counts8();
  I32x8 reference_exponents = no_counts8();
};

// The lanes of SecondSums.
struct BlockSecond {
  F64x4 robust = zeros();
  F64x4 bulk_reference_squares = zeros();
  F64x4 bulk_error_squares = zeros();
  F64x4 bulk_max_abs = zeros();
  I64x4 bulk_count = no_counts();
};

// Which sides have a scale: a set of these bits, known when a loop is compiled.
inline constexpr int kTargetScaled = 1;
inline constexpr int kReferenceScaled = 2;
inline constexpr int kBothScaled = 3;

// One block of both sides as the loops take it.
struct Block {
  const float* target;
  const float* reference;
  std::size_t count;             // elements
  const std::byte* next_target;  // what will be needed next, for prefetching
  const std::byte* next_reference;
  std::size_t target_size;  // bytes of a stored element
  std::size_t reference_size;

  std::size_t padded() const { return (count + kStride - 1) / kStride * kStride; }
};

// Numbers that are the same for all lanes, as memory operands: the loops need every register.
struct Constants {
  alignas(32) double target_scale[4];
  alignas(32) double reference_scale[4];
  alignas(32) double rtol[4];
  alignas(32) double atol[4];
  alignas(32) double thousandth[4];
  alignas(32) double five_thousandths[4];
};

SYNCPOINT_INLINE void prefetch_beside(const Block& block, std::size_t at) {
  prefetch(block.next_target + at * block.target_size);
  prefetch(block.next_reference + at * block.reference_size);
}

template <int Scaled>
SYNCPOINT_INLINE F64x4 target_at(const Block& block, std::size_t i, const Constants& constants) {
  const F64x4 x = widen(block.target + i);
  return Scaled & kTargetScaled ? mul(x, load(constants.target_scale)) : x;
}

template <int Scaled>
SYNCPOINT_INLINE F64x4 reference_at(const Block& block, std::size_t i, const Constants& constants) {
  const F64x4 x = widen(block.reference + i);
  return Scaled & kReferenceScaled ? mul(x, load(constants.reference_scale)) : x;
}

// Seven sums and the greatest error, which starts at `most`. `Keep` writes |d| for the histogram.
template <int Scaled, bool Keep>
SYNCPOINT_HOT void sum_block(const Block& given, const Constants& constants, BlockSums& out,
                             F64x4& most_out, double* error) {
  const Block block = given;
  F64x4 target = zeros(), reference = zeros(), target_squares = zeros(),
        reference_squares = zeros(), products = zeros(), errors = zeros(), error_squares = zeros(),
        most = most_out;
  const auto step = [&](std::size_t i) SYNCPOINT_STEP {
    F64x4 t = target_at<Scaled>(block, i, constants);
    const F64x4 r = reference_at<Scaled>(block, i, constants);
    target = add(target, t);
    reference = add(reference, r);
    target_squares = mul_add(t, t, target_squares);
    reference_squares = mul_add(r, r, reference_squares);
    products = mul_add(t, r, products);
    t = sub(t, r);
    error_squares = mul_add(t, t, error_squares);
    t = abs(t);
    errors = add(errors, t);
    most = max(t, most);
    if (Keep) store(error + i, t);
    pin(most, errors, target, reference);
  };
  const std::size_t n = block.padded();
  for (std::size_t i = 0; i < n; i += kStride) {
    prefetch_beside(block, i);
    step(i);
    step(i + 4);
    step(i + 8);
    step(i + 12);
  }
  out.target = target;
  out.reference = reference;
  out.target_squares = target_squares;
  out.reference_squares = reference_squares;
  out.products = products;
  out.errors = errors;
  out.error_squares = error_squares;
  most_out = most;
}

// The same and the relative errors, for blocks without a zero in the reference: with one, the sum
// of the quotients is not finite, and relative_block has to be run instead.
template <int Scaled, bool Keep>
SYNCPOINT_HOT void sum_relative_block(const Block& given, const Constants& constants,
                                      BlockSums& out, F64x4& most_out, RelativeCounts& counts,
                                      double* error) {
  const Block block = given;
  F64x4 target = zeros(), reference = zeros(), target_squares = zeros(),
        reference_squares = zeros(), products = zeros(), errors = zeros(), error_squares = zeros(),
        quotients = zeros(), most = most_out, greatest = counts.greatest;
  I64x4 within_1e3 = counts.within_1e3, within_5e3 = counts.within_5e3, close = counts.close;
  const auto step = [&](std::size_t i) SYNCPOINT_STEP {
    F64x4 t = target_at<Scaled>(block, i, constants);
    F64x4 r = reference_at<Scaled>(block, i, constants);
    target = add(target, t);
    reference = add(reference, r);
    target_squares = mul_add(t, t, target_squares);
    reference_squares = mul_add(r, r, reference_squares);
    products = mul_add(t, r, products);
    t = sub(t, r);
    error_squares = mul_add(t, t, error_squares);
    if (Scaled && Keep) pin(target_squares, reference_squares, products, error_squares);
    t = abs(t);
    errors = add(errors, t);
    most = max(t, most);
    if (Keep) store(error + i, t);
    pin(most, errors, target, reference);
    r = abs(r);
    // Two roundings, as everybody else has them.
    const F64x4 allowed = add(mul(r, load(constants.rtol)), load(constants.atol));
    close = count_up_to(close, t, allowed);
    pin(close);
    t = div(t, r);
    quotients = add(quotients, t);
    greatest = max(t, greatest);
    within_1e3 = count_less(within_1e3, t, load(constants.thousandth));
    pin(within_1e3);
    within_5e3 = count_less(within_5e3, t, load(constants.five_thousandths));
    pin(quotients, greatest, within_5e3);
  };
  const std::size_t n = block.padded();
  for (std::size_t i = 0; i < n; i += kStride) {
    prefetch_beside(block, i);
    step(i);
    step(i + 4);
    step(i + 8);
    step(i + 12);
  }
  out.target = target;
  out.reference = reference;
  out.target_squares = target_squares;
  out.reference_squares = reference_squares;
  out.products = products;
  out.errors = errors;
  out.error_squares = error_squares;
  out.quotients = quotients;
  most_out = most;
  counts.greatest = greatest;
  counts.within_1e3 = within_1e3;
  counts.within_5e3 = within_5e3;
  counts.close = close;
}

// The relative errors alone, where the reference may be zero; the padding counts as close.
template <int Scaled>
SYNCPOINT_HOT void relative_block(const Block& given, const Constants& constants,
                                  F64x4& quotients_out, RelativeCounts& counts) {
  const Block block = given;
  F64x4 quotients = zeros(), greatest = counts.greatest;
  I64x4 within_1e3 = counts.within_1e3, within_5e3 = counts.within_5e3, close = counts.close;
  I64x4 nonzero = counts.nonzero, undefined = counts.undefined;
  const std::size_t n = block.padded();
  for (std::size_t i = 0; i < n; i += 4) {
    const F64x4 t = target_at<Scaled>(block, i, constants);
    const F64x4 signed_r = reference_at<Scaled>(block, i, constants);
    const F64x4 d = abs(sub(t, signed_r));
    const F64x4 r = abs(signed_r);
    close = count_up_to(close, d, add(mul(r, load(constants.rtol)), load(constants.atol)));
    nonzero = count_nonzero(nonzero, r);
    undefined = count_nonzero(undefined, where_nonzero(r, zeros(), d));
    const F64x4 quotient = where_nonzero(r, div(d, r), all(__builtin_inf()));
    within_1e3 = count_less(within_1e3, quotient, load(constants.thousandth));
    within_5e3 = count_less(within_5e3, quotient, load(constants.five_thousandths));
    const F64x4 defined = where_nonzero(r, quotient, zeros());
    quotients = add(quotients, defined);
    greatest = max(defined, greatest);
  }
  quotients_out = quotients;
  counts = {greatest, within_1e3, within_5e3, close, nonzero, undefined};
}

// Extrema and counts of zeros and of equal values over whole vectors; the few elements after the
// last one are left out. With scales, products are rounded to floats here, so elements that are
// not equal may be counted as such, but none is missed. `Exponents`: sums up those of the
// reference, which must not have a scale.
template <int Scaled, bool Exponents>
SYNCPOINT_HOT void survey_block(const Block& given, const Constants& constants, BlockSurvey& out) {
  const Block block = given;
  F32x8 target_min = out.target_min, target_max = out.target_max;
  F32x8 reference_min = out.reference_min, reference_max = out.reference_max;
  I32x8 equal = out.equal, target_zero = out.target_zero, reference_zero = out.reference_zero;
  I32x8 exponents = out.reference_exponents;
  const F32x8 zero = all8(0);
  const F32x8 target_scale = all8(static_cast<float>(constants.target_scale[0]));
  const F32x8 reference_scale = all8(static_cast<float>(constants.reference_scale[0]));
  for (std::size_t i = 0; i + 8 <= block.count; i += 8) {
    F32x8 t = load8(block.target + i);
    F32x8 r = load8(block.reference + i);
    target_min = min8(t, target_min);
    target_max = max8(t, target_max);
    reference_min = min8(r, reference_min);
    reference_max = max8(r, reference_max);
    target_zero = count_equal8(target_zero, t, zero);
    reference_zero = count_equal8(reference_zero, r, zero);
    if (Exponents) exponents = add_exponents8(exponents, r);
    if (Scaled & kTargetScaled) t = mul8(t, target_scale);
    if (Scaled & kReferenceScaled) r = mul8(r, reference_scale);
    equal = count_equal8(equal, t, r);
  }
  out = {target_min, target_max,  reference_min,  reference_max,
         equal,      target_zero, reference_zero, exponents};
}

// The exponents of a reference with a scale, of which `nonzero` elements are not zero. With the
// scales that a plan allows none of them is as small as the least that floats have.
template <int Scaled>
SYNCPOINT_HOT std::int64_t exponents_with_scale(const Block& block, const Constants& constants,
                                                std::int64_t nonzero) {
  I64x4 exponents = no_counts();
  for (std::size_t i = 0; i < block.padded(); i += 4) {
    exponents = add_exponents(exponents, reference_at<Scaled>(block, i, constants));
  }
  return total(exponents) - (1023 - 127) * nonzero;
}

// The equal values of a block with scales, over whole vectors.
template <int Scaled>
SYNCPOINT_HOT std::int64_t count_equal_block(const Block& block, const Constants& constants) {
  I64x4 equal = no_counts();
  for (std::size_t i = 0; i < block.count / 8 * 8; i += 4) {
    equal = count_equal(equal, target_at<Scaled>(block, i, constants),
                        reference_at<Scaled>(block, i, constants));
  }
  return total(equal);
}

// A whole block whose sides have the same bits: one side tells everything. False if they differ.
template <bool Exponents>
SYNCPOINT_HOT bool sum_equal_block(const Block& given, BlockSums& out, BlockSurvey& survey) {
  const Block block = given;
  F64x4 sum = zeros(), squares = zeros(), more_sum = zeros(), more_squares = zeros();
  F32x8 least = all8(__builtin_inff()), greatest = all8(-__builtin_inff());
  I32x8 different = no_counts8(), zero_count = no_counts8(), exponents = no_counts8();
  const F32x8 zero = all8(0);
  const auto step = [&](std::size_t i) SYNCPOINT_STEP {
    const F32x8 x = load8(block.target + i);
    different = differing(different, x, load8(block.reference + i));
    least = min8(x, least);
    greatest = max8(x, greatest);
    zero_count = count_equal8(zero_count, x, zero);
    if (Exponents) exponents = add_exponents8(exponents, x);
    const F64x4 a = widen(block.target + i);
    const F64x4 b = widen(block.target + i + 4);
    sum = add(sum, a);
    more_sum = add(more_sum, b);
    squares = mul_add(a, a, squares);
    more_squares = mul_add(b, b, more_squares);
    pin(sum, more_sum, squares, more_squares);
  };
  // Looks up now and then, so that a block that is only nearly equal does not cost much.
  constexpr std::size_t kLook = 256;
  static_assert(kBlock % kLook == 0);
  for (std::size_t part = 0; part < kBlock; part += kLook) {
    for (std::size_t i = part; i < part + kLook; i += kStride) {
      prefetch_beside(block, i);
      step(i);
      step(i + 8);
    }
    if (!none_set(different)) return false;
  }
  out.target = out.reference = add(sum, more_sum);
  out.target_squares = out.reference_squares = out.products = add(squares, more_squares);
  survey = {least, greatest, least, greatest, no_counts8(), zero_count, zero_count, exponents};
  return true;
}

// The sum of |d| / max(|r|, floor), and the sums and extrema of the elements with |r| < border.
template <int Scaled, bool Robust, bool Bulk>
SYNCPOINT_HOT void look_again_block(const Block& given, const Constants& constants,
                                    const SecondLook& look, BlockSecond& out) {
  const Block block = given;
  F64x4 robust = zeros(), reference_squares = zeros(), error_squares = zeros();
  F64x4 most = out.bulk_max_abs;
  I64x4 kept = out.bulk_count;
  const F64x4 floor = all(look.floor), border = all(look.border);
  const std::size_t n = block.padded();
  for (std::size_t i = 0; i < n; i += kStride) {
    prefetch_beside(block, i);
    for (std::size_t k = i; k < i + kStride; k += 4) {
      const F64x4 t = target_at<Scaled>(block, k, constants);
      F64x4 r = reference_at<Scaled>(block, k, constants);
      F64x4 d = abs(sub(t, r));
      r = abs(r);
      if (Robust) robust = add(robust, div(d, max(r, floor)));
      pin(robust);
      if (Bulk) {
        kept = count_less(kept, r, border);
        d = keep_less(r, border, d);
        r = keep_less(r, border, r);
        error_squares = mul_add(d, d, error_squares);
        reference_squares = mul_add(r, r, reference_squares);
        most = max(d, most);
        pin(kept, error_squares, reference_squares, most);
      }
    }
  }
  out.robust = add(out.robust, robust);
  out.bulk_reference_squares = add(out.bulk_reference_squares, reference_squares);
  out.bulk_error_squares = add(out.bulk_error_squares, error_squares);
  out.bulk_max_abs = most;
  out.bulk_count = kept;
}

// --- units in the last place ---

SYNCPOINT_HOT inline I32x8 ulp_floats(const Block& block, I32x8 most) {
  const std::size_t n = block.padded();
  for (std::size_t i = 0; i < n; i += 8) {
    most = max_distance(most, ordinal32(load8(block.target + i)),
                        ordinal32(load8(block.reference + i)));
  }
  return most;
}

// In units of 2^-13.
SYNCPOINT_HOT inline I32x8 ulp_halves(const Block& block) {
  const std::size_t n = block.padded();
  I32x8 most = no_counts8();
  for (std::size_t i = 0; i < n; i += 8) {
    most = max_distance(most, ordinal16(load8(block.target + i)),
                        ordinal16(load8(block.reference + i)));
  }
  return most;
}

// Whether one of the values is under the normal range of f16, where a float may lie so close to its
// neighbours that ulp_halves has rounded its place.
SYNCPOINT_HOT inline bool any_below_halves(const float* values, std::size_t n) {
  F32x8 least = all8(__builtin_inff());
  for (std::size_t i = 0; i < n; i += 8) least = min8(abs8(load8(values + i)), least);
  return least8(least) < 0x1p-14f;
}

// The place of each float among the numbers of a format, see ulp.hpp, with its fraction.
SYNCPOINT_HOT inline double ulp_any(const Block& block, int mantissa, int min_exponent) {
  const std::size_t n = block.padded();
  const F64x4 least_normal = all(__builtin_ldexp(1.0, min_exponent));
  const F64x4 below_unit = all(__builtin_ldexp(1.0, mantissa - min_exponent));
  const F64x4 unit = all(__builtin_ldexp(1.0, mantissa - 23));
  const F64x4 start = all(static_cast<double>((min_exponent + 126) << 23));
  const auto ordinal = [&](const float* p) SYNCPOINT_STEP {
    const F64x4 x = widen(p);
    const F64x4 whole = ordinal_as_double(p);
    const F64x4 normal = with_sign(mul(sub(abs(whole), start), unit), whole);
    return where_less(abs(x), least_normal, mul(x, below_unit), normal);
  };
  F64x4 most = zeros();
  for (std::size_t i = 0; i < n; i += 4) {
    most = max(abs(sub(ordinal(block.target + i), ordinal(block.reference + i))), most);
  }
  return greatest(most);
}

// --- histogram ---

// Byte e stands for the exponent kByteBase + e - 1023; 0 for zero and for everything smaller. Two
// floats differ by less than 2^129, so a byte is enough at the upper end.
inline constexpr int kByteBase = 1151 - 255;

// The exponents of n errors, n a multiple of 32, as bytes; yields the greatest byte.
SYNCPOINT_HOT inline int exponents_of(const double* error, std::size_t n, std::uint8_t* bytes) {
  U8x32 most = all_bytes(0);
  for (std::size_t i = 0; i < n; i += 32) {
    const U8x32 e = exponent_bytes(error + i, kByteBase);
    store_bytes(bytes + i, e);
    most = max_bytes(most, e);
  }
  return greatest_byte(most);
}

// Counts seven neighbouring exponents at a time from the greatest down: errors are mostly within a
// few binades of each other. `bins` has 256 places; n is below 32 * 256.
SYNCPOINT_HOT inline void count_exponents(const std::uint8_t* bytes, std::size_t n, int greatest,
                                          std::int64_t* bins) {
  constexpr int kAtOnce = 7;
  constexpr int kWindows = 4;
  std::int64_t left = static_cast<std::int64_t>(n);
  {
    const U8x32 zero = all_bytes(0);
    U8x32 found = zero;
    for (std::size_t i = 0; i < n; i += 32) found = count_bytes(found, load_bytes(bytes + i), zero);
    bins[0] += total_bytes(found);
    left -= total_bytes(found);
  }
  int top = greatest;
  for (int window = 0; window < kWindows && left > 0 && top > 0; ++window, top -= kAtOnce) {
    U8x32 wanted[kAtOnce], found[kAtOnce];
    for (int k = 0; k < kAtOnce; ++k) {
      // Below 1 there is nothing to look for; the count of 0 is then left unused.
      wanted[k] = all_bytes(top - k > 0 ? top - k : 0);
      found[k] = all_bytes(0);
    }
    for (std::size_t i = 0; i < n; i += 32) {
      const U8x32 e = load_bytes(bytes + i);
      for (int k = 0; k < kAtOnce; ++k) found[k] = count_bytes(found[k], e, wanted[k]);
    }
    for (int k = 0; k < kAtOnce && top - k > 0; ++k) {
      const std::int64_t here = total_bytes(found[k]);
      bins[top - k] += here;
      left -= here;
    }
  }
  if (left <= 0) return;
  // Errors of very many magnitudes: one by one, in turns over two sets of bins, because a count
  // that was just written is slow to be read again.
  std::uint16_t odd[256] = {};
  std::uint16_t even[256] = {};
  for (std::size_t i = 0; i < n; i += 2) {
    ++even[bytes[i]];
    ++odd[bytes[i + 1]];
  }
  for (int e = 1; e <= top; ++e) bins[e] += even[e] + odd[e];
}

}  // namespace syncpoint::SYNCPOINT_ISA
