// Reads a stretch of an operand's elements, in row-major logical order, as doubles.
#pragma once

#include <cstdint>
#include <vector>

#include "operand.hpp"
#include "source.hpp"

namespace syncpoint {

// The elements of one chunk: value = re + lo + i * im.
struct Values {
  std::vector<double> re;
  std::vector<double> lo;  // what re lacks of a 64-bit integer; empty for all other types
  std::vector<double> im;  // empty for real types
  bool wide = false;       // some lo is not zero

  bool complex() const { return !im.empty(); }
};

class Reader {
 public:
  // The operand must outlive the reader. `capacity`: the greatest count that will be read at once;
  // `window`: see Source.
  Reader(const Operand& operand, std::size_t capacity, std::size_t window);

  // Elements [begin, begin + count); overwrites the last ones.
  const Values& read(std::int64_t begin, std::size_t count);

  // The magnitude of the quantization step at each of those elements.
  void steps(std::int64_t begin, std::size_t count, double* out) const;

  Values& values() { return values_; }

 private:
  void unpack(const std::byte* source, std::size_t count, std::size_t at);
  void dequantize(std::int64_t begin, std::size_t count);
  void decode(const std::byte* source, std::size_t count, std::size_t at);

  const Operand& operand_;
  Source source_;
  Values values_;
};

}  // namespace syncpoint
