// The general path: pairs of any types, each element as a double or two, a chunk at a time. It
// knows complex numbers, 64-bit integers and magnitudes whose squares leave the range of a double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "elements.hpp"
#include "sums.hpp"
#include "survey.hpp"
#include "tally.hpp"

namespace syncpoint {

class GeneralPath {
 public:
  GeneralPath(const Pair& pair, Tier tier, std::size_t window)
      : pair_(pair), elements_(pair, window), terms_(chunk_of(pair)), survey_(pair, tier) {}

  // The first look at a chunk counts everything and sums it as if no square could overflow.
  Sums measure(std::int64_t begin, std::size_t count, Tally& tally) {
    elements_.load(begin, count, tally.counts);
    terms_.derive(elements_, {});
    Sums sums = sum_chunk(elements_, terms_, {}, steps());
    survey_.add(elements_, terms_, sums, tally);
    return sums;
  }

  // The sums again, with powers of two taken out.
  Sums measure_scaled(std::int64_t begin, std::size_t count, const Scaling& scaling) {
    Counts counted_before;
    elements_.load(begin, count, counted_before);
    terms_.derive(elements_, scaling);
    return sum_chunk(elements_, terms_, scaling, steps());
  }

  // The sums of the second look, all of them scaled.
  SecondSums look_again(std::int64_t begin, std::size_t count, const Scaling& scaling,
                        const SecondLook& look) {
    Counts counted_before;
    elements_.load(begin, count, counted_before);
    terms_.derive(elements_, scaling);
    const std::size_t n = elements_.size();
    const double* error = terms_.error.data();
    const double* reference = terms_.reference;
    SecondSums sums;
    if (look.robust) {
      sums.robust = lane_sum(n, [=, floor = look.floor](std::size_t i) {
        return error[i] / std::max(std::abs(reference[i]), floor);
      });
    }
    if (look.bulk) {
      const auto kept = [=, border = look.border](const double* values) {
        return [=](std::size_t i) {
          return std::abs(reference[i]) < border ? std::abs(values[i]) : 0.0;
        };
      };
      const auto size = kept(reference);
      const auto apart = kept(error);
      sums.bulk_reference_squares = lane_sum(n, [=](std::size_t i) { return size(i) * size(i); });
      sums.bulk_error_squares = lane_sum(n, [=](std::size_t i) { return apart(i) * apart(i); });
      sums.bulk_max_abs = lane_max(n, 0.0, apart);
      sums.bulk_count = lane_count(
          n, [=, border = look.border](std::size_t i) { return std::abs(reference[i]) < border; });
    }
    return sums;
  }

 private:
  const double* steps() { return pair_.step_of == StepOf::none ? nullptr : elements_.steps(); }

  const Pair& pair_;
  Elements elements_;
  Terms terms_;
  Survey survey_;
};

}  // namespace syncpoint
