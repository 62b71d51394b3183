#include "survey.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "summation.hpp"
#include "ulp.hpp"

namespace syncpoint {
namespace {

// The magnitudes between which a difference does not overflow and a modulus keeps all its bits.
constexpr double kLeastPlain = 0x1p-960;
constexpr double kGreatestPlain = std::numeric_limits<double>::max();

double factor_into_range(double magnitude) {
  if (magnitude > kGreatestPlain) return 0x1p-3;
  return magnitude > 0 && magnitude < kLeastPlain ? 0x1p+100 : 1.0;
}

// |d| / |r| of one element, either of which may be out of that range.
double relative_of_extreme(Elements& elements, std::size_t i, double error, double size) {
  const Values& r = elements.reference();
  const double at = factor_into_range(error);
  const double below = factor_into_range(size);
  const double exact_error =
      std::hypot(elements.real_difference(i, at), elements.imaginary_difference(i, at));
  const double exact_size = std::hypot(r.re[i] * below, r.complex() ? r.im[i] * below : 0.0);
  return exact_error / exact_size * (below / at);
}

double greatest_ulp(const Values& target, const Values& reference, std::size_t count,
                    FloatFormat format) {
  const auto low = [](const Values& v, std::size_t i) { return v.wide ? v.lo[i] : 0.0; };
  const auto imaginary = [](const Values& v, std::size_t i) { return v.complex() ? v.im[i] : 0.0; };
  double greatest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Ordinal t = ordinal(target.re[i], low(target, i), format);
    const Ordinal r = ordinal(reference.re[i], low(reference, i), format);
    greatest = std::max(greatest, ulp_distance(t, r, format));
  }
  if (!target.complex() && !reference.complex()) return greatest;
  for (std::size_t i = 0; i < count; ++i) {
    const Ordinal t = ordinal(imaginary(target, i), 0, format);
    const Ordinal r = ordinal(imaginary(reference, i), 0, format);
    greatest = std::max(greatest, ulp_distance(t, r, format));
  }
  return greatest;
}

double greatest_ordered(const std::vector<double>& target, const std::vector<double>& reference,
                        std::size_t count) {
  std::uint64_t greatest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    greatest = std::max(greatest, ordered_distance(target[i], reference[i]));
  }
  return static_cast<double>(greatest);
}

// floor(log2 x) of a positive double, infinity included.
int binade(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const int exponent = static_cast<int>(bits >> 52);
  return exponent ? exponent - 1023 : std::bit_width(bits) - 1 + ErrorHistogram::kLeast;
}

}  // namespace

void Survey::add(Elements& elements, const Terms& terms, Sums& sums, Tally& tally) {
  const std::size_t n = elements.size();
  add_side(terms.target, n, tally.counts.target);
  add_side(terms.reference, n, tally.counts.reference);
  if (tier_ == Tier::base) return;
  add_relative(elements, terms, sums, tally.counts);
  if (tier_ == Tier::relative) return;
  add_ulp(elements, terms, tally.counts);
  for (std::size_t i = 0; i < n; ++i) {
    if (terms.error[i] != 0) tally.errors.add(binade(terms.error[i]), 1);
  }
  // As floats have it, so that a tensor means the same in every type.
  constexpr int kLeast = -127;
  for (std::size_t i = 0; i < n; ++i) {
    const double size = std::abs(terms.reference[i]);
    if (size > 0) tally.counts.reference_exponents += std::max(binade(size), kLeast) - kLeast;
  }
}

void Survey::add_side(const double* values, std::size_t count, SideTally& side) const {
  constexpr double kLowest = -std::numeric_limits<double>::infinity();
  const double least = -lane_max(count, kLowest, [=](std::size_t i) { return -values[i]; });
  const double greatest = lane_max(count, kLowest, [=](std::size_t i) { return values[i]; });
  side.min = std::min(side.min, least);
  side.max = std::max(side.max, greatest);
  const double limit = pair_.overflow_limit;
  if (greatest < limit && least > -limit) return;
  for (std::size_t i = 0; i < count; ++i) side.overflow += std::abs(values[i]) >= limit;
}

void Survey::add_relative(Elements& elements, const Terms& terms, Sums& sums, Counts& counts) {
  const std::size_t n = elements.size();
  const double* reference = terms.reference;
  const double* error = terms.error.data();
  double* relative = relative_.data();

  for (std::size_t i = 0; i < n; ++i) {
    const double size = std::abs(reference[i]);
    const double quotient = error[i] / size;
    relative[i] = size > 0 ? quotient : 0.0;
  }
  correct_extremes(elements, terms);

  const auto below = [=](double limit) {
    return [=](std::size_t i) { return (reference[i] != 0) & (relative[i] < limit); };
  };
  const auto close = [=, rtol = pair_.rtol, atol = pair_.atol](std::size_t i) {
    return error[i] <= atol + rtol * std::abs(reference[i]);
  };
  const auto defined = [=](std::size_t i) { return reference[i] != 0; };
  const auto undefined = [=](std::size_t i) { return (reference[i] == 0) & (error[i] != 0); };
  const double greatest = lane_max(n, 0.0, [=](std::size_t i) { return relative[i]; });
  counts.relative_count += lane_count(n, defined);
  counts.relative_undefined += lane_count(n, undefined);
  counts.within_1e3 += lane_count(n, below(1e-3));
  counts.within_5e3 += lane_count(n, below(5e-3));
  counts.close += lane_count(n, close);
  counts.max_relative = std::max(counts.max_relative, greatest);

  const auto plain = [=](std::size_t i) {
    return relative[i] <= kGreatQuotient ? relative[i] : 0.0;
  };
  const auto great = [=](std::size_t i) {
    return relative[i] > kGreatQuotient ? relative[i] * kGreatScale : 0.0;
  };
  sums.relative = lane_sum(n, plain);
  if (greatest > kGreatQuotient) sums.great_relative = lane_sum(n, great);
}

void Survey::correct_extremes(Elements& elements, const Terms& terms) {
  const std::size_t n = elements.size();
  const double* reference = terms.reference;
  const double* error = terms.error.data();
  const auto extent = [=](std::size_t i) {
    const double size = std::abs(reference[i]);
    return size > error[i] ? size : error[i];
  };
  // Only a modulus is rounded to the few bits of a subnormal; real differences are exact there.
  if (!elements.complex() && lane_max(n, 0.0, extent) <= kGreatestPlain) return;
  for (std::size_t i = 0; i < n; ++i) {
    const double size = std::abs(reference[i]);
    if (size > 0 && (factor_into_range(size) != 1 || factor_into_range(error[i]) != 1)) {
      relative_[i] = relative_of_extreme(elements, i, error[i], size);
    }
  }
}

void Survey::add_ulp(Elements& elements, const Terms& terms, Counts& counts) const {
  const Values& t = elements.target();
  const Values& r = elements.reference();
  const std::size_t n = elements.size();
  double greatest = 0;
  switch (pair_.ulp_unit) {
    case UlpUnit::none:
      return;
    case UlpUnit::integer:
      greatest = lane_max(n, 0.0, [&](std::size_t i) { return terms.error[i]; });
      break;
    case UlpUnit::ordered:
      greatest = greatest_ordered(t.re, r.re, n);
      if (elements.complex()) {
        const std::vector<double> zeros(n);
        greatest = std::max(
            greatest, greatest_ordered(t.complex() ? t.im : zeros, r.complex() ? r.im : zeros, n));
      }
      break;
    case UlpUnit::fraction:
      greatest = greatest_ulp(t, r, n, {pair_.mantissa, pair_.min_exponent});
      break;
  }
  counts.max_ulp = std::max(counts.max_ulp, greatest);
}

}  // namespace syncpoint
