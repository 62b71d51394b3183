#include "job.hpp"

#include <algorithm>
#include <cmath>
#include <exception>

#include "summation.hpp"

namespace syncpoint {
namespace {

template <class Visit>
void each_chunk(std::int64_t begin, std::int64_t end, Visit visit) {
  constexpr auto kStep = static_cast<std::int64_t>(kChunk);
  for (; begin < end; begin += kStep) {
    visit(begin, static_cast<std::size_t>(std::min(end - begin, kStep)));
  }
}

void report_side(const SideSums& sums, int scaling, SideSumsResult& side) {
  side.sum = {sums.sum, -scaling};
  side.sum_squares = {sums.squares, -2 * scaling};
  side.sum_squared_deviations = {sums.moments.squared_deviations, -2 * scaling};
}

}  // namespace

Job::Job(const Pair& pair, const Options& options, Result& result)
    : pair_(pair), options_(options), result_(result), lanes_(plan_lanes(pair, options.tier)) {
  result_.count = pair.target.count();
  parts_.resize(static_cast<std::size_t>((result_.count + kGroupElements - 1) / kGroupElements));
  if (groups() > 1) histogram_ = std::make_unique<ErrorHistogram>();
}

void Job::run(Pass pass, std::int64_t group, Workspace& workspace) {
  try {
    run_group(pass, group, workspace);
  } catch (const Unreadable& failure) {
    const std::lock_guard<std::mutex> hold(lock_);
    if (result_.failure.empty()) result_.failure = failure.what();
  }
}

void Job::run_group(Pass pass, std::int64_t group, Workspace& workspace) {
  const std::int64_t begin = group * kGroupElements;
  const std::int64_t end = std::min(begin + kGroupElements, result_.count);
  workspace.tally.clear();
  const Part part =
      lanes_ ? run_lanes(pass, begin, end, workspace) : run_general(pass, begin, end, workspace);
  parts_[static_cast<std::size_t>(group)] = part;
  if (pass == Pass::first) absorb(workspace.tally);
}

Job::Part Job::run_lanes(Pass pass, std::int64_t begin, std::int64_t end, Workspace& workspace) {
  const LaneKernel& kernel = lane_kernel();
  Source target(pair_.target, workspace.window);
  Source reference(pair_.reference, workspace.window);
  const LaneSources sources{target, reference};
  if (pass == Pass::second) {
    const bool all_compared = result_.counts.compared == result_.count;
    Tree<SecondSums> tree;
    each_chunk(begin, end, [&](std::int64_t at, std::size_t count) {
      tree.push(
          kernel.look_again(*lanes_, sources, at, count, workspace.buffers, all_compared, look_));
    });
    return {{}, tree.total()};
  }
  LaneMemory memory;
  if (end - begin <= static_cast<std::int64_t>(kChunk)) {
    return {kernel.measure(*lanes_, sources, begin, static_cast<std::size_t>(end - begin),
                           workspace.buffers, memory, workspace.tally)};
  }
  Tree<Sums> tree;
  each_chunk(begin, end, [&](std::int64_t at, std::size_t count) {
    tree.push(
        kernel.measure(*lanes_, sources, at, count, workspace.buffers, memory, workspace.tally));
  });
  return {tree.total()};
}

Job::Part Job::run_general(Pass pass, std::int64_t begin, std::int64_t end, Workspace& workspace) {
  GeneralPath path(pair_, options_.tier, workspace.window);
  if (pass == Pass::second) {
    Tree<SecondSums> tree;
    each_chunk(begin, end, [&](std::int64_t at, std::size_t count) {
      tree.push(path.look_again(at, count, scaling_, look_));
    });
    return {{}, tree.total()};
  }
  Tree<Sums> tree;
  each_chunk(begin, end, [&](std::int64_t at, std::size_t count) {
    tree.push(pass == Pass::first ? path.measure(at, count, workspace.tally)
                                  : path.measure_scaled(at, count, scaling_));
  });
  return {tree.total()};
}

void Job::absorb(const Tally& tally) {
  const std::lock_guard<std::mutex> hold(lock_);
  result_.counts.merge(tally.counts);
  if (groups() == 1) {
    result_.error_histogram = tally.errors.bins();
  } else {
    histogram_->merge(tally.errors);
  }
}

bool Job::needs(Pass pass) const {
  if (!result_.failure.empty()) return false;
  switch (pass) {
    case Pass::first:
      return true;
    case Pass::scaled:
      return scaling_.any();
    case Pass::second:
      return look_.robust || look_.bulk;
  }
  return false;
}

void Job::finish(Pass pass) {
  if (!result_.failure.empty()) return;
  if (pass == Pass::second) {
    Tree<SecondSums> tree;
    for (const Part& part : parts_) tree.push(part.second);
    report_second(tree.total());
    return;
  }
  const Sums sums = total_sums();
  if (pass == Pass::first) {
    result_.sum_relative =
        sums.great_relative > 0
            ? Scaled{sums.great_relative + sums.relative * kGreatScale, kGreatExponent}
            : Scaled{sums.relative, 0};
    if (histogram_) result_.error_histogram = histogram_->bins();
    scaling_ = {scaling_for(sums.target.greatest), scaling_for(sums.reference.greatest),
                scaling_for(std::max(sums.max_abs, 0.0)), scaling_for(sums.max_steps)};
  }
  report(sums);
  decide_robust(sums);
  decide_bulk(sums);
}

Sums Job::total_sums() const {
  if (parts_.size() == 1) return parts_[0].sums;
  Tree<Sums> tree;
  for (const Part& part : parts_) tree.push(part.sums);
  return tree.total();
}

void Job::report(const Sums& sums) {
  report_side(sums.target, scaling_.target, result_.target);
  report_side(sums.reference, scaling_.reference, result_.reference);
  result_.peak = {sums.reference.greatest, -scaling_.reference};
  result_.sum_abs = {sums.abs, -scaling_.difference};
  result_.sum_squares = {sums.squares, -2 * scaling_.difference};
  result_.max_abs = {sums.max_abs, -scaling_.difference};
  result_.max_abs_index = sums.max_abs_index;
  result_.dot = {sums.dot, -scaling_.target - scaling_.reference};
  result_.sum_squared_steps = {sums.step_squares, -2 * scaling_.steps};
}

void Job::decide_robust(const Sums& sums) {
  const Counts& counts = result_.counts;
  look_.robust = false;
  if (options_.tier == Tier::base || counts.compared == 0 || sums.reference.greatest == 0) return;
  if (sums.max_abs <= 0) {
    result_.has_robust = true;  // nothing differs: it is 0
    return;
  }
  const double mean =
      std::ldexp(result_.sum_relative.value /
                     static_cast<double>(std::max<std::int64_t>(counts.relative_count, 1)),
                 result_.sum_relative.exponent);
  look_.robust =
      options_.robust || counts.relative_undefined > 0 || !(mean <= options_.robust_above);
  look_.floor = 1e-3 * std::sqrt(sums.reference.squares / static_cast<double>(counts.compared));
}

// Outliers are elements far above the typical magnitude, 2^m with m the mean of floor(log2 |r|)
// over r != 0, rounded to an integer. The bulk is looked at only where they may dominate every sum,
// and where what they hide may matter.
void Job::decide_bulk(const Sums& sums) {
  constexpr int kFar = 5;        // binades from the typical magnitude to the border
  constexpr double kRaised = 8;  // from the border down to the least rms of a tensor they dominate
  constexpr int kBias = 127;
  const Counts& counts = result_.counts;
  const std::int64_t nonzero = counts.relative_count;
  look_.bulk = false;
  if (options_.tier != Tier::all || nonzero == 0) return;
  const auto typical =
      static_cast<int>((2 * counts.reference_exponents + nonzero) / (2 * nonzero)) - kBias;
  look_.border = std::ldexp(1.0, typical + kFar + scaling_.reference);
  result_.border = {1.0, typical + kFar};
  if (sums.reference.greatest < look_.border) {
    result_.outliers = 0;
    return;
  }
  const double least = look_.border / kRaised;
  const bool dominated = sums.reference.squares > static_cast<double>(nonzero) * least * least;
  look_.bulk = dominated && sums.max_abs > 0 && may_hide(sums, typical);
}

// Whether the bulk may be off by more than `bulk_below` allows, as far as is known without a look:
// its error is at most that of all elements, and its squares are at least what the mean of its
// exponents says, of which the few outliers can take no more than their greatest exponent.
bool Job::may_hide(const Sums& sums, int typical) const {
  constexpr double kLone = 7;  // the greatest error of the bulk may be so many times that share
  constexpr int kLeastTypical = -100;  // where no exponent is far below the least that is counted
  if (typical < kLeastTypical) return true;
  const double peak = std::ilogb(sums.reference.greatest) - scaling_.reference;
  const double mean = typical - 0.5;
  const double least = mean - (peak - mean) / (kFewOutliers - 1);
  const double kept = static_cast<double>(result_.counts.relative_count) *
                      (1 - 1.0 / static_cast<double>(kFewOutliers));
  const double signal = 10 * (std::log10(kept) + 2 * least * std::log10(2.0));
  const double noise = 10 * (std::log10(sums.squares) - 2 * scaling_.difference * std::log10(2.0));
  const double allowed =
      std::ldexp(kLone * std::pow(10.0, -options_.bulk_below / 20), result_.border.exponent);
  const double error = std::ldexp(sums.max_abs, -scaling_.difference);
  return !(signal - noise >= options_.bulk_below && error <= allowed);
}

void Job::report_second(const SecondSums& sums) {
  if (look_.robust) {
    result_.has_robust = true;
    result_.sum_relative_robust = {sums.robust, scaling_.reference - scaling_.difference};
  }
  if (look_.bulk) {
    result_.outliers = result_.counts.compared - sums.bulk_count;
    result_.has_bulk = true;
    result_.bulk_reference_squares = {sums.bulk_reference_squares, -2 * scaling_.reference};
    result_.bulk_error_squares = {sums.bulk_error_squares, -2 * scaling_.difference};
    result_.bulk_max_abs = {sums.bulk_max_abs, -scaling_.difference};
  }
}

void Job::run_whole(Workspace& workspace) {
  for (const Pass pass : {Pass::first, Pass::scaled, Pass::second}) {
    if (!needs(pass)) continue;
    for (std::int64_t group = 0; group < groups(); ++group) run(pass, group, workspace);
    finish(pass);
  }
}

}  // namespace syncpoint
