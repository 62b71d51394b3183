// All the numbers of many pairs on several threads, and of one tensor alone.
#pragma once

#include <cstddef>
#include <vector>

#include "pair.hpp"

namespace syncpoint {

struct Options {
  Tier tier = Tier::all;
  unsigned threads = 0;            // 0: one for each core
  std::size_t window = 64u << 20;  // bytes of files that are mapped at once, by all threads
  bool robust = false;             // the robust relative error of every pair
  double robust_above = 0;         // otherwise only where the mean relative error is greater
  double bulk_below = 0;           // the bulk only where its sqnr may be below this
};

// Threads take groups of chunks, of one pair or of many; the bits of the results do not depend on
// how many there are. A pair that cannot be read says so in its result; the others are measured.
std::vector<Result> measure_all(const std::vector<const Pair*>& pairs, const Options& options);

// Over the finite elements; masks mean nothing for a tensor alone.
struct Description {
  std::int64_t finite = 0;
  Result result;  // of the tensor against itself
};

Description describe(const Operand& operand);

}  // namespace syncpoint
