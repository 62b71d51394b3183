// Sums that NumPy finds of float32 arrays, to the bit, without making such arrays. The reports of
// other tools print them to six decimals, and whoever compares such a report with ours expects the
// same digits; no verdict rests on them.
//
// NumPy adds a contiguous array as a binary tree: halves, the left one rounded down to a multiple
// of 8, until at most 128 elements are left; those in eight lanes, which are added in pairs, and
// what is beyond a multiple of 8 one by one. A cast within the sum comes before, 8192 elements at
// a time, whose sums are added one after the other.
#pragma once

#include <cstdint>

#include "source.hpp"

namespace syncpoint {

// x is the target and y the reference, cast to float; e = |x - y|; r = |x / y - 1| where |y| is
// above 2^-52, else 0. Extrema ignore NaN: there is one where the sum of squares, errors or ratios
// is NaN.
struct CompatFirst {
  float x_squares = 0;
  float y_squares = 0;
  float errors = 0;
  float error_squares = 0;
  float ratios = 0;
  float greatest_error = 0;
  float greatest_ratio = 0;
  float x_min = 0;
  float x_max = 0;
  float y_min = 0;
  float y_max = 0;
  double x_total = 0;
  double y_total = 0;
};

// What the first look at a side yields for the second.
struct CompatScale {
  float norm = 1;
  float low = 0;
  float range = 1;
  double mean = 0;
};

// Of the products of both sides, each divided by its norm; of the squares of the deviations from
// the mean; and of the shares: (x - low) / range, at least 2^-23.
struct CompatSecond {
  float cosine = 0;
  float x_shares = 0;
  float y_shares = 0;
  double x_deviations = 0;
  double y_deviations = 0;
};

struct CompatShare {
  float low = 0;
  float range = 1;
  float sum = 1;  // of all shares of the side
};

// Of p * log(p / q), p and q being the shares over their sums, which must be finite: with our own
// logarithm of the float p / q; and of the magnitudes.
struct CompatDivergence {
  double sum = 0;
  double magnitude = 0;
};

struct CompatKernel {
  const char* name;
  CompatFirst (*first)(const Operand& target, const Operand& reference);
  CompatSecond (*second)(const Operand& target, const Operand& reference, const CompatScale& x,
                         const CompatScale& y);
  // p and p / q of elements [begin, begin + count).
  void (*quotients)(const Operand& target, const Operand& reference, const CompatShare& x,
                    const CompatShare& y, std::int64_t begin, std::int64_t count, float* p,
                    float* quotient);
  CompatDivergence (*divergence)(const Operand& target, const Operand& reference,
                                 const CompatShare& x, const CompatShare& y);
  // Of `term` for each element that is not 0 on both sides, in double precision.
  double (*both)(const Operand& target, const Operand& reference, double term);
};

extern const CompatKernel kBaselineCompat;
#ifdef SYNCPOINT_HAS_AVX2
extern const CompatKernel kAvx2Compat;
#endif

// The kernel of the instruction set in use.
const CompatKernel& compat_kernel();

}  // namespace syncpoint
