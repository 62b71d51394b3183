// Sums whose bits depend on the data alone: not on threads, strides or how the work was cut.
//
// Inside a chunk, element i goes to lane i mod 8 and the lanes are added in one fixed way; chunks
// are then merged as a binary tree over their numbers.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace syncpoint {

inline constexpr std::size_t kLanes = 8;

// Folds term(0) ... term(count - 1) into eight lanes that start at `start`. Eight independent lanes
// are also what lets the compiler use vector instructions without changing the result.
template <class Term, class Fold>
std::array<double, kLanes> fold_lanes(std::size_t count, double start, Term term, Fold fold) {
  std::array<double, kLanes> lane;
  lane.fill(start);
  const std::size_t whole = count - count % kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (std::size_t k = 0; k < kLanes; ++k) lane[k] = fold(lane[k], term(i + k));
  }
  for (std::size_t i = whole; i < count; ++i) lane[i - whole] = fold(lane[i - whole], term(i));
  return lane;
}

template <class Term>
double lane_sum(std::size_t count, Term term) {
  const auto add = [](double sum, double x) { return sum + x; };
  const auto lane = fold_lanes(count, 0.0, term, add);
  return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

// How many of the conditions hold; a double counts exactly far beyond any chunk.
template <class Condition>
std::int64_t lane_count(std::size_t count, Condition condition) {
  const auto one_if = [=](std::size_t i) { return condition(i) ? 1.0 : 0.0; };
  return static_cast<std::int64_t>(lane_sum(count, one_if));
}

// The greatest term, or `start` if that is greater. No term may be NaN.
template <class Term>
double lane_max(std::size_t count, double start, Term term) {
  const auto greater = [](double a, double b) { return b > a ? b : a; };
  const auto lane = fold_lanes(count, start, term, greater);
  return *std::max_element(lane.begin(), lane.end());
}

inline double merge(double left, double right) { return left + right; }

// Merges what the chunks yield, given in order, as a tree that depends on their number alone.
// `Part` has a default that changes nothing and a free function merge(left, right).
template <class Part>
class Tree {
 public:
  void push(Part part) {
    std::size_t level = 0;
    while (!stack_.empty() && stack_.back().first == level) {
      part = merge(stack_.back().second, part);
      stack_.pop_back();
      ++level;
    }
    stack_.emplace_back(level, std::move(part));
  }

  Part total() const {
    if (stack_.empty()) return Part{};
    Part all = stack_.back().second;
    for (std::size_t k = stack_.size() - 1; k-- > 0;) all = merge(stack_[k].second, all);
    return all;
  }

 private:
  std::vector<std::pair<std::size_t, Part>> stack_;
};

// Count, mean and sum of squared deviations from it. The mean is the unevaluated sum of a member of
// the data and a small rest, so that deviations survive an offset: 1e7 with a spread of 1.
struct Moments {
  double count = 0;
  double base = 0;
  double rest = 0;
  double squared_deviations = 0;
};

inline Moments merge(const Moments& left, const Moments& right) {
  if (left.count == 0) return right;
  if (right.count == 0) return left;
  const double count = left.count + right.count;
  const double apart = (right.base - left.base) + (right.rest - left.rest);
  return {count, left.base, left.rest + apart * (right.count / count),
          left.squared_deviations + right.squared_deviations +
              apart * apart * (left.count * (right.count / count))};
}

// Two passes over one chunk: value(i) + low(i).
template <class Value, class Low>
Moments moments_of(std::size_t count, Value value, Low low) {
  if (count == 0) return {};
  const auto n = static_cast<double>(count);
  const double base = value(0);
  const double base_low = low(0);
  const auto offset = [=](std::size_t i) { return (value(i) - base) + (low(i) - base_low); };
  const double mean = lane_sum(count, offset) / n;
  const double slip = lane_sum(count, [=](std::size_t i) { return offset(i) - mean; });
  const double squares = lane_sum(count, [=](std::size_t i) {
    const double deviation = offset(i) - mean;
    return deviation * deviation;
  });
  return {n, base, base_low + (mean + slip / n), squares - slip * slip / n};
}

}  // namespace syncpoint
