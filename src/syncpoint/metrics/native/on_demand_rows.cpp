// What is asked of scores row by row: how far the distributions they stand for are apart, and
// whether they choose the same places.
#include <algorithm>
#include <cmath>
#include <limits>

#include "on_demand.hpp"
#include "on_demand_chunk.hpp"
#include "on_demand_math.hpp"
#include "summation.hpp"

namespace syncpoint {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Gives the rows of a pair in turn, short ones read many at a time, long ones a piece at a time and
// again for every look. Masked places are -inf: on both sides where the pair agrees about them,
// else on the side that has the mask.
class Rows {
 public:
  Rows(const Pair& pair, std::int64_t length)
      : length_(length),
        count_(pair.target.count() / length),
        together_(std::clamp<std::int64_t>(static_cast<std::int64_t>(kPiece) / length, 1, count_)),
        chunk_(pair, capacity()) {}

  std::int64_t count() const { return count_; }

  // Whether a row is read in one piece, which then stays in memory until the next row.
  bool whole() const { return length_ <= static_cast<std::int64_t>(kPiece); }

  std::size_t capacity() const {
    return whole() ? static_cast<std::size_t>(together_ * length_) : kPiece;
  }

  void open(std::int64_t row) {
    row_ = row;
    if (!whole() || row % together_ != 0) return;
    read(row * length_, static_cast<std::size_t>(std::min(together_, count_ - row) * length_));
  }

  // Calls visit(target, reference, size, index of the first) for every piece of the open row.
  template <class Visit>
  void each(Visit visit) {
    if (whole()) {
      const auto at = static_cast<std::size_t>(row_ % together_ * length_);
      visit(chunk_.target().re.data() + at, chunk_.reference().re.data() + at,
            static_cast<std::size_t>(length_), std::int64_t{0});
      return;
    }
    each_piece(length_, [&](std::int64_t begin, std::size_t size) {
      read(row_ * length_ + begin, size);
      visit(chunk_.target().re.data(), chunk_.reference().re.data(), size, begin);
    });
  }

 private:
  void read(std::int64_t begin, std::size_t size) {
    chunk_.read(begin, size);
    if (chunk_.ordinary()) return;
    for (std::size_t i = 0; i < size; ++i) {
      const bool masked = chunk_.masked(i);
      const bool target_low = chunk_.target_low(i);
      const bool reference_low = chunk_.reference_low(i);
      if (masked || target_low) chunk_.target().re[i] = -kInfinity;
      if (masked || reference_low) chunk_.reference().re[i] = -kInfinity;
    }
  }

  std::int64_t length_;
  std::int64_t count_;
  std::int64_t together_;
  std::int64_t row_ = 0;
  Chunk chunk_;
};

// With p = softmax r, δ = t - r, and ε = δ - c for any c:
//
//   KL = ln E[e^ε] - E[ε] = A + ln(1 + x) - x,  A = E[e^ε - 1 - ε],  x = A + E[ε],
//
// where E weighs by p. No term of A is negative, and with c near E[δ] the rest is far smaller than
// A, so nothing cancels however near the two distributions are. Places where p is 0 but the target
// has something add e^(t - c) / Σ e^r to both A and x.
class SoftmaxDivergence {
 public:
  explicit SoftmaxDivergence(Rows& rows)
      : rows_(rows), weight_(rows.capacity()), offset_(rows.capacity()), term_(rows.capacity()) {}

  // Of the open row; NaN where a side has no distribution.
  double run() {
    if (!find_peak()) return std::numeric_limits<double>::quiet_NaN();
    find_centre();
    // Some place that the reference gives weight has none in the target.
    if (std::isinf(centre_.high)) return kInfinity;
    find_sums();
    if (mean_ * mean_ > 1e-6 * spread_ * weights_ && std::isfinite(spread_)) {
      // Offsets so great that one double could not say where their middle is.
      centre_.low = mean_ / weights_;
      find_sums();
    }
    const double spread = spread_ / weights_;
    const double x = spread + mean_ / weights_;
    double found = 0;
    if (!std::isfinite(x)) {
      found = beyond_range();
    } else if (x > 0.5) {
      found = logarithm(1 + x) - mean_ / weights_;
    } else {
      found = spread + logarithm_beyond_linear(x);
    }
    // Distributions so far apart that float64 cannot say how far.
    return std::isnan(found) ? kInfinity : std::max(found, 0.0);
  }

 private:
  bool find_peak() {
    double target = -kInfinity;
    bool sound = true;
    peak_ = -kInfinity;
    rows_.each([&](const double* t, const double* r, std::size_t size, std::int64_t) {
      // A NaN is below nothing.
      const auto bad = [=](std::size_t i) { return !((t[i] < kInfinity) & (r[i] < kInfinity)); };
      sound = sound && lane_count(size, bad) == 0;
      if (!sound) return;
      target = lane_max(size, target, [=](std::size_t i) { return t[i]; });
      peak_ = lane_max(size, peak_, [=](std::size_t i) { return r[i]; });
    });
    return sound && target > -kInfinity && peak_ > -kInfinity;
  }

  // Weights e^(r - peak) of a piece.
  void weigh(const double* r, std::size_t size) {
    double* weight = weight_.data();
    const double peak = peak_;
    for (std::size_t i = 0; i < size; ++i) weight[i] = exponential(r[i] - peak);
  }

  void find_centre() {
    Tree<double> weights;
    Tree<double> offsets;
    rows_.each([&](const double* t, const double* r, std::size_t size, std::int64_t) {
      weigh(r, size);
      const double* weight = weight_.data();
      weights.push(lane_sum(size, [=](std::size_t i) { return weight[i]; }));
      offsets.push(lane_sum(
          size, [=](std::size_t i) { return weight[i] > 0 ? weight[i] * (t[i] - r[i]) : 0; }));
    });
    weights_ = weights.total();
    centre_ = {offsets.total() / weights_, 0};
  }

  void find_sums() {
    Tree<double> spread;
    Tree<double> mean;
    rows_.each([&](const double* t, const double* r, std::size_t size, std::int64_t) {
      if (!rows_.whole()) weigh(r, size);
      double* offset = offset_.data();
      double* term = term_.data();
      const double* weight = weight_.data();
      const Twofold centre = centre_;
      for (std::size_t i = 0; i < size; ++i) {
        const Twofold apart = exact_difference(t[i], r[i]);
        offset[i] = (apart.high - centre.high) + (apart.low - centre.low);
        term[i] = weight[i] * exponential_beyond_linear(offset[i]);
      }
      // A NaN, as of two -inf, is not small.
      const auto large = [=](std::size_t i) { return !(std::abs(offset[i]) <= 0.25); };
      if (lane_count(size, large) != 0) correct_terms(t, size);
      spread.push(lane_sum(size, [=](std::size_t i) { return term[i]; }));
      mean.push(lane_sum(size, [=](std::size_t i) { return weight[i] * offset[i]; }));
    });
    spread_ = spread.total();
    mean_ = mean.total();
  }

  void correct_terms(const double* t, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) {
      if (std::abs(offset_[i]) <= 0.25) continue;
      const double x = exponent(t[i]);
      term_[i] = x > 700 ? kInfinity : exponential(x);
      if (weight_[i] == 0) {
        offset_[i] = 0;
      } else {
        term_[i] -= weight_[i] * (1 + offset_[i]);
      }
    }
  }

  // (t - peak) - c: what e is raised to once the weight of a place is counted in.
  double exponent(double t) const {
    if (std::isinf(t)) return t;
    const Twofold apart = exact_difference(t, peak_);
    return (apart.high - centre_.high) + (apart.low - centre_.low);
  }

  // ln E[e^ε] - E[ε] where e^ε is too great to be written.
  double beyond_range() {
    double greatest = -kInfinity;
    rows_.each([&](const double* t, const double*, std::size_t size, std::int64_t) {
      for (std::size_t i = 0; i < size; ++i) greatest = std::max(greatest, exponent(t[i]));
    });
    double sum = 0;
    rows_.each([&](const double* t, const double*, std::size_t size, std::int64_t) {
      for (std::size_t i = 0; i < size; ++i) sum += exponential(exponent(t[i]) - greatest);
    });
    return greatest + (logarithm(sum) - logarithm(weights_)) - mean_ / weights_;
  }

  Rows& rows_;
  std::vector<double> weight_;
  std::vector<double> offset_;
  std::vector<double> term_;
  double peak_ = 0;
  double weights_ = 0;
  Twofold centre_{0, 0};
  double spread_ = 0;
  double mean_ = 0;
};

// One place of a row: its score, and at equal scores the lower index first.
struct Place {
  double score;
  std::int64_t index;
  double other;  // the reference's score there

  bool operator<(const Place& right) const {
    return score != right.score ? score > right.score : index < right.index;
  }
};

// The k first places of a row, gathered in any order of arrival.
class Leaders {
 public:
  explicit Leaders(std::size_t k) : k_(k) {}

  void clear() { places_.clear(); }

  // The score that a place must have to be let in.
  double bar() const { return places_.size() < k_ ? -kInfinity : places_.front().score; }

  void add(const Place& place) {
    if (places_.size() == k_) {
      if (!(place < places_.front())) return;
      std::pop_heap(places_.begin(), places_.end());
      places_.pop_back();
    }
    places_.push_back(place);
    std::push_heap(places_.begin(), places_.end());
  }

  std::vector<Place>& sorted() {
    std::sort(places_.begin(), places_.end());
    return places_;
  }

 private:
  std::size_t k_;
  std::vector<Place> places_;  // a heap whose front is the last of the leaders
};

class RankAgreement {
 public:
  RankAgreement(Rows& rows, std::size_t k) : rows_(rows), target_(k), reference_(k) {}

  // Adds the open row.
  void add(Agreement& agreement, Tree<double>& overlap) {
    if (!find_leaders()) {
      ++agreement.undefined;
      return;
    }
    const std::vector<Place>& chosen = target_.sorted();
    const std::vector<Place>& best = reference_.sorted();
    ++agreement.rows;
    agreement.first += chosen.front().other == best.front().score;
    overlap.push(share(chosen, best));
  }

 private:
  bool find_leaders() {
    target_.clear();
    reference_.clear();
    bool sound = true;
    rows_.each([&](const double* t, const double* r, std::size_t size, std::int64_t first) {
      for (std::size_t i = 0; i < size; ++i) {
        const std::int64_t index = first + static_cast<std::int64_t>(i);
        sound = sound && !std::isnan(t[i]) && !std::isnan(r[i]);
        if (t[i] > target_.bar()) target_.add({t[i], index, r[i]});
        if (r[i] > reference_.bar()) reference_.add({r[i], index, r[i]});
      }
    });
    return sound && !target_.sorted().empty() && !reference_.sorted().empty();
  }

  // The part of the best places that were chosen. Of places that tie for the last of the best, as
  // many count as there is room for.
  static double share(const std::vector<Place>& chosen, const std::vector<Place>& best) {
    const double last = best.back().score;
    const auto above = [=](const Place& place) { return place.other > last; };
    const auto level = [=](const Place& place) { return place.other == last; };
    const auto room =
        static_cast<std::ptrdiff_t>(best.size()) - std::count_if(best.begin(), best.end(), above);
    const auto hits = std::count_if(chosen.begin(), chosen.end(), above) +
                      std::min(std::count_if(chosen.begin(), chosen.end(), level), room);
    return static_cast<double>(hits) / static_cast<double>(best.size());
  }

  Rows& rows_;
  Leaders target_;
  Leaders reference_;
};

// Complex scores have no order, and rows of no length no places.
bool has_rows(const Pair& pair, std::int64_t length) {
  return length > 0 && pair.target.count() > 0 && !is_complex(pair.target.dtype) &&
         !is_complex(pair.reference.dtype);
}

}  // namespace

RowDivergence softmax_divergence(const Pair& pair, std::int64_t length) {
  const PlainArithmetic arithmetic;
  RowDivergence found;
  if (!has_rows(pair, length)) return found;
  Rows rows(pair, length);
  SoftmaxDivergence divergence(rows);
  Tree<double> sum;
  for (std::int64_t row = 0; row < rows.count(); ++row) {
    rows.open(row);
    const double value = divergence.run();
    if (std::isnan(value)) {
      ++found.undefined;
      continue;
    }
    ++found.rows;
    sum.push(value);
    if (found.greatest_row < 0 || value > found.greatest) {
      found.greatest = value;
      found.greatest_row = row;
    }
  }
  found.sum = sum.total();
  return found;
}

Agreement rank_agreement(const Pair& pair, std::int64_t length, std::int64_t k) {
  const PlainArithmetic arithmetic;
  Agreement found;
  if (!has_rows(pair, length)) return found;
  Rows rows(pair, length);
  RankAgreement agreement(rows, static_cast<std::size_t>(std::min(k, length)));
  Tree<double> overlap;
  for (std::int64_t row = 0; row < rows.count(); ++row) {
    rows.open(row);
    agreement.add(found, overlap);
  }
  found.overlap = overlap.total();
  return found;
}

}  // namespace syncpoint
