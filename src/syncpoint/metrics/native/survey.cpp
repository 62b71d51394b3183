#include "survey.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ulp.hpp"

namespace syncpoint {
namespace {

// Quotients beyond this are summed apart and scaled down: their sum may leave the range of a double
// where their mean does not.
constexpr double kGreatQuotient = 0x1p+512;
constexpr int kGreatExponent = 64;
constexpr double kGreatScale = 0x1p-64;

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

}  // namespace

void ErrorHistogram::add(const double* error, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<std::uint64_t>(error[i]);
    const std::size_t exponent = bits >> 52;
    if (exponent != 0) {
      ++normal_[exponent];
    } else if (bits != 0) {
      ++subnormal_[static_cast<std::size_t>(std::bit_width(bits) - 1)];
    }
  }
}

std::vector<std::pair<int, std::int64_t>> ErrorHistogram::bins() const {
  std::vector<std::pair<int, std::int64_t>> bins;
  for (std::size_t i = 0; i < subnormal_.size(); ++i) {
    if (subnormal_[i]) bins.emplace_back(kLeast + static_cast<int>(i), subnormal_[i]);
  }
  for (std::size_t i = 1; i < normal_.size(); ++i) {
    if (normal_[i]) bins.emplace_back(static_cast<int>(i) - (2047 - kGreatest), normal_[i]);
  }
  return bins;
}

void Survey::add(Elements& elements, const Terms& terms, Result& result) {
  const std::size_t n = elements.size();
  add_side(terms.target, n, result.target);
  add_side(terms.reference, n, result.reference);
  add_relative(elements, terms, result);
  add_ulp(elements, terms, result);
  histogram_.add(terms.error.data(), n);
}

void Survey::finish(Result& result) const {
  const double plain = relative_sum_.total();
  const double great = great_relative_sum_.total();
  result.sum_relative =
      great > 0 ? Scaled{great + plain * kGreatScale, kGreatExponent} : Scaled{plain, 0};
  result.error_histogram = histogram_.bins();
}

void Survey::add_side(const double* values, std::size_t count, SideResult& side) const {
  constexpr double kLowest = -std::numeric_limits<double>::infinity();
  const double least = -lane_max(count, kLowest, [=](std::size_t i) { return -values[i]; });
  const double greatest = lane_max(count, kLowest, [=](std::size_t i) { return values[i]; });
  side.min = std::min(side.min, least);
  side.max = std::max(side.max, greatest);
  const double limit = pair_.overflow_limit;
  if (greatest < limit && least > -limit) return;
  for (std::size_t i = 0; i < count; ++i) side.overflow += std::abs(values[i]) >= limit;
}

void Survey::add_relative(Elements& elements, const Terms& terms, Result& result) {
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
  result.relative_count += lane_count(n, defined);
  result.relative_undefined += lane_count(n, undefined);
  result.within_1e3 += lane_count(n, below(1e-3));
  result.within_5e3 += lane_count(n, below(5e-3));
  result.close += lane_count(n, close);
  result.max_relative = std::max(result.max_relative, greatest);

  const auto plain = [=](std::size_t i) {
    return relative[i] <= kGreatQuotient ? relative[i] : 0.0;
  };
  const auto great = [=](std::size_t i) {
    return relative[i] > kGreatQuotient ? relative[i] * kGreatScale : 0.0;
  };
  relative_sum_.push(lane_sum(n, plain));
  great_relative_sum_.push(greatest > kGreatQuotient ? lane_sum(n, great) : 0.0);
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

void Survey::add_ulp(Elements& elements, const Terms& terms, Result& result) const {
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
  result.max_ulp = std::max(result.max_ulp, greatest);
}

}  // namespace syncpoint
