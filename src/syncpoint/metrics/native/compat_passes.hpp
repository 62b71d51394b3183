// The looks at a pair that compat.hpp tells of. Included once for each instruction set.
#pragma once

#include <algorithm>

#include "compat_leaves.hpp"
#include "compat_read.hpp"

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
// elements. `before(x, y, end, count)` sees each block first, which ends at `end`, and may lead
// both pointers to something else.
template <class Leaf, class Before>
auto numpy_sum(FloatReader& target, FloatReader& reference, std::int64_t begin, std::int64_t count,
               Leaf leaf_of, Before before) {
  auto block_of = [&](std::int64_t first, std::int64_t size) {
    const float* x = target.read(first, static_cast<std::size_t>(size));
    const float* y = reference.read(first, static_cast<std::size_t>(size));
    before(x, y, first + size, static_cast<std::size_t>(size));
    auto leaf = [&](std::int64_t at, std::int64_t run) {
      return leaf_of(x + at, y + at, static_cast<std::size_t>(run));
    };
    return numpy_tree(0, size, kCompatLeaf, leaf);
  };
  return numpy_tree(begin, count, static_cast<std::int64_t>(kBlock), block_of);
}

inline constexpr auto kNothingBefore = [](const float*, const float*, std::int64_t, std::size_t) {};

inline CompatFirst compat_first(const Operand& target, const Operand& reference) {
  const std::int64_t count = target.count();
  FloatReader x(target);
  FloatReader y(reference);
  FloatReader x_again(target);
  FloatReader y_again(reference);
  Greatest greatest;
  Extrema x_seen;
  Extrema y_seen;
  CastSums totals;
  std::int64_t added = 0;
  const auto leaf = [&](const float* t, const float* r, std::size_t run) {
    return first_leaf(t, r, run, greatest);
  };
  const auto before = [&](const float* t, const float* r, std::int64_t end, std::size_t size) {
    x_seen.look_at(t, size);
    y_seen.look_at(r, size);
    // Sums with a cast have another tree; they follow closely, while their elements are cached.
    while (added < end && (end - added >= kCompatCast || end == count)) {
      const std::int64_t run = std::min(kCompatCast, end - added);
      totals = totals + numpy_sum(x_again, y_again, added, run, cast_leaf, kNothingBefore);
      added += run;
    }
  };
  const auto sum = FirstSums{} + numpy_sum(x, y, 0, count, leaf, before);
  return {sum.x_squares,
          sum.y_squares,
          sum.errors,
          sum.error_squares,
          sum.ratios,
          greatest_of(greatest.error),
          greatest_of(greatest.ratio),
          least_of(x_seen.least),
          greatest_of(x_seen.greatest),
          least_of(y_seen.least),
          greatest_of(y_seen.greatest),
          totals.x,
          totals.y};
}

inline CompatSecond compat_second(const Operand& target, const Operand& reference,
                                  const CompatScale& a, const CompatScale& b) {
  return with_division({a.range, b.range}, [&](auto kind) -> CompatSecond {
    using Divide = typename decltype(kind)::type;
    FloatReader x(target);
    FloatReader y(reference);
    const Share<Divide> x_share{a.low, Divide(a.range)};
    const Share<Divide> y_share{b.low, Divide(b.range)};
    const auto leaf = [&](const float* t, const float* r, std::size_t run) {
      return second_leaf(t, r, run, a, b, x_share, y_share);
    };
    const auto sum = SecondSums{} + numpy_sum(x, y, 0, target.count(), leaf, kNothingBefore);
    return {sum.cosine, sum.x_shares, sum.y_shares, sum.x_deviations, sum.y_deviations};
  });
}

// Of up to kBlock elements, of which both sides have some more, up to a multiple of 8.
template <class Divide>
SYNCPOINT_HOT void divide_block(const Quotients<Divide>& given, const float* x, const float* y,
                                std::size_t count, float* p, float* of_q) {
  const Quotients<Divide> quotients = given;  // what is written might be it, for all GCC knows
  for (std::size_t i = 0; i < count; i += kEight) {
    const auto found = quotients.of(load_eight(x + i), load_eight(y + i));
    std::memcpy(p + i, &found.p, sizeof found.p);
    std::memcpy(of_q + i, &found.of_q, sizeof found.of_q);
  }
}

inline void compat_quotients(const Operand& target, const Operand& reference, const CompatShare& a,
                             const CompatShare& b, std::int64_t begin, std::int64_t count, float* p,
                             float* of_q) {
  FloatReader x(target);
  FloatReader y(reference);
  alignas(64) float block[2][kBlock];
  with_quotients(a, b, [&](const auto& quotients) {
    for (std::int64_t done = 0; done < count; done += kBlock) {
      const auto run = static_cast<std::size_t>(std::min<std::int64_t>(count - done, kBlock));
      divide_block(quotients, x.read(begin + done, run), y.read(begin + done, run), run, block[0],
                   block[1]);
      std::copy_n(block[0], run, p + done);
      std::copy_n(block[1], run, of_q + done);
    }
  });
}

inline CompatDivergence compat_divergence(const Operand& target, const Operand& reference,
                                          const CompatShare& a, const CompatShare& b) {
  FloatReader x(target);
  FloatReader y(reference);
  alignas(64) float p[kBlock];
  alignas(64) float of_q[kBlock];
  return with_quotients(a, b, [&](const auto& quotients) -> CompatDivergence {
    // Quotients first and logarithms after them: one chain of both is too long for the processor to
    // work on several at a time.
    const auto before = [&](const float*& t, const float*& r, std::int64_t, std::size_t size) {
      divide_block(quotients, t, r, size, p, of_q);
      t = p;
      r = of_q;
    };
    const auto sum = numpy_sum(x, y, 0, target.count(), divergence_leaf, before);
    return {sum.terms, sum.magnitudes};
  });
}

inline double compat_both(const Operand& target, const Operand& reference, double term) {
  FloatReader x(target);
  FloatReader y(reference);
  const auto leaf = [term](const float* t, const float* r, std::size_t run) {
    return both_leaf(t, r, run, term);
  };
  return 0.0 + numpy_sum(x, y, 0, target.count(), leaf, kNothingBefore);
}

}  // namespace syncpoint::SYNCPOINT_ISA
