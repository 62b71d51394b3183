#include "elements.hpp"

#include <algorithm>
#include <cmath>

#include "decode.hpp"
#include "summation.hpp"

namespace syncpoint {
namespace {

double imaginary(const Values& values, std::size_t i) {
  return values.complex() ? values.im[i] : 0;
}

double low_part(const Values& values, std::size_t i) { return values.wide ? values.lo[i] : 0; }

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

// Masks are a habit of real scores; a complex number has no order to be below anything.
bool is_low(const Values& v, std::size_t i, double mask_below) {
  return !v.complex() && v.re[i] <= mask_below;
}

// The lowest finite number of some type, held perhaps by a wider one: code writes finfo(...).min
// of the type it will cast to. On its own it is an ordinary number.
bool is_lowest_of_a_type(const Values& v, std::size_t i, double mask_below) {
  constexpr double kLowest[] = {-65504.0, -0x1.fep127, -0x1.fffffep127,
                                std::numeric_limits<double>::lowest()};
  if (v.complex() || std::isinf(mask_below)) return false;
  return std::find(std::begin(kLowest), std::end(kLowest), v.re[i]) != std::end(kLowest);
}

std::int64_t count_zeros(const Values& v, std::size_t count) {
  const double* re = v.re.data();
  if (!v.complex()) return lane_count(count, [=](std::size_t i) { return re[i] == 0; });
  const double* im = v.im.data();
  return lane_count(count, [=](std::size_t i) { return re[i] == 0 && im[i] == 0; });
}

bool all_between(const std::vector<double>& values, double above, std::size_t count) {
  const double* x = values.data();
  const auto inside = [=](std::size_t i) {
    return (x[i] > above) & (x[i] < std::numeric_limits<double>::infinity());
  };
  return lane_count(count, inside) == static_cast<std::int64_t>(count);
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
  const double before = std::min(factor, 1.0);
  const double after = std::max(factor, 1.0);
  const Values& t = target();
  const Values& r = reference();
  if (!wide()) return (t.re[i] * before - r.re[i] * before) * after;
  return difference(t.re[i] * before, low_part(t, i) * before, r.re[i] * before,
                    low_part(r, i) * before) *
         after;
}

double Elements::imaginary_difference(std::size_t i, double factor) {
  const double before = std::min(factor, 1.0);
  const double after = std::max(factor, 1.0);
  return (imaginary(target(), i) * before - imaginary(reference(), i) * before) * after;
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
  constexpr double kBelowAll = -std::numeric_limits<double>::infinity();
  for (const auto& [values, mask_below] :
       {std::pair<const Values&, double>(target(), pair_.target.mask_below),
        std::pair<const Values&, double>(reference(), pair_.reference.mask_below)}) {
    const double above = values.complex() ? kBelowAll : mask_below;
    if (!all_between(values.re, above, count)) return false;
    if (values.complex() && !all_between(values.im, kBelowAll, count)) return false;
  }
  return true;
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
