// What is asked of the values as one heap: their histograms, and the min-max form of KL.
#include <algorithm>
#include <cmath>
#include <utility>

#include "on_demand.hpp"
#include "on_demand_chunk.hpp"
#include "on_demand_math.hpp"
#include "summation.hpp"

namespace syncpoint {
namespace {

std::size_t capacity_of(const Pair& pair) {
  return static_cast<std::size_t>(std::min<std::int64_t>(pair.target.count(), kPiece));
}

// The number that a histogram counts: of complex elements the modulus.
double size_of(const Values& values, std::size_t i) {
  return values.complex() ? std::hypot(values.re[i], values.im[i]) : values.re[i];
}

// Calls target(value, masked) and reference(value, masked) for every element.
template <class Target, class Reference>
void each_value(const Pair& pair, Target target, Reference reference) {
  Chunk chunk(pair, capacity_of(pair));
  each_piece(pair.target.count(), [&](std::int64_t begin, std::size_t count) {
    chunk.read(begin, count);
    const Values& t = chunk.target();
    const Values& r = chunk.reference();
    if (chunk.ordinary()) {
      for (std::size_t i = 0; i < count; ++i) target(size_of(t, i), false);
      for (std::size_t i = 0; i < count; ++i) reference(size_of(r, i), false);
      return;
    }
    for (std::size_t i = 0; i < count; ++i) {
      const bool both = chunk.masked(i);
      target(size_of(t, i), both || chunk.target_low(i));
      reference(size_of(r, i), both || chunk.reference_low(i));
    }
  });
}

// Finds bins by a guess that is then set right, so that a value on an edge is where it belongs.
class Bins {
 public:
  explicit Bins(const std::vector<double>& edges) : edges_(edges) {
    const double width = edges.back() - edges.front();
    per_unit_ = static_cast<double>(edges.size() - 1) / width;
    guessing_ = per_unit_ > 0 && std::isfinite(per_unit_);
  }

  std::size_t of(double x) const {
    const std::size_t last = edges_.size() - 2;
    std::size_t bin = 0;
    if (guessing_) {
      bin = std::min(static_cast<std::size_t>((x - edges_.front()) * per_unit_), last);
    } else {
      const auto above = std::upper_bound(edges_.begin(), edges_.end(), x);
      bin = static_cast<std::size_t>(std::distance(edges_.begin(), above)) - 1;
      bin = std::min(bin, last);
    }
    while (bin > 0 && x < edges_[bin]) --bin;
    while (bin < last && x >= edges_[bin + 1]) ++bin;
    return bin;
  }

 private:
  const std::vector<double>& edges_;
  double per_unit_ = 0;
  bool guessing_ = false;
};

// One side of the min-max form. Its scale is free, so it is brought near 1, where neither its range
// nor products can overflow.
struct Side {
  double least = std::numeric_limits<double>::infinity();
  double greatest = -std::numeric_limits<double>::infinity();
  double factor = 1;
  Twofold range{1, 0};

  void widen(const double* x, std::size_t count) {
    greatest = lane_max(count, greatest, [=](std::size_t i) { return x[i]; });
    least = -lane_max(count, -least, [=](std::size_t i) { return -x[i]; });
  }

  void settle() {
    const double size = std::max(std::abs(least), std::abs(greatest));
    if (size > 0) factor = power_of_two(std::clamp(-std::ilogb(size), -1022, 1023));
    least *= factor;
    greatest *= factor;
    range = exact_difference(greatest, least);
  }

  // All values equal: the distribution is even, whatever they are.
  bool constant() const { return range.high == 0; }

  Twofold above_least(double x) const {
    return constant() ? Twofold{1, 0} : exact_difference(x * factor, least);
  }
};

constexpr double kFloor = 0x1p-23;  // the epsilon of float32

struct MinMaxSums {
  double terms = 0;  // of b ln(b / a) - (b - a), none of which is negative
  double target = 0;
  double excess = 0;  // of b - a
};

MinMaxSums merge(const MinMaxSums& left, const MinMaxSums& right) {
  return {left.terms + right.terms, left.target + right.target, left.excess + right.excess};
}

// With b and a the scaled values of target and reference, P and Q their sums, and x = Q / P - 1:
//
//   KL = Σ (b ln(b / a) - (b - a)) / P + ln(1 + x) - x
//
// Every term of the sum is formed without cancellation. What can still cancel is b - a, where both
// are nearly equal, and the sum against the logarithm, where b is nearly a multiple of a. Either
// makes KL small, and a second reading then takes b - a from differences that are not rounded, and
// scales a by Q / P first.
class MinMax {
 public:
  explicit MinMax(const Pair& pair) : pair_(pair), chunk_(pair, capacity_of(pair)) {
    for (auto* buffer : {&target_, &reference_, &excess_}) buffer->resize(capacity_of(pair));
  }

  Divergence run() {
    find_ranges();
    if (count_ == 0) return {};
    t_.settle();
    r_.settle();
    const MinMaxSums rough = sum(false, 0);
    const double x = -rough.excess / rough.target;
    const double spread = rough.terms / rough.target;
    const double found = spread + logarithm_beyond_linear(x);
    if (found > 1e-7 && found > 1e-3 * spread) return {count_, found};
    const MinMaxSums fine = sum(true, x);
    const double rest = -fine.excess / fine.target;
    return {count_, std::max(fine.terms / fine.target + logarithm_beyond_linear(rest), 0.0)};
  }

 private:
  void find_ranges() {
    each_piece(pair_.target.count(), [&](std::int64_t begin, std::size_t count) {
      chunk_.read(begin, count);
      const double* t = chunk_.target().re.data();
      const double* r = chunk_.reference().re.data();
      if (chunk_.ordinary()) {
        count_ += static_cast<std::int64_t>(count);
        t_.widen(t, count);
        r_.widen(r, count);
        return;
      }
      for (std::size_t i = 0; i < count; ++i) {
        if (!chunk_.compared(i)) continue;
        ++count_;
        t_.widen(t + i, 1);
        r_.widen(r + i, 1);
      }
    });
  }

  MinMaxSums sum(bool fine, double x) {
    Tree<MinMaxSums> tree;
    each_piece(pair_.target.count(), [&](std::int64_t begin, std::size_t count) {
      chunk_.read(begin, count);
      tree.push(sum_chunk(fine ? derive_fine(x) : derive()));
    });
    return tree.total();
  }

  // b, a and b - a of the compared elements of the chunk; how many there are.
  std::size_t derive() {
    const double* t = chunk_.target().re.data();
    const double* r = chunk_.reference().re.data();
    const double t_unit = 1 / t_.range.high;
    const double r_unit = 1 / r_.range.high;
    std::size_t kept = 0;
    if (chunk_.ordinary() && !t_.constant() && !r_.constant()) {
      kept = chunk_.size();
      double* b = target_.data();
      double* a = reference_.data();
      double* u = excess_.data();
      for (std::size_t i = 0; i < kept; ++i) {
        b[i] = std::max((t[i] * t_.factor - t_.least) * t_unit, kFloor);
        a[i] = std::max((r[i] * r_.factor - r_.least) * r_unit, kFloor);
        u[i] = b[i] - a[i];
      }
      return kept;
    }
    for (std::size_t i = 0; i < chunk_.size(); ++i) {
      if (!chunk_.compared(i)) continue;
      target_[kept] = t_.constant() ? 1 : std::max(t_.above_least(t[i]).high * t_unit, kFloor);
      reference_[kept] = r_.constant() ? 1 : std::max(r_.above_least(r[i]).high * r_unit, kFloor);
      excess_[kept] = target_[kept] - reference_[kept];
      ++kept;
    }
    return kept;
  }

  // The same with b - a right to its last digits, and a divided by 1 + x.
  std::size_t derive_fine(double x) {
    const double* t = chunk_.target().re.data();
    const double* r = chunk_.reference().re.data();
    const Twofold one{1, 0};
    const Twofold t_range = t_.constant() ? one : t_.range;
    const Twofold r_range = r_.constant() ? one : r_.range;
    const bool all = chunk_.ordinary();
    std::size_t kept = 0;
    for (std::size_t i = 0; i < chunk_.size(); ++i) {
      if (!all && !chunk_.compared(i)) continue;
      const Twofold above_t = t_.above_least(t[i]);
      const Twofold above_r = r_.above_least(r[i]);
      const double b = above_t.high / t_range.high;
      const double a = above_r.high / r_range.high;
      double excess = std::max(b, kFloor) - std::max(a, kFloor);
      if (b > kFloor && a > kFloor) {
        excess = difference_of_products(above_t, r_range, above_r, t_range) / t_range.high /
                 r_range.high;
      }
      target_[kept] = std::max(b, kFloor);
      reference_[kept] = std::max(a, kFloor) / (1 + x);
      excess_[kept] = excess + reference_[kept] * x;
      ++kept;
    }
    return kept;
  }

  // Terms b ln(b / a) - u, u = b - a, as u s + 2 b (s³/3 + s⁵/5 + ...) with s = u / (b + a).
  MinMaxSums sum_chunk(std::size_t count) {
    double* terms = terms_.data();
    const double* b = target_.data();
    const double* a = reference_.data();
    const double* u = excess_.data();
    for (std::size_t i = 0; i < count; ++i) {
      const double s = u[i] / (b[i] + a[i]);
      const double z = s * s;
      terms[i] = s * (u[i] + 2 * b[i] * z * artanh_terms(z));
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (std::abs(u[i]) > 0.125 * (b[i] + a[i])) terms[i] = b[i] * logarithm(b[i] / a[i]) - u[i];
    }
    return {lane_sum(count, [=](std::size_t i) { return terms[i]; }),
            lane_sum(count, [=](std::size_t i) { return b[i]; }),
            lane_sum(count, [=](std::size_t i) { return u[i]; })};
  }

  const Pair& pair_;
  Chunk chunk_;
  Side t_;
  Side r_;
  std::int64_t count_ = 0;
  std::vector<double> target_;
  std::vector<double> reference_;
  std::vector<double> excess_;
  std::vector<double> terms_ = std::vector<double>(capacity_of(pair_));
};

}  // namespace

ValueRange value_range(const Pair& pair) {
  const PlainArithmetic arithmetic;
  ValueRange range;
  const auto widen = [&](double x, bool masked) {
    if (masked || !std::isfinite(x)) return;
    range.least = std::min(range.least, x);
    range.greatest = std::max(range.greatest, x);
  };
  each_value(pair, widen, widen);
  return range;
}

Histograms value_histograms(const Pair& pair, const std::vector<double>& edges) {
  const PlainArithmetic arithmetic;
  Histograms found;
  if (edges.size() > 1) {
    found.target.bins.resize(edges.size() - 1);
    found.reference.bins.resize(edges.size() - 1);
  }
  const std::vector<double> any{0, 1};
  const Bins bins(edges.size() > 1 ? edges : any);
  const auto into = [&](ValueCounts& side) {
    return [&](double x, bool masked) {
      if (masked) {
        ++side.masked;
      } else if (!std::isfinite(x)) {
        ++side.non_finite;
      } else if (!side.bins.empty()) {
        ++side.bins[bins.of(x)];
      }
    };
  };
  each_value(pair, into(found.target), into(found.reference));
  return found;
}

Divergence minmax_divergence(const Pair& pair) {
  const PlainArithmetic arithmetic;
  // Complex numbers have no least and greatest.
  if (is_complex(pair.target.dtype) || is_complex(pair.reference.dtype)) return {};
  return MinMax(pair).run();
}

}  // namespace syncpoint
