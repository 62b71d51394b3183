// Distance in units in the last place of a given float type.
//
// Every number of the type has an ordinal: 0 for zeros, 1 for the least subnormal, and so on, with
// the sign of the number. Between two of them the ordinal is interpolated, and beyond the greatest
// it goes on as if the type had larger exponents, so numbers of a finer type have one too.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "decode.hpp"

namespace syncpoint {

struct FloatFormat {
  int mantissa;
  int min_exponent;
};

// binades * 2^mantissa + high + low: kept apart because the whole may not fit into a double.
struct Ordinal {
  double binades = 0;
  double high = 0;
  double low = 0;
};

inline double times_power_of_two(double x, int k) {
  // A double has exponents beyond which the power itself cannot be written.
  return k > 1000 ? x * power_of_two(1000) * power_of_two(k - 1000) : x * power_of_two(k);
}

// Of the number x + low; low is not zero only for integers beyond 2^53.
inline Ordinal ordinal(double x, double low, FloatFormat format) {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52 & 0x7ff) - 1023;
  // 2^k - 1 rounds to 2^k, yet lies in the binade below it.
  const bool power = (bits & 0x000fffffffffffffu) == 0;
  if (power && low != 0 && std::signbit(low) != std::signbit(x)) --exponent;
  exponent = std::max(exponent, format.min_exponent);
  const int shift = format.mantissa - exponent;
  return {std::copysign(static_cast<double>(exponent - format.min_exponent), x),
          times_power_of_two(x, shift), times_power_of_two(low, shift)};
}

inline double ulp_distance(const Ordinal& a, const Ordinal& b, FloatFormat format) {
  const double binades = (a.binades - b.binades) * power_of_two(format.mantissa);
  return std::abs((binades + (a.high - b.high)) + (a.low - b.low));
}

// Exact distance of two doubles in their own units.
inline std::uint64_t ordered_distance(double a, double b) {
  const auto ordered = [](double x) {
    const auto magnitude = static_cast<std::int64_t>(std::bit_cast<std::uint64_t>(x) << 1 >> 1);
    return std::signbit(x) ? -magnitude : magnitude;
  };
  const std::int64_t left = ordered(a);
  const std::int64_t right = ordered(b);
  return left > right ? static_cast<std::uint64_t>(left) - static_cast<std::uint64_t>(right)
                      : static_cast<std::uint64_t>(right) - static_cast<std::uint64_t>(left);
}

}  // namespace syncpoint
