// Eight floats and eight doubles, in the compiler's own vectors: the same source for every
// instruction set, and the same bits, because nothing is contracted. Included once for each.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

// All of them are inlined, so no call passes a vector in the wrong kind of register.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace syncpoint::SYNCPOINT_ISA {

inline constexpr std::size_t kEight = 8;
using F8 = float __attribute__((vector_size(32)));
using D4 = double __attribute__((vector_size(32)));
using I8 = std::int32_t __attribute__((vector_size(32)));

struct D8 {
  D4 low = {};
  D4 high = {};

  SYNCPOINT_INLINE D8& operator+=(const D8& x) {
    low += x.low;
    high += x.high;
    return *this;
  }
};
SYNCPOINT_INLINE D8 operator-(const D8& a, double b) { return {a.low - b, a.high - b}; }
SYNCPOINT_INLINE D8 operator*(const D8& a, double b) { return {a.low * b, a.high * b}; }
SYNCPOINT_INLINE D8 operator*(const D8& a, const D8& b) { return {a.low * b.low, a.high * b.high}; }

SYNCPOINT_INLINE F8 load_eight(const float* p) {
  F8 x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
SYNCPOINT_INLINE float float_after(const float* p, std::size_t i) {
  float x;
  std::memcpy(&x, p + i, sizeof x);
  return x;
}
#ifdef __AVX__
// GCC converts two at a time and by way of the stack if it is left to itself.
SYNCPOINT_INLINE D8 wide(const F8& x) {
  return {_mm256_cvtps_pd(_mm256_castps256_ps128(x)), _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))};
}
#else
SYNCPOINT_INLINE D8 wide(const F8& x) {
  return {__builtin_convertvector(__builtin_shufflevector(x, x, 0, 1, 2, 3), D4),
          __builtin_convertvector(__builtin_shufflevector(x, x, 4, 5, 6, 7), D4)};
}
#endif
SYNCPOINT_INLINE F8 magnitude(const F8& x) {
  return reinterpret_cast<F8>(reinterpret_cast<I8>(x) & 0x7fffffff);
}
// b where one of them is NaN.
SYNCPOINT_INLINE F8 lesser(const F8& a, const F8& b) { return a < b ? a : b; }
SYNCPOINT_INLINE F8 greater(const F8& a, const F8& b) { return a > b ? a : b; }

// ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))
SYNCPOINT_INLINE float folded(const F8& x) {
  const F8 pairs = x + __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6);
  const F8 fours = pairs + __builtin_shufflevector(pairs, pairs, 2, 3, 0, 1, 6, 7, 4, 5);
  return fours[0] + fours[4];
}
SYNCPOINT_INLINE double folded(const D8& x) {
  return ((x.low[0] + x.low[1]) + (x.low[2] + x.low[3])) +
         ((x.high[0] + x.high[1]) + (x.high[2] + x.high[3]));
}
SYNCPOINT_INLINE double lane_of(const D8& x, std::size_t k) {
  return k < 4 ? x.low[k] : x.high[k - 4];
}

// The natural logarithm of positive normal floats, within 3 * 2^-24 of its size: x = 2^k * (1 + f)
// with 1 + f from sqrt(1/2) to sqrt(2), and log(1 + f) = f - f^2 / 2 + f^3 * P(f), where P is
// fitted on Chebyshev points.
SYNCPOINT_INLINE F8 logarithm(const F8& x) {
  constexpr std::int32_t kRootOfHalf = 0x3f3504f3;
  constexpr float kLn2High = 0x1.62e4p-1f;  // times any exponent without rounding
  constexpr float kLn2Low = 0x1.7f7d1cp-20f;
  const I8 above = reinterpret_cast<I8>(x) - kRootOfHalf;
  const F8 k = __builtin_convertvector(above >> 23, F8);
  const F8 f = reinterpret_cast<F8>((above & 0x7fffff) + kRootOfHalf) - 1.0f;
  const F8 square = f * f;
  const F8 fourth = square * square;
  const F8 p0 = f * -0x1.0000cep-2f + 0x1.555554p-2f;
  const F8 p2 = f * -0x1.54d03ep-3f + 0x1.999f14p-3f;
  const F8 p4 = f * -0x1.0a33eap-3f + 0x1.231ce6p-3f;
  const F8 p6 = f * -0x1.43b246p-4f + 0x1.02814ep-3f;
  const F8 p = (p0 + p2 * square) + (p4 + p6 * square) * fourth;
  const F8 rest = (p * f) * square - square * 0.5f;
  return k * kLn2High + (f + (rest + k * kLn2Low));
}

}  // namespace syncpoint::SYNCPOINT_ISA
