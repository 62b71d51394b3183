// What can be said of single elements of a chunk, and of how far those of two sides are apart.
#pragma once

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "decode.hpp"
#include "reader.hpp"
#include "summation.hpp"

namespace syncpoint {

inline double imaginary(const Values& v, std::size_t i) { return v.complex() ? v.im[i] : 0; }

inline double low_part(const Values& v, std::size_t i) { return v.wide ? v.lo[i] : 0; }

// Masks are a habit of real scores; a complex number has no order to be below anything.
inline bool is_low(const Values& v, std::size_t i, double mask_below) {
  return !v.complex() && v.re[i] <= mask_below;
}

// The lowest finite number of some type, held perhaps by a wider one: code writes finfo(...).min
// of the type it will cast to. On its own it is an ordinary number.
inline bool is_lowest_of_a_type(const Values& v, std::size_t i, double mask_below) {
  constexpr double kLowest[] = {-65504.0, -0x1.fep127, -0x1.fffffep127,
                                std::numeric_limits<double>::lowest()};
  if (v.complex() || std::isinf(mask_below)) return false;
  return std::find(std::begin(kLowest), std::end(kLowest), v.re[i]) != std::end(kLowest);
}

inline bool all_between(const std::vector<double>& values, double above, std::size_t count) {
  const double* x = values.data();
  const auto inside = [=](std::size_t i) {
    return (x[i] > above) & (x[i] < std::numeric_limits<double>::infinity());
  };
  return lane_count(count, inside) == static_cast<std::int64_t>(count);
}

// Whether all elements are finite and none is a mask.
inline bool all_ordinary(const Values& v, double mask_below, std::size_t count) {
  constexpr double kBelowAll = -std::numeric_limits<double>::infinity();
  if (!v.complex()) return all_between(v.re, mask_below, count);
  return all_between(v.re, kBelowAll, count) && all_between(v.im, kBelowAll, count);
}

// factor * (t - r). Scaling down comes before the subtraction, which might overflow; scaling up
// after it.
inline double real_difference(const Values& t, const Values& r, std::size_t i, double factor) {
  const double before = std::min(factor, 1.0);
  const double after = std::max(factor, 1.0);
  if (!t.wide && !r.wide) return (t.re[i] * before - r.re[i] * before) * after;
  return difference(t.re[i] * before, low_part(t, i) * before, r.re[i] * before,
                    low_part(r, i) * before) *
         after;
}

inline double imaginary_difference(const Values& t, const Values& r, std::size_t i, double factor) {
  const double before = std::min(factor, 1.0);
  const double after = std::max(factor, 1.0);
  return (imaginary(t, i) * before - imaginary(r, i) * before) * after;
}

}  // namespace syncpoint
