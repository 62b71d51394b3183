// What the kernel is asked about one pair, and what it answers.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "operand.hpp"

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

struct SideResult {
  std::int64_t nan = 0;
  std::int64_t inf = 0;
  std::int64_t zero = 0;
  std::int64_t overflow = 0;
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  Scaled sum;
  Scaled sum_squares;
  Scaled sum_squared_deviations;
};

struct Result {
  std::int64_t count = 0;
  std::int64_t compared = 0;
  std::int64_t masked = 0;
  std::int64_t mismatched = 0;
  std::int64_t equal = 0;
  SideResult target;
  SideResult reference;

  Scaled peak;
  Scaled sum_abs;
  Scaled sum_squares;
  Scaled max_abs;
  std::int64_t max_abs_index = -1;
  Scaled dot;

  std::int64_t relative_count = 0;      // compared elements whose reference is not zero
  std::int64_t relative_undefined = 0;  // reference zero, difference not
  Scaled sum_relative;
  double max_relative = 0;
  Scaled sum_relative_robust;
  std::int64_t within_1e3 = 0;
  std::int64_t within_5e3 = 0;
  std::int64_t close = 0;

  double max_ulp = 0;
  Scaled sum_squared_steps;
  std::vector<std::pair<int, std::int64_t>> error_histogram;
};

}  // namespace syncpoint
