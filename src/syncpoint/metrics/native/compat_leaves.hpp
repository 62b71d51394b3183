// The innermost loops of compat.hpp: up to 128 elements of both sides, eight at a time in eight
// lanes. A leaf's last elements, fewer than eight, are added one by one after the lanes; the floats
// behind them may be read. Lanes start at 0 where NumPy starts at the first elements: that matters
// only to the sign of a sum that is 0, which is lost when NumPy adds the whole to 0 at the end.
#pragma once

#include <algorithm>

#include "block_loops.hpp"
#include "compat.hpp"
#include "compat_division.hpp"
#include "compat_vectors.hpp"

namespace syncpoint::SYNCPOINT_ISA {

// --- the first look ---

struct FirstSums {
  float x_squares = 0;
  float y_squares = 0;
  float errors = 0;
  float error_squares = 0;
  float ratios = 0;
};
SYNCPOINT_INLINE FirstSums operator+(const FirstSums& a, const FirstSums& b) {
  return {a.x_squares + b.x_squares, a.y_squares + b.y_squares, a.errors + b.errors,
          a.error_squares + b.error_squares, a.ratios + b.ratios};
}

struct Greatest {
  F8 error = {};
  F8 ratio = {};
};

struct FirstTerms {
  F8 x_square;
  F8 y_square;
  F8 error;
  F8 error_square;
  F8 ratio;
};
SYNCPOINT_INLINE FirstTerms first_terms(const F8& x, const F8& y) {
  constexpr float kEpsilon = 0x1p-52f;
  const F8 difference = x - y;
  const F8 ratio = magnitude(y) > kEpsilon ? magnitude(x / y - 1.0f) : F8{};
  return {x * x, y * y, magnitude(difference), difference * difference, ratio};
}

SYNCPOINT_HOT inline FirstSums first_leaf(const float* x, const float* y, std::size_t count,
                                          Greatest& greatest) {
  F8 x_squares = {};
  F8 y_squares = {};
  F8 errors = {};
  F8 error_squares = {};
  F8 ratios = {};
  F8 error = {};
  F8 ratio = {};
  std::size_t i = 0;
  for (; i + kEight <= count; i += kEight) {
    const FirstTerms found = first_terms(load_eight(x + i), load_eight(y + i));
    x_squares += found.x_square;
    y_squares += found.y_square;
    errors += found.error;
    error_squares += found.error_square;
    ratios += found.ratio;
    error = greater(found.error, error);
    ratio = greater(found.ratio, ratio);
  }
  FirstSums sum{folded(x_squares), folded(y_squares), folded(errors), folded(error_squares),
                folded(ratios)};
  if (i < count) {
    const FirstTerms found = first_terms(load_eight(x + i), load_eight(y + i));
    for (std::size_t k = 0; k < count - i; ++k) {
      sum = sum + FirstSums{found.x_square[k], found.y_square[k], found.error[k],
                            found.error_square[k], found.ratio[k]};
      if (found.error[k] > error[0]) error[0] = found.error[k];
      if (found.ratio[k] > ratio[0]) ratio[0] = found.ratio[k];
    }
  }
  greatest.error = greater(error, greatest.error);
  greatest.ratio = greater(ratio, greatest.ratio);
  return sum;
}

// Of one side; NaN is ignored.
struct Extrema {
  F8 least = F8{} + __builtin_inff();
  F8 greatest = F8{} - __builtin_inff();

  SYNCPOINT_INLINE void look_at(const float* x, std::size_t count) {
    F8 low = least;
    F8 high = greatest;
    std::size_t i = 0;
    for (; i + kEight <= count; i += kEight) {
      low = lesser(load_eight(x + i), low);
      high = greater(load_eight(x + i), high);
    }
    for (; i < count; ++i) {
      const float one = float_after(x, i);
      if (one < low[0]) low[0] = one;
      if (one > high[0]) high[0] = one;
    }
    least = low;
    greatest = high;
  }
};

inline float least_of(const F8& x) {
  float least = x[0];
  for (std::size_t k = 1; k < kEight; ++k) least = std::min(least, x[k]);
  return least;
}
inline float greatest_of(const F8& x) {
  float most = x[0];
  for (std::size_t k = 1; k < kEight; ++k) most = std::max(most, x[k]);
  return most;
}

struct CastSums {
  double x = 0;
  double y = 0;
};
SYNCPOINT_INLINE CastSums operator+(const CastSums& a, const CastSums& b) {
  return {a.x + b.x, a.y + b.y};
}

SYNCPOINT_HOT inline CastSums cast_leaf(const float* x, const float* y, std::size_t count) {
  D8 x_total;
  D8 y_total;
  std::size_t i = 0;
  for (; i + kEight <= count; i += kEight) {
    x_total += wide(load_eight(x + i));
    y_total += wide(load_eight(y + i));
  }
  CastSums sum{folded(x_total), folded(y_total)};
  for (; i < count; ++i) sum = sum + CastSums{float_after(x, i), float_after(y, i)};
  return sum;
}

// --- the second look ---

// (x - low) / range, at least 2^-23; NaN stays NaN.
template <class Divide>
struct Share {
  SYNCPOINT_INLINE F8 of(const F8& x) const { return greater(F8{} + 0x1p-23f, by_range(x - low)); }

  float low;
  Divide by_range;
};

struct SecondSums {
  float cosine = 0;
  float x_shares = 0;
  float y_shares = 0;
  double x_deviations = 0;
  double y_deviations = 0;
};
SYNCPOINT_INLINE SecondSums operator+(const SecondSums& a, const SecondSums& b) {
  return {a.cosine + b.cosine, a.x_shares + b.x_shares, a.y_shares + b.y_shares,
          a.x_deviations + b.x_deviations, a.y_deviations + b.y_deviations};
}

SYNCPOINT_INLINE D8 squared_deviation(const F8& x, double mean) {
  const D8 d = wide(x) - mean;
  return d * d;
}

template <class Divide>
SYNCPOINT_HOT inline SecondSums second_leaf(const float* x, const float* y, std::size_t count,
                                            const CompatScale& a, const CompatScale& b,
                                            const Share<Divide>& x_share,
                                            const Share<Divide>& y_share) {
  F8 cosine = {};
  F8 x_shares = {};
  F8 y_shares = {};
  D8 x_deviations;
  D8 y_deviations;
  std::size_t i = 0;
  for (; i + kEight <= count; i += kEight) {
    const F8 t = load_eight(x + i);
    const F8 r = load_eight(y + i);
    cosine += (t / a.norm) * (r / b.norm);
    x_shares += x_share.of(t);
    y_shares += y_share.of(r);
    x_deviations += squared_deviation(t, a.mean);
    y_deviations += squared_deviation(r, b.mean);
  }
  SecondSums sum{folded(cosine), folded(x_shares), folded(y_shares), folded(x_deviations),
                 folded(y_deviations)};
  if (i == count) return sum;
  const F8 t = load_eight(x + i);
  const F8 r = load_eight(y + i);
  const F8 products = (t / a.norm) * (r / b.norm);
  const F8 x_rest = x_share.of(t);
  const F8 y_rest = y_share.of(r);
  const D8 x_far = squared_deviation(t, a.mean);
  const D8 y_far = squared_deviation(r, b.mean);
  for (std::size_t k = 0; k < count - i; ++k) {
    sum = sum + SecondSums{products[k], x_rest[k], y_rest[k], lane_of(x_far, k), lane_of(y_far, k)};
  }
  return sum;
}

// --- the divergence ---

template <class Divide>
struct Quotients {
  struct Eight {
    F8 p;
    F8 of_q;
  };

  SYNCPOINT_INLINE Eight of(const F8& x, const F8& y) const {
    const F8 p = by_x_sum(x_share.of(x));
    return {p, p / by_y_sum(y_share.of(y))};
  }

  Share<Divide> x_share;
  Share<Divide> y_share;
  Divide by_x_sum;
  Divide by_y_sum;
};

// use(quotients) of two sides.
template <class Use>
auto with_quotients(const CompatShare& a, const CompatShare& b, Use use) {
  return with_division({a.range, b.range, a.sum, b.sum}, [&](auto kind) {
    using Divide = typename decltype(kind)::type;
    return use(Quotients<Divide>{
        {a.low, Divide(a.range)}, {b.low, Divide(b.range)}, Divide(a.sum), Divide(b.sum)});
  });
}

struct DivergenceSums {
  float terms = 0;
  float magnitudes = 0;
};
SYNCPOINT_INLINE DivergenceSums operator+(const DivergenceSums& a, const DivergenceSums& b) {
  return {a.terms + b.terms, a.magnitudes + b.magnitudes};
}

SYNCPOINT_HOT inline DivergenceSums divergence_leaf(const float* p, const float* of_q,
                                                    std::size_t count) {
  F8 terms = {};
  F8 magnitudes = {};
  std::size_t i = 0;
  for (; i + kEight <= count; i += kEight) {
    const F8 term = load_eight(p + i) * logarithm(load_eight(of_q + i));
    terms += term;
    magnitudes += magnitude(term);
  }
  DivergenceSums sum{folded(terms), folded(magnitudes)};
  if (i == count) return sum;
  const F8 term = load_eight(p + i) * logarithm(load_eight(of_q + i));
  const F8 size = magnitude(term);
  for (std::size_t k = 0; k < count - i; ++k) sum = sum + DivergenceSums{term[k], size[k]};
  return sum;
}

// --- booleans ---

inline double both_leaf(const float* x, const float* y, std::size_t count, double term) {
  D8 terms;
  std::size_t i = 0;
  for (; i + kEight <= count; i += kEight) {
    terms += wide(load_eight(x + i) * load_eight(y + i)) * term;
  }
  double sum = folded(terms);
  for (; i < count; ++i) sum += static_cast<double>(float_after(x, i) * float_after(y, i)) * term;
  return sum;
}

}  // namespace syncpoint::SYNCPOINT_ISA
