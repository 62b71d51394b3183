// How the bytes of one element become a number: exactly, as one double or as the sum of two; and
// the difference of two such sums.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace syncpoint {

// 2^k for k in [-1022, 1023].
inline double power_of_two(int k) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(k + 1023) << 52);
}

// A small IEEE-like float with `Mantissa` fraction bits. Its exponent and fraction are laid over
// those of a double, which is off by a fixed power of two, for subnormals as well; the product with
// that power is exact.
template <int Exponent, int Mantissa>
double decode_small_float(std::uint32_t bits) {
  constexpr int kBias = (1 << (Exponent - 1)) - 1;
  const std::uint64_t magnitude = bits & ((1u << (Exponent + Mantissa)) - 1);
  const std::uint64_t sign = (bits >> (Exponent + Mantissa)) & 1u;
  const double value =
      std::bit_cast<double>(magnitude << (52 - Mantissa)) * power_of_two(1023 - kBias);
  return sign ? -value : value;
}

inline double decode_f16(std::uint16_t bits) {
  if ((bits & 0x7c00u) == 0x7c00u) {
    if (bits & 0x03ffu) return std::numeric_limits<double>::quiet_NaN();
    return bits & 0x8000u ? -std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::infinity();
  }
  return decode_small_float<5, 10>(bits);
}

inline double decode_bf16(std::uint16_t bits) {
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
}

// No infinities; the one pattern with all bits set is NaN.
inline double decode_f8_e4m3fn(std::uint8_t bits) {
  if ((bits & 0x7fu) == 0x7fu) return std::numeric_limits<double>::quiet_NaN();
  return decode_small_float<4, 3>(bits);
}

// The upper half of an f16.
inline double decode_f8_e5m2(std::uint8_t bits) {
  return decode_f16(static_cast<std::uint16_t>(bits << 8));
}

inline double decode_i4(std::uint8_t bits) {
  const int nibble = bits & 0x0f;
  return nibble < 8 ? nibble : nibble - 16;
}

inline double decode_u4(std::uint8_t bits) { return bits & 0x0f; }

// What a 64-bit integer has beyond its nearest double. 128 bits because 2^64 - 1 rounds to 2^64.
template <class Integer>
double beyond_double(Integer value) {
  return static_cast<double>(static_cast<__int128>(value) -
                             static_cast<__int128>(static_cast<double>(value)));
}

// The difference of (a + a_lo) and (b + b_lo): correctly rounded between two integers, within one
// unit in the last place between a 64-bit integer and a float.
inline double difference(double a, double a_lo, double b, double b_lo) {
  const double rough = a - b;
  const double back = rough - a;
  const double error = (a - (rough - back)) - (b + back);
  return rough + (error + (a_lo - b_lo));
}

}  // namespace syncpoint
