// Exponentials and logarithms in forms that do not cancel, and differences without rounding.
//
// Written out rather than taken from the C library: its last bit differs between processors, and a
// plain loop over these is turned into vector instructions.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "decode.hpp"

namespace syncpoint {

inline constexpr double kLn2High =
    0x1.62e42feep-1;  // 32 bits: its product with an exponent is exact
inline constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

// A number as the unevaluated sum of two doubles.
struct Twofold {
  double high;
  double low;
};

// a - b, exactly, unless it overflows.
inline Twofold exact_difference(double a, double b) {
  const double high = a - b;
  const double back = high - a;
  return {high, (a - (high - back)) - (b + back)};
}

// a * b, exactly, for magnitudes whose product and parts stay in the normal range.
inline Twofold exact_product(double a, double b) {
  const auto upper_half = [](double x) {
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) & 0xfffffffff8000000u);
  };
  const double a1 = upper_half(a);
  const double b1 = upper_half(b);
  const double a2 = a - a1;
  const double b2 = b - b1;
  const double high = a * b;
  return {high, ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2};
}

// a * b - c * d with about twice the digits of a double inside.
inline double difference_of_products(Twofold a, Twofold b, Twofold c, Twofold d) {
  const Twofold left = exact_product(a.high, b.high);
  const Twofold right = exact_product(c.high, d.high);
  const double left_low = left.low + (a.high * b.low + a.low * b.high);
  const double right_low = right.low + (c.high * d.low + c.low * d.high);
  const Twofold apart = exact_difference(left.high, right.high);
  return apart.high + (apart.low + (left_low - right_low));
}

// The last terms of the series of e^x, from x¹¹ / 11! on; q holds those before.
inline double exponential_terms(double q, double x) {
  q = q * x + 1.0 / 39916800;
  q = q * x + 1.0 / 3628800;
  q = q * x + 1.0 / 362880;
  q = q * x + 1.0 / 40320;
  q = q * x + 1.0 / 5040;
  q = q * x + 1.0 / 720;
  q = q * x + 1.0 / 120;
  q = q * x + 1.0 / 24;
  q = q * x + 1.0 / 6;
  return q * x + 1.0 / 2;
}

// e^x for x below 709; 0 below -745. Within a unit in the last place.
inline double exponential(double x) {
  constexpr double kLog2E = 0x1.71547652b82fep0;
  constexpr double kRound =
      0x1.8p52;  // adding it rounds to an integer and shows it in the low bits
  x = x > -746.0 ? x : -746.0;
  const double shifted = x * kLog2E + kRound;
  const double k = shifted - kRound;
  const double f = (x - k * kLn2High) - k * kLn2Low;
  double q = 1.0 / 6227020800;
  q = exponential_terms(q * f + 1.0 / 479001600, f);
  const double power = 1 + (f + f * f * q);
  // 2^k in two steps, so that the result may be subnormal.
  const std::uint64_t exponent =
      std::bit_cast<std::uint64_t>(shifted) - std::bit_cast<std::uint64_t>(kRound) + 2048;
  const std::uint64_t first = exponent >> 1;
  const std::uint64_t second = exponent - first;
  return power * std::bit_cast<double>((first - 1) << 52) *
         std::bit_cast<double>((second - 1) << 52);
}

// The natural logarithm of a normal positive number, within two units in the last place.
inline double logarithm(double x) {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  double k = static_cast<double>(static_cast<std::int64_t>(bits >> 52) - 1023);
  double m = std::bit_cast<double>((bits & 0x000fffffffffffffu) | 0x3ff0000000000000u);
  if (m > 0x1.6a09e667f3bcdp0) {
    m *= 0.5;
    k += 1;
  }
  const double s = (m - 1) / (m + 1);
  const double z = s * s;
  double q = 1.0 / 23;
  for (int odd = 21; odd >= 3; odd -= 2) q = q * z + 1.0 / odd;
  return k * kLn2High + (2 * s + (2 * s * z * q + k * kLn2Low));
}

// e^x - 1 - x, for |x| up to 1/4.
inline double exponential_beyond_linear(double x) {
  return x * x * exponential_terms(1.0 / 479001600, x);
}

// artanh(s) = s + s³ q, with z = s² up to 1/64: 1/3 + z/5 + ... + z⁶/15.
inline double artanh_terms(double z) {
  double q = 1.0 / 15;
  q = q * z + 1.0 / 13;
  q = q * z + 1.0 / 11;
  q = q * z + 1.0 / 9;
  q = q * z + 1.0 / 7;
  q = q * z + 1.0 / 5;
  return q * z + 1.0 / 3;
}

// ln(1 + x) - x, which is about -x² / 2; x above -1.
inline double logarithm_beyond_linear(double x) {
  if (std::abs(x) > 0.125) return logarithm(1 + x) - x;
  // ln(1 + x) = 2 artanh(s) with s = x / (2 + x), and 2 s - x = -s x.
  const double s = x / (2 + x);
  const double z = s * s;
  return s * (2 * z * artanh_terms(z) - x);
}

}  // namespace syncpoint
