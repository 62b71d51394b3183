// All the numbers of one pair, of many pairs on several threads, and of one tensor alone.
#pragma once

#include <vector>

#include "pair.hpp"

namespace syncpoint {

Result measure(const Pair& pair);

// Threads take whole pairs; 0 means one for each core.
std::vector<Result> measure_all(const std::vector<Pair>& pairs, unsigned threads);

// Over the finite elements; masks mean nothing for a tensor alone.
struct Description {
  std::int64_t count = 0;
  std::int64_t finite = 0;
  SideResult side;
};

Description describe(const Operand& operand);

}  // namespace syncpoint
