// What is counted or compared and never added up in floating point: it may be merged in any order.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace syncpoint {

// Counts errors by floor(log2 |d|), zero left out. Bins are the exponents of doubles; only the part
// that was touched is cleared and merged, because most pairs use a few dozen of the 2100.
class ErrorHistogram {
 public:
  static constexpr int kLeast = -1074;    // the least subnormal double
  static constexpr int kGreatest = 1024;  // a difference of two doubles that overflowed

  void add(int exponent, std::int64_t count) {
    if (count == 0) return;
    low_ = std::min(low_, exponent);
    high_ = std::max(high_, exponent);
    at(exponent) += count;
  }

  void merge(const ErrorHistogram& other) {
    for (int e = other.low_; e <= other.high_; ++e) add(e, other.counts_[index(e)]);
  }

  void clear() {
    for (int e = low_; e <= high_; ++e) at(e) = 0;
    low_ = kGreatest + 1;
    high_ = kLeast - 1;
  }

  std::vector<std::pair<int, std::int64_t>> bins() const {
    std::vector<std::pair<int, std::int64_t>> bins;
    for (int e = low_; e <= high_; ++e) {
      if (counts_[index(e)]) bins.emplace_back(e, counts_[index(e)]);
    }
    return bins;
  }

 private:
  static std::size_t index(int exponent) { return static_cast<std::size_t>(exponent - kLeast); }
  std::int64_t& at(int exponent) { return counts_[index(exponent)]; }

  std::array<std::int64_t, kGreatest - kLeast + 1> counts_{};
  int low_ = kGreatest + 1;
  int high_ = kLeast - 1;
};

struct SideTally {
  std::int64_t nan = 0;
  std::int64_t inf = 0;
  std::int64_t zero = 0;
  std::int64_t overflow = 0;
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();

  void merge(const SideTally& other) {
    nan += other.nan;
    inf += other.inf;
    zero += other.zero;
    overflow += other.overflow;
    min = std::min(min, other.min);
    max = std::max(max, other.max);
  }
};

struct Counts {
  std::int64_t compared = 0;
  std::int64_t masked = 0;
  std::int64_t mismatched = 0;
  std::int64_t equal = 0;
  SideTally target;
  SideTally reference;

  std::int64_t relative_count = 0;      // compared elements whose reference is not zero
  std::int64_t relative_undefined = 0;  // reference zero, difference not
  double max_relative = 0;
  std::int64_t within_1e3 = 0;
  std::int64_t within_5e3 = 0;
  std::int64_t close = 0;
  double max_ulp = 0;
  // Over compared elements whose reference is not zero: floor(log2 |r|) + 127, at least 0.
  std::int64_t reference_exponents = 0;

  void merge(const Counts& other) {
    compared += other.compared;
    masked += other.masked;
    mismatched += other.mismatched;
    equal += other.equal;
    target.merge(other.target);
    reference.merge(other.reference);
    relative_count += other.relative_count;
    relative_undefined += other.relative_undefined;
    max_relative = std::max(max_relative, other.max_relative);
    within_1e3 += other.within_1e3;
    within_5e3 += other.within_5e3;
    close += other.close;
    max_ulp = std::max(max_ulp, other.max_ulp);
    reference_exponents += other.reference_exponents;
  }
};

struct Tally {
  Counts counts;
  ErrorHistogram errors;

  void merge(const Tally& other) {
    counts.merge(other.counts);
    errors.merge(other.errors);
  }
  void clear() {
    counts = {};
    errors.clear();
  }
};

}  // namespace syncpoint
