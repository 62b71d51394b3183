// Division by one and the same float, rounded as a division is. Included once for each instruction
// set.
#pragma once

#include <cmath>
#include <initializer_list>
#include <type_traits>

#include "compat_vectors.hpp"

namespace syncpoint::SYNCPOINT_ISA {

struct Division {
  explicit Division(float divisor) : by(divisor) {}
  SYNCPOINT_INLINE F8 operator()(const F8& x) const { return x / by; }

  float by;
};

#ifdef __FMA__
// In four instructions instead of a turn at the divider, of which a core has one. With y the float
// nearest to 1 / b and z what it lacks, q = a * y + a * z is within half a unit in the last place,
// and a hair, of a / b; the rest r = a - q * b is exact; and q + r * y is off by (a / b - q) *
// (b * y - 1). Let 1 <= b < 2: that is less than b * 2^-26 units where it matters, which is where
// a / b lies near the middle between two floats. It never lies nearer to it than 2^-24 / b units,
// because 24-bit integers have no finer quotients. So the last rounding is right, unless b is so
// near to 2 that the hair counts. None of this holds where something underflows.
class FusedDivision {
 public:
  explicit FusedDivision(float divisor)
      : by_(divisor),
        first_(1.0f / divisor),
        rest_(static_cast<float>(1.0 / divisor - static_cast<double>(first_))) {}

  // Then quotients from 2^-24 on are right, and lesser ones are less than 2^-23.
  static bool fits(float divisor) {
    int exponent;
    constexpr float kNearTwo = 1 - 0x1p-16f;
    return divisor >= 0x1p-70f && divisor <= 0x1p100f && std::frexp(divisor, &exponent) < kNearTwo;
  }

  SYNCPOINT_INLINE F8 operator()(const F8& x) const {
    const F8 first = _mm256_set1_ps(first_);
    const F8 q = _mm256_fmadd_ps(x, first, x * rest_);
    const F8 r = _mm256_fnmadd_ps(q, _mm256_set1_ps(by_), x);
    return _mm256_fmadd_ps(r, first, q);
  }

 private:
  float by_;
  float first_;
  float rest_;
};
#endif

// use(type of division) with the fastest that is right for all these divisors.
template <class Use>
auto with_division([[maybe_unused]] std::initializer_list<float> divisors, Use use) {
#ifdef __FMA__
  bool fused = true;
  for (const float divisor : divisors) fused = fused && FusedDivision::fits(divisor);
  if (fused) return use(std::type_identity<FusedDivision>{});
#endif
  return use(std::type_identity<Division>{});
}

}  // namespace syncpoint::SYNCPOINT_ISA
