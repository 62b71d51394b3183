#include "on_demand_chunk.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "decode.hpp"
#include "summation.hpp"

namespace syncpoint {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double imaginary(const Values& v, std::size_t i) { return v.complex() ? v.im[i] : 0; }

double low_part(const Values& v, std::size_t i) { return v.wide ? v.lo[i] : 0; }

bool finite(const Values& v, std::size_t i) {
  return std::isfinite(v.re[i]) && std::isfinite(imaginary(v, i));
}

// Masks are a habit of real scores; a complex number has no order to be below anything.
bool low(const Values& v, std::size_t i, double mask_below) {
  return !v.complex() && v.re[i] <= mask_below;
}

// The lowest finite number of some type, held perhaps by a wider one that will be cast.
bool lowest_of_a_type(const Values& v, std::size_t i, double mask_below) {
  constexpr double kLowest[] = {-65504.0, -0x1.fep127, -0x1.fffffep127,
                                std::numeric_limits<double>::lowest()};
  if (v.complex() || std::isinf(mask_below)) return false;
  return std::find(std::begin(kLowest), std::end(kLowest), v.re[i]) != std::end(kLowest);
}

bool all_between(const std::vector<double>& values, double above, std::size_t count) {
  const double* x = values.data();
  const auto inside = [=](std::size_t i) { return (x[i] > above) & (x[i] < kInfinity); };
  return lane_count(count, inside) == static_cast<std::int64_t>(count);
}

bool all_ordinary(const Values& v, double mask_below, std::size_t count) {
  if (!v.complex()) return all_between(v.re, mask_below, count);
  return all_between(v.re, -kInfinity, count) && all_between(v.im, -kInfinity, count);
}

// Bytes of a file that one side may map at once.
constexpr std::size_t kWindow = 8u << 20;

}  // namespace

Chunk::Chunk(const Pair& pair, std::size_t capacity)
    : pair_(pair),
      target_(pair.target, capacity, kWindow),
      reference_(pair.reference, capacity, kWindow) {}

void Chunk::read(std::int64_t begin, std::size_t count) {
  target_.read(begin, count);
  reference_.read(begin, count);
  size_ = count;
  ordinary_ = all_ordinary(target(), pair_.target.mask_below, count) &&
              all_ordinary(reference(), pair_.reference.mask_below, count);
}

bool Chunk::target_low(std::size_t i) { return low(target(), i, pair_.target.mask_below); }

bool Chunk::reference_low(std::size_t i) { return low(reference(), i, pair_.reference.mask_below); }

bool Chunk::masked(std::size_t i) {
  if (ordinary_) return false;
  const bool t_low = target_low(i);
  const bool r_low = reference_low(i);
  if (!t_low && !r_low) return false;
  if (t_low && r_low) return true;
  if (t_low ? lowest_of_a_type(reference(), i, pair_.reference.mask_below)
            : lowest_of_a_type(target(), i, pair_.target.mask_below)) {
    return true;
  }
  if (!finite(target(), i) || !finite(reference(), i)) return false;
  // -65504 is a mask in f16 and a number in f32; where both hold it, it is a mask in both.
  const double factor = complex() ? 0.125 : 1;
  const double apart = std::hypot(difference_at(i, factor), imaginary_difference_at(i, factor));
  const double size = std::hypot(reference().re[i] * factor, imaginary(reference(), i) * factor);
  return apart <= pair_.mask_rtol * size;
}

bool Chunk::compared(std::size_t i) {
  return ordinary_ ||
         (finite(target(), i) && finite(reference(), i) && !target_low(i) && !reference_low(i));
}

double Chunk::difference_at(std::size_t i, double factor) {
  // Scaling down comes before the subtraction, which might overflow; scaling up after it.
  const double before = std::min(factor, 1.0);
  const double after = std::max(factor, 1.0);
  const Values& t = target();
  const Values& r = reference();
  if (!t.wide && !r.wide) return (t.re[i] * before - r.re[i] * before) * after;
  return difference(t.re[i] * before, low_part(t, i) * before, r.re[i] * before,
                    low_part(r, i) * before) *
         after;
}

double Chunk::imaginary_difference_at(std::size_t i, double factor) {
  const double before = std::min(factor, 1.0);
  const double after = std::max(factor, 1.0);
  return (imaginary(target(), i) * before - imaginary(reference(), i) * before) * after;
}

}  // namespace syncpoint
