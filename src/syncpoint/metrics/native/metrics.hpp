// The metrics of one pair, made from its sums and counts.
//
// Sums come as value * 2^exponent where squares would leave the range of a double; every ratio and
// logarithm is formed before that power is applied, so it stays right even where the sum itself
// cannot be written.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

#include "pair.hpp"

namespace syncpoint {

using Number = std::optional<double>;  // none: n/a

// Mean, deviation of the whole population (n, not n - 1), extrema and norm; none without elements.
struct SideMetrics {
  Number mean, std, min, max, l2;
};

SideMetrics side_metrics(const SideSumsResult& sums, const SideTally& tally, std::int64_t count);

struct Metrics {
  Number exact;
  Number psnr, sqnr, mae, mse, rmse, max_abs, rel_l2, euclid, cosine, norm_ratio, peak;
  SideMetrics target, reference;
  Number max_rel, mean_rel, acc_rel, mean_rel_robust, within_1e3, within_5e3, allclose;
  Number max_ulp, lsb;
  Number outliers_from, bulk_sqnr, bulk_rmse, bulk_max_abs;
};

Metrics derive_metrics(const Result& result, const Pair& pair, Tier tier);

}  // namespace syncpoint
