// A stretch of both sides of a pair, every element in its place, and what is to become of each.
#pragma once

#include <cfenv>
#include <cstddef>
#include <cstdint>

#include "pair.hpp"
#include "reader.hpp"

namespace syncpoint {

// Elements read at once: both sides and a buffer or two stay in the nearest caches.
inline constexpr std::size_t kPiece = 4096;

// Other libraries make the processor flush subnormals to zero. The numbers here must not depend on
// that.
class PlainArithmetic {
 public:
  PlainArithmetic() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~PlainArithmetic() { std::fesetenv(&before_); }
  PlainArithmetic(const PlainArithmetic&) = delete;
  PlainArithmetic& operator=(const PlainArithmetic&) = delete;

 private:
  std::fenv_t before_;
};

class Chunk {
 public:
  Chunk(const Pair& pair, std::size_t capacity);

  void read(std::int64_t begin, std::size_t count);

  std::size_t size() const { return size_; }
  Values& target() { return target_.values(); }
  Values& reference() { return reference_.values(); }
  bool complex() { return target().complex() || reference().complex(); }

  // Finite and unmasked on both sides, all of them; nothing more need be asked.
  bool ordinary() const { return ordinary_; }

  // As the main measurement has it: masked on both sides, or nearly so; compared; or neither.
  bool masked(std::size_t i);
  bool compared(std::size_t i);

  // At or below the mask threshold of its own side, whatever the other holds.
  bool target_low(std::size_t i);
  bool reference_low(std::size_t i);

  // t - r times `factor`, a power of two; the imaginary parts likewise.
  double difference_at(std::size_t i, double factor);
  double imaginary_difference_at(std::size_t i, double factor);

 private:
  const Pair& pair_;
  Reader target_;
  Reader reference_;
  std::size_t size_ = 0;
  bool ordinary_ = true;
};

// Calls visit(begin, count) for every stretch of `count` elements in turn.
template <class Visit>
void each_piece(std::int64_t count, Visit visit) {
  constexpr auto kStep = static_cast<std::int64_t>(kPiece);
  for (std::int64_t begin = 0; begin < count; begin += kStep) {
    visit(begin, static_cast<std::size_t>(count - begin < kStep ? count - begin : kStep));
  }
}

}  // namespace syncpoint
