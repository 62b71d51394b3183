#include "metrics.hpp"

#include <algorithm>
#include <limits>

namespace syncpoint {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The root of square * 2^exponent, whose exponent is even.
double root(double square, int exponent) { return std::ldexp(std::sqrt(square), exponent / 2); }

// 10 log10 of signal / (squared_error / count); no signal is -inf, no error +inf.
double decibels(const Scaled& signal, const Scaled& squared_error, double count) {
  if (squared_error.value == 0) return kInfinity;
  if (signal.value == 0) return -kInfinity;
  const double ratio = std::log10(signal.value) - std::log10(squared_error.value / count);
  return 10 * (ratio + (signal.exponent - squared_error.exponent) * std::log10(2.0));
}

void derive_errors(const Result& result, Metrics& metrics) {
  const auto n = static_cast<double>(result.counts.compared);
  const Scaled& squares = result.sum_squares;
  const Scaled& t_squares = result.target.sum_squares;
  const Scaled& r_squares = result.reference.sum_squares;
  const double t_norm = std::sqrt(t_squares.value);
  const double r_norm = std::sqrt(r_squares.value);
  const Scaled peak_square{result.peak.value * result.peak.value, 2 * result.peak.exponent};

  metrics.psnr = decibels(peak_square, squares, n);
  metrics.sqnr = decibels(r_squares, squares, 1);
  metrics.mae = std::ldexp(result.sum_abs.value / n, result.sum_abs.exponent);
  metrics.mse = std::ldexp(squares.value / n, squares.exponent);
  metrics.rmse = root(squares.value / n, squares.exponent);
  metrics.max_abs = std::ldexp(result.max_abs.value, result.max_abs.exponent);
  metrics.euclid = root(squares.value, squares.exponent);
  metrics.peak = std::ldexp(result.peak.value, result.peak.exponent);
  if (r_norm == 0) return;
  metrics.rel_l2 =
      std::ldexp(std::sqrt(squares.value) / r_norm, (squares.exponent - r_squares.exponent) / 2);
  metrics.norm_ratio = std::ldexp(t_norm / r_norm, (t_squares.exponent - r_squares.exponent) / 2);
  // One element has no direction.
  if (n > 1 && t_norm != 0) {
    metrics.cosine = std::clamp(result.dot.value / t_norm / r_norm, -1.0, 1.0);
  }
}

void derive_relative(const Result& result, Metrics& metrics) {
  const Counts& counts = result.counts;
  const auto judged = static_cast<double>(counts.compared + counts.mismatched);
  const auto rated = static_cast<double>(counts.relative_count + counts.mismatched);
  if (judged > 0) metrics.allclose = static_cast<double>(counts.close) / judged;
  if (counts.relative_count == 0) return;
  const auto n = static_cast<double>(counts.relative_count);
  const Scaled& sum = result.sum_relative;
  metrics.max_rel = counts.max_relative;
  metrics.mean_rel = std::ldexp(sum.value / n, sum.exponent);
  metrics.acc_rel = std::ldexp(sum.value, sum.exponent);
  metrics.within_1e3 = static_cast<double>(counts.within_1e3) / rated;
  metrics.within_5e3 = static_cast<double>(counts.within_5e3) / rated;
  if (result.has_robust) {
    const Scaled& robust = result.sum_relative_robust;
    metrics.mean_rel_robust =
        std::ldexp(robust.value / static_cast<double>(counts.compared), robust.exponent);
  }
}

// Without the outliers, where they are few enough to be that.
void derive_bulk(const Result& result, Metrics& metrics) {
  const Counts& counts = result.counts;
  if (result.outliers >= 0) {
    metrics.outliers_from = std::ldexp(result.border.value, result.border.exponent);
  }
  if (!result.has_bulk || result.outliers * kFewOutliers > counts.relative_count) return;
  const auto n = static_cast<double>(counts.compared - result.outliers);
  const Scaled& squares = result.bulk_error_squares;
  metrics.bulk_sqnr = decibels(result.bulk_reference_squares, squares, 1);
  metrics.bulk_rmse = root(squares.value / n, squares.exponent);
  metrics.bulk_max_abs = std::ldexp(result.bulk_max_abs.value, result.bulk_max_abs.exponent);
}

}  // namespace

SideMetrics side_metrics(const SideSumsResult& sums, const SideTally& tally, std::int64_t count) {
  if (count == 0) return {};
  const auto n = static_cast<double>(count);
  const double mean = std::ldexp(sums.sum.value / n, sums.sum.exponent);
  const Scaled& spread = sums.sum_squared_deviations;
  // Rounding must not carry the mean of equal numbers beyond them. Adding 0 makes -0 a 0.
  return {std::min(std::max(mean, tally.min), tally.max) + 0.0,
          root(std::max(spread.value, 0.0) / n, spread.exponent), tally.min + 0.0, tally.max + 0.0,
          root(sums.sum_squares.value, sums.sum_squares.exponent)};
}

Metrics derive_metrics(const Result& result, const Pair& pair, Tier tier) {
  const Counts& counts = result.counts;
  Metrics metrics;
  if (result.count) {
    metrics.exact = static_cast<double>(counts.equal) / static_cast<double>(result.count);
  }
  metrics.target = side_metrics(result.target, counts.target, counts.compared);
  metrics.reference = side_metrics(result.reference, counts.reference, counts.compared);
  if (counts.compared) derive_errors(result, metrics);
  if (tier != Tier::base) derive_relative(result, metrics);
  derive_bulk(result, metrics);
  if (counts.compared && tier == Tier::all) {
    if (pair.ulp_unit != UlpUnit::none) metrics.max_ulp = counts.max_ulp;
    if (pair.step_of != StepOf::none) {
      const Scaled& steps = result.sum_squared_steps;
      metrics.lsb = root(steps.value / static_cast<double>(counts.compared), steps.exponent);
    }
  }
  return metrics;
}

}  // namespace syncpoint
