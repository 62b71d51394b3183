// Everything about the compared elements that is not a sum of squares: extrema, overflow, relative
// errors, units in the last place and the histogram of the error.
#pragma once

#include <vector>

#include "elements.hpp"
#include "sums.hpp"
#include "tally.hpp"

namespace syncpoint {

class Survey {
 public:
  Survey(const Pair& pair, Tier tier) : pair_(pair), tier_(tier), relative_(chunk_of(pair)) {}

  // `terms` must not be scaled. Sums of quotients go to `sums`, everything else to `tally`.
  void add(Elements& elements, const Terms& terms, Sums& sums, Tally& tally);

 private:
  void add_side(const double* values, std::size_t count, SideTally& side) const;
  void add_relative(Elements& elements, const Terms& terms, Sums& sums, Counts& counts);
  void correct_extremes(Elements& elements, const Terms& terms);
  void add_ulp(Elements& elements, const Terms& terms, Counts& counts) const;

  const Pair& pair_;
  Tier tier_;
  std::vector<double> relative_;
};

}  // namespace syncpoint
