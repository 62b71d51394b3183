// Everything about the compared elements that is not a sum of squares: extrema, overflow, relative
// errors, units in the last place and the histogram of the error.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "elements.hpp"
#include "summation.hpp"
#include "sums.hpp"

namespace syncpoint {

// Counts errors by floor(log2 |d|), zero left out.
class ErrorHistogram {
 public:
  void add(const double* error, std::size_t count);
  std::vector<std::pair<int, std::int64_t>> bins() const;

 private:
  static constexpr int kLeast = -1074;       // the least subnormal double
  static constexpr int kGreatest = 1024;     // a difference of two doubles that overflowed
  std::array<std::int64_t, 2048> normal_{};  // by the biased exponent
  std::array<std::int64_t, 52> subnormal_{};
};

class Survey {
 public:
  explicit Survey(const Pair& pair) : pair_(pair), relative_(chunk_of(pair)) {}

  // `terms` must not be scaled.
  void add(Elements& elements, const Terms& terms, Result& result);
  void finish(Result& result) const;

 private:
  void add_side(const double* values, std::size_t count, SideResult& side) const;
  void add_relative(Elements& elements, const Terms& terms, Result& result);
  void correct_extremes(Elements& elements, const Terms& terms);
  void add_ulp(Elements& elements, const Terms& terms, Result& result) const;

  const Pair& pair_;
  Tree<double> relative_sum_;
  Tree<double> great_relative_sum_;
  std::vector<double> relative_;
  ErrorHistogram histogram_;
};

}  // namespace syncpoint
