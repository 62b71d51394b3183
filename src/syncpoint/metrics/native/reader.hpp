// Reads a stretch of an operand's elements, in row-major logical order, as doubles.
#pragma once

#include <cstdint>
#include <vector>

#include "operand.hpp"

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
  // The operand must outlive the reader. `capacity`: the greatest count that will be read at once.
  Reader(const Operand& operand, std::size_t capacity);

  // Elements [begin, begin + count); overwrites the last ones.
  const Values& read(std::int64_t begin, std::size_t count);

  // The magnitude of the quantization step at each of those elements.
  void steps(std::int64_t begin, std::size_t count, double* out) const;

  Values& values() { return values_; }

 private:
  // One axis; neighbours that are dense in each other are joined into one.
  struct Axis {
    std::int64_t extent;
    std::int64_t stride;
  };

  void read_strided(std::int64_t begin, std::size_t count);
  void read_packed(std::int64_t begin, std::size_t count);
  void dequantize(std::int64_t begin, std::size_t count);
  void decode(const std::byte* source, std::int64_t stride, std::size_t count, std::size_t at);

  const Operand& operand_;
  std::vector<Axis> axes_;
  Values values_;
};

}  // namespace syncpoint
