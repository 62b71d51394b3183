// What the kernel is asked about one pair, and what it answers.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "operand.hpp"
#include "tally.hpp"

namespace syncpoint {

// In which units `max_ulp` counts.
enum class UlpUnit {
  none,      // it has no meaning here
  integer,   // both sides are integers: the distance itself
  ordered,   // both sides are f64: distance of their bit patterns taken as ordered integers
  fraction,  // the coarser side is a float of `mantissa` bits; the other may lie between its values
};

// Which side's quantization step `lsb` divides by.
enum class StepOf { none, target, reference };

// How much is measured; each includes the ones before it.
enum class Tier {
  base,      // sums, extrema, counts
  relative,  // relative errors and allclose
  all,       // units in the last place and the histogram of the error
};

struct Pair {
  Operand target;
  Operand reference;
  double rtol = 0;
  double atol = 0;
  double mask_rtol = 0;       // how near a lone masked value must be to the other side
  double overflow_limit = 0;  // greatest finite value of the target's type; infinity: not counted
  UlpUnit ulp_unit = UlpUnit::none;
  int mantissa = 0;
  int min_exponent = 0;
  StepOf step_of = StepOf::none;
};

// A number too great or too small for a double: value * 2^exponent.
struct Scaled {
  double value = 0;
  int exponent = 0;
};

struct SideSumsResult {
  Scaled sum;
  Scaled sum_squares;
  Scaled sum_squared_deviations;
};

// Outliers are at most one in so many of the elements that are not zero; more of them are no
// outliers.
inline constexpr std::int64_t kFewOutliers = 32;

struct Result {
  std::string failure;  // not empty: this pair could not be read, and the rest means nothing
  std::int64_t count = 0;
  Counts counts;
  SideSumsResult target;
  SideSumsResult reference;

  Scaled peak;
  Scaled sum_abs;
  Scaled sum_squares;
  Scaled max_abs;
  std::int64_t max_abs_index = -1;
  Scaled dot;
  Scaled sum_relative;
  bool has_robust = false;  // whether the next one was measured
  Scaled sum_relative_robust;
  Scaled sum_squared_steps;
  std::int64_t outliers = -1;  // -1: not counted
  bool has_bulk = false;       // whether the next ones were measured
  Scaled bulk_reference_squares;
  Scaled bulk_error_squares;
  Scaled bulk_max_abs;
  Scaled border;  // from this |r| on an element is an outlier; known where `outliers` is
  std::vector<std::pair<int, std::int64_t>> error_histogram;
};

}  // namespace syncpoint
