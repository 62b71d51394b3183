// The sums of squares and their kin over the compared elements.
//
// Squares leave the range of a double long before their elements do, so values and differences are
// first multiplied by powers of two where their greatest magnitude asks for it.
#pragma once

#include <vector>

#include "elements.hpp"
#include "summation.hpp"

namespace syncpoint {

// Binary exponents by which each quantity is multiplied before it is squared; mostly all 0.
struct Scaling {
  int target = 0;
  int reference = 0;
  int difference = 0;
  int steps = 0;

  bool any() const { return target || reference || difference || steps; }
};

// The exponent that brings `greatest` near 1; 0 while its square, and the square of 1e-16 of it,
// are ordinary doubles.
int scaling_for(double greatest);

struct SideSums {
  double sum = 0;
  double squares = 0;
  double greatest = 0;  // magnitude
  Moments moments;
};

struct Sums {
  SideSums target;
  SideSums reference;
  double dot = 0;
  double abs = 0;
  double squares = 0;
  double max_abs = -1;  // -1: nothing was compared
  std::int64_t max_abs_index = -1;
  double step_squares = 0;
  double max_steps = 0;
  double relative = 0;        // quotients |d| / |r| that are not great
  double great_relative = 0;  // the others, times 2^-kGreatExponent
};

// Quotients beyond kGreatQuotient are summed apart and scaled down: their sum may leave the range
// of a double where their mean does not.
inline constexpr double kGreatQuotient = 0x1p+512;
inline constexpr int kGreatExponent = 64;
inline constexpr double kGreatScale = 0x1p-64;

Sums merge(const Sums& left, const Sums& right);

// What a second look at the data asks for.
struct SecondLook {
  bool robust = false;
  double floor = 0;  // under |r| in the robust relative error
  bool bulk = false;
  double border = 0;  // from this |r| on an element is an outlier and not of the bulk
};

struct SecondSums {
  double robust = 0;  // of |d| / max(|r|, floor)
  double bulk_reference_squares = 0;
  double bulk_error_squares = 0;
  double bulk_max_abs = 0;
  std::int64_t bulk_count = 0;
};

SecondSums merge(const SecondSums& left, const SecondSums& right);

// What one chunk's elements look like once scaled: plain arrays over the compared elements. For
// complex elements target and reference are moduli.
class Terms {
 public:
  explicit Terms(std::size_t capacity);

  void derive(Elements& elements, const Scaling& scaling);

  const double* target = nullptr;
  const double* reference = nullptr;
  const double* product = nullptr;  // Re(t conj r); null where it is target * reference
  std::vector<double> error;        // |d|

 private:
  const double* side(const Values& values, std::size_t count, double factor,
                     std::vector<double>& buffer);
  void derive_product(Elements& elements, const Scaling& scaling);
  void derive_error(Elements& elements, int exponent);

  std::vector<double> target_;
  std::vector<double> reference_;
  std::vector<double> product_;
};

// The sums of one chunk. `steps`: quantization steps, or null.
Sums sum_chunk(Elements& elements, const Terms& terms, const Scaling& scaling, const double* steps);

}  // namespace syncpoint
