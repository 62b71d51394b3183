// The numbers of a pair that cost more than they are mostly worth: asked for one at a time, and
// for pairs that are not close. One thread a call; the bits do not depend on strides.
#pragma once

#include <cstdint>
#include <vector>

#include "pair.hpp"

namespace syncpoint {

// Slices of the tensor along one axis: the elements that share an index of it.
struct SliceAxis {
  std::int64_t length = 1;  // how many slices
  std::int64_t inner = 1;   // elements that follow each other under one index
};

// The slice whose ‖d‖ / max(‖r‖, 0.1 × rms of all ‖r‖) is greatest, over its compared elements.
struct WorstSlice {
  std::int64_t index = -1;  // -1: nothing was compared, or the reference is all zero
  double rel_l2 = 0;
};

// One for each axis, in one reading.
std::vector<WorstSlice> worst_slices(const Pair& pair, const std::vector<SliceAxis>& axes);

// Extrema of the elements of both sides that are finite and no mask.
struct ValueRange {
  double least = std::numeric_limits<double>::infinity();
  double greatest = -std::numeric_limits<double>::infinity();
};

ValueRange value_range(const Pair& pair);

// The elements of one side: each is in exactly one of these.
struct ValueCounts {
  std::vector<std::int64_t> bins;
  std::int64_t masked = 0;
  std::int64_t non_finite = 0;
};

struct Histograms {
  ValueCounts target;
  ValueCounts reference;
};

// Bin i holds edges[i] <= x < edges[i + 1], the last one its upper edge too. The edges must span
// the range of the values and not descend; without edges there are no bins.
Histograms value_histograms(const Pair& pair, const std::vector<double>& edges);

// KL(softmax r || softmax t) of every row of `length` elements that follow each other.
struct RowDivergence {
  std::int64_t rows = 0;       // with a distribution on both sides
  std::int64_t undefined = 0;  // NaN or +inf somewhere, or nothing that is not masked
  double sum = 0;
  double greatest = 0;
  std::int64_t greatest_row = -1;
};

RowDivergence softmax_divergence(const Pair& pair, std::int64_t length);

// KL(P || Q) of the compared elements as one distribution each, P of the target: scaled to [0, 1],
// floored at the epsilon of float32, divided by their sum.
struct Divergence {
  std::int64_t count = 0;
  double value = 0;
};

Divergence minmax_divergence(const Pair& pair);

// Whether the places with the greatest target scores are those with the greatest reference scores.
struct Agreement {
  std::int64_t rows = 0;
  std::int64_t undefined = 0;  // NaN somewhere, or nothing that is not masked
  std::int64_t first = 0;      // rows whose first place agrees
  double overlap = 0;          // sum over the rows of the share of the k places that agree
};

Agreement rank_agreement(const Pair& pair, std::int64_t length, std::int64_t k);

}  // namespace syncpoint
