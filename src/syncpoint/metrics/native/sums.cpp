#include "sums.hpp"

#include <algorithm>
#include <cmath>

namespace syncpoint {
namespace {

double greatest_of(const double* values, std::size_t count) {
  return lane_max(count, 0.0, [=](std::size_t i) { return std::abs(values[i]); });
}

SideSums sum_side(const double* x, std::size_t count, const Values& values, double factor) {
  SideSums sums;
  sums.sum = lane_sum(count, [=](std::size_t i) { return x[i]; });
  sums.squares = lane_sum(count, [=](std::size_t i) { return x[i] * x[i]; });
  sums.greatest = greatest_of(x, count);
  const auto value = [=](std::size_t i) { return x[i]; };
  if (values.wide) {
    const double* lo = values.lo.data();
    sums.moments = moments_of(count, value, [=](std::size_t i) { return lo[i] * factor; });
  } else {
    sums.moments = moments_of(count, value, [](std::size_t) { return 0.0; });
  }
  return sums;
}

SideSums merge(const SideSums& left, const SideSums& right) {
  return {left.sum + right.sum, left.squares + right.squares,
          std::max(left.greatest, right.greatest), merge(left.moments, right.moments)};
}

}  // namespace

int scaling_for(double greatest) {
  constexpr int kOrdinary = 400;
  constexpr int kMost = 1000;  // 2^-1000 and 2^1000 are both exact, and so are products with them
  if (greatest == 0) return 0;
  if (std::isinf(greatest)) return -kMost;
  const int exponent = std::ilogb(greatest);
  if (std::abs(exponent) <= kOrdinary) return 0;
  return std::clamp(-exponent, -kMost, kMost);
}

Sums merge(const Sums& left, const Sums& right) {
  // The left part has the lower indices, so it wins ties.
  const Sums& top = right.max_abs > left.max_abs ? right : left;
  return {merge(left.target, right.target),
          merge(left.reference, right.reference),
          left.dot + right.dot,
          left.abs + right.abs,
          left.squares + right.squares,
          top.max_abs,
          top.max_abs_index,
          left.step_squares + right.step_squares,
          std::max(left.max_steps, right.max_steps),
          left.relative + right.relative,
          left.great_relative + right.great_relative};
}

SecondSums merge(const SecondSums& left, const SecondSums& right) {
  return {left.robust + right.robust, left.bulk_reference_squares + right.bulk_reference_squares,
          left.bulk_error_squares + right.bulk_error_squares,
          std::max(left.bulk_max_abs, right.bulk_max_abs), left.bulk_count + right.bulk_count};
}

Terms::Terms(std::size_t capacity)
    : error(capacity), target_(capacity), reference_(capacity), product_(capacity) {}

void Terms::derive(Elements& elements, const Scaling& scaling) {
  const std::size_t n = elements.size();
  target = side(elements.target(), n, std::ldexp(1.0, scaling.target), target_);
  reference = side(elements.reference(), n, std::ldexp(1.0, scaling.reference), reference_);
  derive_product(elements, scaling);
  derive_error(elements, scaling.difference);
}

const double* Terms::side(const Values& values, std::size_t count, double factor,
                          std::vector<double>& buffer) {
  if (values.complex()) {
    for (std::size_t i = 0; i < count; ++i) {
      buffer[i] = std::hypot(values.re[i] * factor, values.im[i] * factor);
    }
    return buffer.data();
  }
  if (factor == 1) return values.re.data();
  for (std::size_t i = 0; i < count; ++i) buffer[i] = values.re[i] * factor;
  return buffer.data();
}

void Terms::derive_product(Elements& elements, const Scaling& scaling) {
  product = nullptr;
  if (!elements.complex()) return;
  // One factor of the pair is applied to each side's component, as for real numbers.
  const double ft = std::ldexp(1.0, scaling.target);
  const double fr = std::ldexp(1.0, scaling.reference);
  const Values& t = elements.target();
  const Values& r = elements.reference();
  const bool both = t.complex() && r.complex();
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const double imaginary = both ? (t.im[i] * ft) * (r.im[i] * fr) : 0.0;
    product_[i] = (t.re[i] * ft) * (r.re[i] * fr) + imaginary;
  }
  product = product_.data();
}

void Terms::derive_error(Elements& elements, int exponent) {
  const double factor = std::ldexp(1.0, exponent);
  const std::size_t n = elements.size();
  if (elements.complex()) {
    for (std::size_t i = 0; i < n; ++i) {
      error[i] =
          std::hypot(elements.real_difference(i, factor), elements.imaginary_difference(i, factor));
    }
  } else if (elements.wide() || exponent != 0) {
    for (std::size_t i = 0; i < n; ++i) error[i] = std::abs(elements.real_difference(i, factor));
  } else {
    const double* t = elements.target().re.data();
    const double* r = elements.reference().re.data();
    for (std::size_t i = 0; i < n; ++i) error[i] = std::abs(t[i] - r[i]);
  }
}

Sums sum_chunk(Elements& elements, const Terms& terms, const Scaling& scaling,
               const double* steps) {
  const std::size_t n = elements.size();
  const double* t = terms.target;
  const double* r = terms.reference;
  const double* error = terms.error.data();

  Sums sums;
  sums.target = sum_side(t, n, elements.target(), std::ldexp(1.0, scaling.target));
  sums.reference = sum_side(r, n, elements.reference(), std::ldexp(1.0, scaling.reference));
  if (const double* product = terms.product) {
    sums.dot = lane_sum(n, [=](std::size_t i) { return product[i]; });
  } else {
    sums.dot = lane_sum(n, [=](std::size_t i) { return t[i] * r[i]; });
  }
  sums.abs = lane_sum(n, [=](std::size_t i) { return error[i]; });
  sums.squares = lane_sum(n, [=](std::size_t i) { return error[i] * error[i]; });
  if (n > 0) {
    sums.max_abs = greatest_of(error, n);
    const auto first = std::find(error, error + n, sums.max_abs) - error;
    sums.max_abs_index = elements.logical_index(static_cast<std::size_t>(first));
  }
  if (steps) {
    const auto in_steps = [=, shift = scaling.steps - scaling.difference](std::size_t i) {
      const double ratio = error[i] == 0 ? 0.0 : error[i] / steps[i];
      return shift == 0 ? ratio : std::ldexp(ratio, shift);
    };
    sums.step_squares = lane_sum(n, [=](std::size_t i) { return in_steps(i) * in_steps(i); });
    for (std::size_t i = 0; i < n; ++i) sums.max_steps = std::max(sums.max_steps, in_steps(i));
  }
  return sums;
}

}  // namespace syncpoint
