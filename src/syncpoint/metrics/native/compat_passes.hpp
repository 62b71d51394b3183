// The looks at a pair that compat.hpp tells of. Included once for each instruction set.
#pragma once

#include <algorithm>
#include <cmath>

#include "compat_read.hpp"
#include "compat_vectors.hpp"

namespace syncpoint::SYNCPOINT_ISA {

inline constexpr std::int64_t kCompatLeaf = 128;
inline constexpr std::int64_t kCompatCast = 8192;

// NumPy's tree over elements [begin, begin + count), down to stretches of at most `leaf`.
template <class Leaf>
auto numpy_tree(std::int64_t begin, std::int64_t count, std::int64_t leaf, Leaf& sum_of) {
  if (count <= leaf) return sum_of(begin, count);
  const std::int64_t half = count / 2 - count / 2 % 8;
  const auto left = numpy_tree(begin, half, leaf, sum_of);
  return left + numpy_tree(begin + half, count - half, leaf, sum_of);
}

// Both sides of a pair, block by block along that tree: `leaf_of(x, y, count)` sums up to 128
// elements, `after(end)` is told when those before `end` have been seen.
template <class Leaf, class After>
auto numpy_sum(FloatReader& target, FloatReader& reference, std::int64_t begin, std::int64_t count,
               Leaf leaf_of, After after) {
  auto block_of = [&](std::int64_t first, std::int64_t size) {
    const float* x = target.read(first, static_cast<std::size_t>(size));
    const float* y = reference.read(first, static_cast<std::size_t>(size));
    auto leaf = [&](std::int64_t at, std::int64_t run) {
      return leaf_of(x + at, y + at, static_cast<std::size_t>(run));
    };
    const auto sum = numpy_tree(0, size, kCompatLeaf, leaf);
    after(first + size);
    return sum;
  };
  return numpy_tree(begin, count, static_cast<std::int64_t>(kBlock), block_of);
}

// Sums of several terms at once: `Terms` of eight elements, and what they add up to.
template <std::size_t Floats, std::size_t Doubles>
struct Terms {
  F8 single[Floats + 1];
  D8 twice[Doubles + 1];
};
template <std::size_t Floats, std::size_t Doubles>
struct Totals {
  float single[Floats + 1] = {};
  double twice[Doubles + 1] = {};

  friend Totals operator+(const Totals& left, const Totals& right) {
    Totals sum;
    for (std::size_t k = 0; k < Floats; ++k) sum.single[k] = left.single[k] + right.single[k];
    for (std::size_t k = 0; k < Doubles; ++k) sum.twice[k] = left.twice[k] + right.twice[k];
    return sum;
  }
};

// NumPy's sum of up to 128 elements; `terms_of(x, y, lanes)` is given eight at a time, of which
// `lanes` are real.
template <std::size_t Floats, std::size_t Doubles, class TermsOf>
SYNCPOINT_INLINE Totals<Floats, Doubles> leaf_sum(const float* x, const float* y, std::size_t count,
                                                  TermsOf terms_of) {
  F8 single[Floats + 1] = {};
  D8 twice[Doubles + 1] = {};
  std::size_t i = 0;
  for (; i + kEight <= count; i += kEight) {
    const Terms<Floats, Doubles> terms = terms_of(load_eight(x + i), load_eight(y + i), kEight);
    for (std::size_t k = 0; k < Floats; ++k) accumulate(single[k], terms.single[k]);
    for (std::size_t k = 0; k < Doubles; ++k) accumulate(twice[k], terms.twice[k]);
  }
  Totals<Floats, Doubles> sum;
  for (std::size_t k = 0; k < Floats; ++k) sum.single[k] = folded(single[k]);
  for (std::size_t k = 0; k < Doubles; ++k) sum.twice[k] = folded(twice[k]);
  if (i == count) return sum;
  const Terms<Floats, Doubles> terms = terms_of(load_eight(x + i), load_eight(y + i), count - i);
  for (std::size_t lane = 0; lane < count - i; ++lane) {
    for (std::size_t k = 0; k < Floats; ++k) sum.single[k] += lane_of(terms.single[k], lane);
    for (std::size_t k = 0; k < Doubles; ++k) sum.twice[k] += lane_of(terms.twice[k], lane);
  }
  return sum;
}

struct Extrema {
  F8 greatest_error = {};
  F8 greatest_ratio = {};
  F8 x_min = F8{} + __builtin_inff();
  F8 x_max = F8{} - __builtin_inff();
  F8 y_min = F8{} + __builtin_inff();
  F8 y_max = F8{} - __builtin_inff();
};

SYNCPOINT_HOT inline Totals<5, 0> first_leaf(const float* x, const float* y, std::size_t count,
                                             Extrema& kept) {
  Extrema seen = kept;  // in registers
  const auto terms_of = [&](const F8& t, const F8& r, std::size_t lanes) {
    constexpr float kEpsilon = 0x1p-52f;
    const F8 difference = t - r;
    const F8 error = magnitude(difference);
    const F8 ratio = magnitude(r) > kEpsilon ? magnitude(t / r - 1.0f) : F8{};
    if (lanes == kEight) {
      seen = {greater(error, seen.greatest_error),
              greater(ratio, seen.greatest_ratio),
              lesser(t, seen.x_min),
              greater(t, seen.x_max),
              lesser(r, seen.y_min),
              greater(r, seen.y_max)};
    } else {
      for (std::size_t k = 0; k < lanes; ++k) {
        if (error[k] > seen.greatest_error[k]) seen.greatest_error[k] = error[k];
        if (ratio[k] > seen.greatest_ratio[k]) seen.greatest_ratio[k] = ratio[k];
        if (t[k] < seen.x_min[k]) seen.x_min[k] = t[k];
        if (t[k] > seen.x_max[k]) seen.x_max[k] = t[k];
        if (r[k] < seen.y_min[k]) seen.y_min[k] = r[k];
        if (r[k] > seen.y_max[k]) seen.y_max[k] = r[k];
      }
    }
    return Terms<5, 0>{{t * t, r * r, error, difference * difference, ratio}, {}};
  };
  const auto sum = leaf_sum<5, 0>(x, y, count, terms_of);
  kept = seen;
  return sum;
}

SYNCPOINT_HOT inline Totals<0, 2> cast_leaf(const float* x, const float* y, std::size_t count) {
  return leaf_sum<0, 2>(x, y, count, [](const F8& t, const F8& r, std::size_t) {
    return Terms<0, 2>{{}, {wide(t), wide(r)}};
  });
}

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

inline CompatFirst compat_first(const Operand& target, const Operand& reference) {
  const std::int64_t count = target.count();
  FloatReader x(target);
  FloatReader y(reference);
  FloatReader x_again(target);
  FloatReader y_again(reference);
  Extrema seen;
  Totals<0, 2> totals;
  std::int64_t added = 0;
  // Sums with a cast have another tree; they follow closely, while the elements are in the cache.
  const auto add_up_to = [&](std::int64_t end) {
    while (added < end && (end - added >= kCompatCast || end == count)) {
      const std::int64_t run = std::min(kCompatCast, end - added);
      totals = totals + numpy_sum(x_again, y_again, added, run, cast_leaf, [](std::int64_t) {});
      added += run;
    }
  };
  const auto leaf = [&](const float* t, const float* r, std::size_t run) {
    return first_leaf(t, r, run, seen);
  };
  const auto sum = Totals<5, 0>{} + numpy_sum(x, y, 0, count, leaf, add_up_to);
  return {sum.single[0],
          sum.single[1],
          sum.single[2],
          sum.single[3],
          sum.single[4],
          greatest_of(seen.greatest_error),
          greatest_of(seen.greatest_ratio),
          least_of(seen.x_min),
          greatest_of(seen.x_max),
          least_of(seen.y_min),
          greatest_of(seen.y_max),
          totals.twice[0],
          totals.twice[1]};
}

// NaN stays NaN.
SYNCPOINT_INLINE F8 share(const F8& x, float low, float range) {
  constexpr float kLeast = 0x1p-23f;
  const F8 moved = (x - low) / range;
  return moved < kLeast ? F8{} + kLeast : moved;
}

SYNCPOINT_INLINE D8 squared_deviation(const F8& x, double mean) {
  D8 d = wide(x);
  d.low -= mean;
  d.high -= mean;
  return {d.low * d.low, d.high * d.high};
}

SYNCPOINT_HOT inline Totals<3, 2> second_leaf(const float* x, const float* y, std::size_t count,
                                              const CompatScale& a, const CompatScale& b) {
  return leaf_sum<3, 2>(x, y, count, [&](const F8& t, const F8& r, std::size_t) {
    return Terms<3, 2>{
        {(t / a.norm) * (r / b.norm), share(t, a.low, a.range), share(r, b.low, b.range)},
        {squared_deviation(t, a.mean), squared_deviation(r, b.mean)}};
  });
}

inline CompatSecond compat_second(const Operand& target, const Operand& reference,
                                  const CompatScale& a, const CompatScale& b) {
  FloatReader x(target);
  FloatReader y(reference);
  const auto leaf = [&](const float* t, const float* r, std::size_t run) {
    return second_leaf(t, r, run, a, b);
  };
  const auto sum = Totals<3, 2>{} + numpy_sum(x, y, 0, target.count(), leaf, [](std::int64_t) {});
  return {sum.single[0], sum.single[1], sum.single[2], sum.twice[0], sum.twice[1]};
}

struct Quotient {
  F8 p;
  F8 of_q;
};

SYNCPOINT_INLINE Quotient quotient(const F8& t, const F8& r, const CompatShare& a,
                                   const CompatShare& b) {
  const F8 p = share(t, a.low, a.range) / a.sum;
  return {p, p / (share(r, b.low, b.range) / b.sum)};
}

inline void compat_quotients(const Operand& target, const Operand& reference, const CompatShare& a,
                             const CompatShare& b, std::int64_t begin, std::int64_t count, float* p,
                             float* of_q) {
  FloatReader x(target);
  FloatReader y(reference);
  for (std::int64_t done = 0; done < count; done += kBlock) {
    const auto run = static_cast<std::size_t>(std::min<std::int64_t>(count - done, kBlock));
    const float* t = x.read(begin + done, run);
    const float* r = y.read(begin + done, run);
    for (std::size_t i = 0; i < run; i += kEight) {
      const Quotient found = quotient(load_eight(t + i), load_eight(r + i), a, b);
      const std::size_t size = std::min(run - i, kEight) * sizeof(float);
      std::memcpy(p + done + static_cast<std::int64_t>(i), &found.p, size);
      std::memcpy(of_q + done + static_cast<std::int64_t>(i), &found.of_q, size);
    }
  }
}

SYNCPOINT_HOT inline Totals<2, 0> divergence_leaf(const float* x, const float* y, std::size_t count,
                                                  const CompatShare& a, const CompatShare& b,
                                                  I8& strange) {
  I8 odd = strange;
  const auto sum = leaf_sum<2, 0>(x, y, count, [&](const F8& t, const F8& r, std::size_t) {
    constexpr float kLeast = std::numeric_limits<float>::min();
    const Quotient found = quotient(t, r, a, b);
    odd |= ~((found.of_q >= kLeast) & (found.of_q < __builtin_inff()));
    const F8 term = found.p * logarithm(found.of_q);
    return Terms<2, 0>{{term, magnitude(term)}, {}};
  });
  strange = odd;
  return sum;
}

inline CompatDivergence compat_divergence(const Operand& target, const Operand& reference,
                                          const CompatShare& a, const CompatShare& b) {
  FloatReader x(target);
  FloatReader y(reference);
  I8 strange = {};
  const auto leaf = [&](const float* t, const float* r, std::size_t run) {
    return divergence_leaf(t, r, run, a, b, strange);
  };
  const auto sum = numpy_sum(x, y, 0, target.count(), leaf, [](std::int64_t) {});
  for (std::size_t k = 0; k < kEight; ++k) {
    if (strange[k]) return {0, std::numeric_limits<double>::infinity()};
  }
  return {sum.single[0], sum.single[1]};
}

inline double compat_both(const Operand& target, const Operand& reference, double term) {
  FloatReader x(target);
  FloatReader y(reference);
  const auto leaf = [&](const float* t, const float* r, std::size_t run) {
    return leaf_sum<0, 1>(t, r, run, [term](const F8& a, const F8& b, std::size_t) {
      const D8 product = wide(a * b);
      return Terms<0, 1>{{}, {{product.low * term, product.high * term}}};
    });
  };
  const auto sum = Totals<0, 1>{} + numpy_sum(x, y, 0, target.count(), leaf, [](std::int64_t) {});
  return sum.twice[0];
}

}  // namespace syncpoint::SYNCPOINT_ISA
