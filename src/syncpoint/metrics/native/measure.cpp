#include "measure.hpp"

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <cmath>
#include <exception>
#include <mutex>
#include <thread>

#include "elements.hpp"
#include "summation.hpp"
#include "sums.hpp"
#include "survey.hpp"

namespace syncpoint {
namespace {

// Other libraries make the processor flush subnormals to zero, for the calling thread and those it
// starts. The numbers here must not depend on that.
class DefaultArithmetic {
 public:
  DefaultArithmetic() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultArithmetic() { std::fesetenv(&before_); }
  DefaultArithmetic(const DefaultArithmetic&) = delete;
  DefaultArithmetic& operator=(const DefaultArithmetic&) = delete;

 private:
  std::fenv_t before_;
};

template <class Visit>
void each_chunk(std::int64_t count, Visit visit) {
  for (std::int64_t begin = 0; begin < count; begin += static_cast<std::int64_t>(kChunk)) {
    visit(begin, static_cast<std::size_t>(
                     std::min<std::int64_t>(count - begin, static_cast<std::int64_t>(kChunk))));
  }
}

// One pair is read once; a second time where magnitudes ask for scaling, and once more for the
// robust relative error, whose floor is known only when the reference has been seen whole.
class Measuring {
 public:
  explicit Measuring(const Pair& pair) : pair_(pair), elements_(pair), terms_(chunk_of(pair)) {
    result_.count = pair.target.count();
  }

  Result run() {
    Sums sums = first_pass();
    const Scaling scaling = scaling_of(sums);
    if (scaling.any()) sums = scaled_pass(scaling);
    report(sums, scaling);
    robust_pass(sums, scaling);
    return std::move(result_);
  }

 private:
  const double* steps() { return pair_.step_of == StepOf::none ? nullptr : elements_.steps(); }

  Sums first_pass() {
    Survey survey(pair_);
    Tree<Sums> tree;
    each_chunk(result_.count, [&](std::int64_t begin, std::size_t count) {
      elements_.load(begin, count, result_);
      terms_.derive(elements_, {});
      survey.add(elements_, terms_, result_);
      tree.push(sum_chunk(elements_, terms_, {}, steps()));
    });
    survey.finish(result_);
    return tree.total();
  }

  Scaling scaling_of(const Sums& sums) const {
    return {scaling_for(sums.target.greatest), scaling_for(sums.reference.greatest),
            scaling_for(std::max(sums.max_abs, 0.0)), scaling_for(sums.max_steps)};
  }

  Sums scaled_pass(const Scaling& scaling) {
    Tree<Sums> tree;
    Result counted_before;
    each_chunk(result_.count, [&](std::int64_t begin, std::size_t count) {
      elements_.load(begin, count, counted_before);
      terms_.derive(elements_, scaling);
      tree.push(sum_chunk(elements_, terms_, scaling, steps()));
    });
    return tree.total();
  }

  // The mean of |d| / max(|r|, 1e-3 rms r).
  void robust_pass(const Sums& sums, const Scaling& scaling) {
    if (result_.compared == 0 || sums.max_abs <= 0 || sums.reference.greatest == 0) return;
    const double floor =
        1e-3 * std::sqrt(sums.reference.squares / static_cast<double>(result_.compared));
    Tree<double> tree;
    Result counted_before;
    each_chunk(result_.count, [&](std::int64_t begin, std::size_t count) {
      elements_.load(begin, count, counted_before);
      terms_.derive(elements_, scaling);
      const double* error = terms_.error.data();
      const double* reference = terms_.reference;
      tree.push(lane_sum(elements_.size(), [=](std::size_t i) {
        return error[i] / std::max(std::abs(reference[i]), floor);
      }));
    });
    result_.sum_relative_robust = {tree.total(), scaling.reference - scaling.difference};
  }

  void report(const Sums& sums, const Scaling& scaling) {
    report_side(sums.target, scaling.target, result_.target);
    report_side(sums.reference, scaling.reference, result_.reference);
    result_.peak = {sums.reference.greatest, -scaling.reference};
    result_.sum_abs = {sums.abs, -scaling.difference};
    result_.sum_squares = {sums.squares, -2 * scaling.difference};
    result_.max_abs = {sums.max_abs, -scaling.difference};
    result_.max_abs_index = sums.max_abs_index;
    result_.dot = {sums.dot, -scaling.target - scaling.reference};
    result_.sum_squared_steps = {sums.step_squares, -2 * scaling.steps};
  }

  static void report_side(const SideSums& sums, int scaling, SideResult& side) {
    side.sum = {sums.sum, -scaling};
    side.sum_squares = {sums.squares, -2 * scaling};
    side.sum_squared_deviations = {sums.moments.squared_deviations, -2 * scaling};
  }

  const Pair& pair_;
  Elements elements_;
  Terms terms_;
  Result result_;
};

}  // namespace

Result measure(const Pair& pair) {
  const DefaultArithmetic arithmetic;
  return Measuring(pair).run();
}

std::vector<Result> measure_all(const std::vector<Pair>& pairs, unsigned threads) {
  if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
  threads = static_cast<unsigned>(std::min<std::size_t>(threads, pairs.size()));

  std::vector<Result> results(pairs.size());
  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_lock;
  const auto work = [&] {
    try {
      for (std::size_t i = next++; i < pairs.size(); i = next++) results[i] = measure(pairs[i]);
    } catch (...) {
      const std::lock_guard<std::mutex> hold(failure_lock);
      failure = std::current_exception();
    }
  };
  if (threads <= 1) {
    work();
  } else {
    std::vector<std::jthread> workers;
    for (unsigned i = 0; i < threads; ++i) workers.emplace_back(work);
  }
  if (failure) std::rethrow_exception(failure);
  return results;
}

Description describe(const Operand& operand) {
  // A tensor against itself: what is compared is then what is finite.
  Pair pair{operand, operand};
  pair.target.mask_below = pair.reference.mask_below = -std::numeric_limits<double>::infinity();
  pair.overflow_limit = std::numeric_limits<double>::infinity();
  Result result = measure(pair);
  return {result.count, result.compared, result.target};
}

}  // namespace syncpoint
