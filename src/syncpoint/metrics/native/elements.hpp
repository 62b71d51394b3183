// Sorts the elements of one chunk: those that enter the sums, and those that are only counted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "pair.hpp"
#include "reader.hpp"

namespace syncpoint {

// The unit of the summation tree, in logical elements.
inline constexpr std::size_t kChunk = 16384;

// The elements of a pair's greatest chunk; most tensors are smaller than a whole one.
inline std::size_t chunk_of(const Pair& pair) {
  return static_cast<std::size_t>(std::min<std::int64_t>(pair.target.count(), kChunk));
}

// One chunk of a pair. After `load`, the first `size` places of both sides hold the elements that
// are compared: finite on both sides, not masked, not mismatched.
class Elements {
 public:
  // `window`: bytes of a file that each side may map at once.
  Elements(const Pair& pair, std::size_t window);

  // Reads elements [begin, begin + count) and sorts them; what is left out is counted.
  void load(std::int64_t begin, std::size_t count, Counts& counts);

  std::size_t size() const { return size_; }
  std::int64_t logical_index(std::size_t i) const {
    return begin_ + static_cast<std::int64_t>(dense_ ? i : place_[i]);
  }
  const Values& target() { return target_.values(); }
  const Values& reference() { return reference_.values(); }
  bool complex() { return target().complex() || reference().complex(); }
  bool wide() { return target().wide || reference().wide; }

  // The signed difference of the real parts, and of the imaginary parts, times `factor`, a power of
  // two. Scaling down comes before the subtraction, which might overflow; scaling up after it.
  double real_difference(std::size_t i, double factor);
  double imaginary_difference(std::size_t i, double factor);

  // Quantization step at each compared element.
  const double* steps();

 private:
  enum class Fate { compared, masked, equal, mismatched };

  Fate fate_of(std::size_t i);
  bool agree_as_masks(std::size_t i);
  bool all_ordinary(std::size_t count);
  void count_everywhere(std::size_t count, Counts& counts);
  void sift(std::size_t count, Counts& counts);

  const Pair& pair_;
  Reader target_;
  Reader reference_;
  std::int64_t begin_ = 0;
  std::size_t size_ = 0;
  std::size_t loaded_ = 0;
  bool dense_ = true;                 // nothing was left out
  std::vector<std::uint32_t> place_;  // where each kept element was in the chunk
  std::vector<double> steps_;
};

}  // namespace syncpoint
