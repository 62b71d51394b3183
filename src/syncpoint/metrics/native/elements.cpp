#include "elements.hpp"

#include <algorithm>
#include <cmath>

#include "summation.hpp"
#include "values.hpp"

namespace syncpoint {
namespace {

bool has_nan(const Values& v, std::size_t i) {
  return std::isnan(v.re[i]) || std::isnan(imaginary(v, i));
}

bool has_inf(const Values& v, std::size_t i) {
  return !has_nan(v, i) && (std::isinf(v.re[i]) || std::isinf(imaginary(v, i)));
}

// NaN equals NaN here: the same hole in the same place.
bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

bool same(const Values& a, const Values& b, std::size_t i) {
  return same(a.re[i], b.re[i]) && low_part(a, i) == low_part(b, i) &&
         same(imaginary(a, i), imaginary(b, i));
}

std::int64_t count_zeros(const Values& v, std::size_t count) {
  const double* re = v.re.data();
  if (!v.complex()) return lane_count(count, [=](std::size_t i) { return re[i] == 0; });
  const double* im = v.im.data();
  return lane_count(count, [=](std::size_t i) { return re[i] == 0 && im[i] == 0; });
}

void move(Values& v, std::size_t from, std::size_t to) {
  v.re[to] = v.re[from];
  if (v.complex()) v.im[to] = v.im[from];
  if (v.wide) v.lo[to] = v.lo[from];
}

void count_side(const Values& v, std::size_t i, bool masked, double limit, SideTally& side) {
  side.nan += has_nan(v, i);
  if (has_inf(v, i)) {
    ++side.inf;
    side.overflow += !masked && limit < std::numeric_limits<double>::infinity();
  }
}

}  // namespace

Elements::Elements(const Pair& pair, std::size_t window)
    : pair_(pair),
      target_(pair.target, chunk_of(pair), window),
      reference_(pair.reference, chunk_of(pair), window),
      place_(chunk_of(pair)),
      steps_(pair.step_of == StepOf::none ? 0 : chunk_of(pair)) {}

void Elements::load(std::int64_t begin, std::size_t count, Counts& counts) {
  begin_ = begin;
  loaded_ = count;
  target_.read(begin, count);
  reference_.read(begin, count);
  count_everywhere(count, counts);
  dense_ = all_ordinary(count);
  if (dense_) {
    size_ = count;
  } else {
    sift(count, counts);
  }
  counts.compared += static_cast<std::int64_t>(size_);
}

double Elements::real_difference(std::size_t i, double factor) {
  return syncpoint::real_difference(target(), reference(), i, factor);
}

double Elements::imaginary_difference(std::size_t i, double factor) {
  return syncpoint::imaginary_difference(target(), reference(), i, factor);
}

const double* Elements::steps() {
  const Reader& side = pair_.step_of == StepOf::target ? target_ : reference_;
  side.steps(begin_, loaded_, steps_.data());
  if (!dense_) {
    for (std::size_t i = 0; i < size_; ++i) steps_[i] = steps_[place_[i]];
  }
  return steps_.data();
}

bool Elements::all_ordinary(std::size_t count) {
  return syncpoint::all_ordinary(target(), pair_.target.mask_below, count) &&
         syncpoint::all_ordinary(reference(), pair_.reference.mask_below, count);
}

void Elements::count_everywhere(std::size_t count, Counts& counts) {
  const Values& t = target();
  const Values& r = reference();
  counts.target.zero += count_zeros(t, count);
  counts.reference.zero += count_zeros(r, count);
  if (complex() || wide()) {
    for (std::size_t i = 0; i < count; ++i) counts.equal += same(t, r, i);
    return;
  }
  const double* a = t.re.data();
  const double* b = r.re.data();
  counts.equal += lane_count(count, [=](std::size_t i) {
    // A NaN does not equal itself.
    return (a[i] == b[i]) | ((a[i] != a[i]) & (b[i] != b[i]));
  });
}

bool Elements::agree_as_masks(std::size_t i) {
  const Values& r = reference();
  // The modulus of a complex number near the end of the range would overflow.
  const double factor = complex() && std::abs(r.re[i]) > 1 ? 0.125 : 1;
  const double apart = std::hypot(real_difference(i, factor), imaginary_difference(i, factor));
  const double size = std::hypot(r.re[i] * factor, imaginary(r, i) * factor);
  return apart <= pair_.mask_rtol * size;
}

Elements::Fate Elements::fate_of(std::size_t i) {
  const Values& t = target();
  const Values& r = reference();
  const bool t_low = is_low(t, i, pair_.target.mask_below);
  const bool r_low = is_low(r, i, pair_.reference.mask_below);
  if (t_low && r_low) return Fate::masked;
  if (t_low && is_lowest_of_a_type(r, i, pair_.reference.mask_below)) return Fate::masked;
  if (r_low && is_lowest_of_a_type(t, i, pair_.target.mask_below)) return Fate::masked;
  if (has_nan(t, i) || has_inf(t, i) || has_nan(r, i) || has_inf(r, i)) {
    return same(t, r, i) ? Fate::equal : Fate::mismatched;
  }
  if (t_low || r_low) {
    // The two thresholds differ with the types: -65504 is a mask in f16 and a number in f32. When
    // both sides hold it they agree; a score that merely saturated there on one side does not.
    return agree_as_masks(i) ? Fate::masked : Fate::mismatched;
  }
  return Fate::compared;
}

void Elements::sift(std::size_t count, Counts& counts) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Fate fate = fate_of(i);
    if (fate == Fate::compared) {
      place_[kept] = static_cast<std::uint32_t>(i);
      move(target_.values(), i, kept);
      move(reference_.values(), i, kept);
      ++kept;
      continue;
    }
    const bool masked = fate == Fate::masked;
    counts.masked += masked;
    counts.mismatched += fate == Fate::mismatched;
    count_side(target(), i, masked, pair_.overflow_limit, counts.target);
    count_side(reference(), i, masked, pair_.overflow_limit, counts.reference);
  }
  size_ = kept;
}

}  // namespace syncpoint
