#include "on_demand_chunk.hpp"

#include <cmath>

#include "values.hpp"

namespace syncpoint {
namespace {

bool finite(const Values& v, std::size_t i) {
  return std::isfinite(v.re[i]) && std::isfinite(imaginary(v, i));
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

bool Chunk::target_low(std::size_t i) { return is_low(target(), i, pair_.target.mask_below); }

bool Chunk::reference_low(std::size_t i) {
  return is_low(reference(), i, pair_.reference.mask_below);
}

bool Chunk::masked(std::size_t i) {
  if (ordinary_) return false;
  const bool t_low = target_low(i);
  const bool r_low = reference_low(i);
  if (!t_low && !r_low) return false;
  if (t_low && r_low) return true;
  if (t_low ? is_lowest_of_a_type(reference(), i, pair_.reference.mask_below)
            : is_lowest_of_a_type(target(), i, pair_.target.mask_below)) {
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
  return real_difference(target(), reference(), i, factor);
}

double Chunk::imaginary_difference_at(std::size_t i, double factor) {
  return imaginary_difference(target(), reference(), i, factor);
}

}  // namespace syncpoint
