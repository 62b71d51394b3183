#include "measure.hpp"

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <deque>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>

#include "job.hpp"

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

// Runs work(task, workspace) for tasks 0 ... count - 1, each taken by whichever thread is free.
class Crew {
 public:
  Crew(unsigned threads, std::size_t window) : threads_(std::max(1u, threads)), window_(window) {}

  template <class Work>
  void run(std::size_t count, Work work) {
    const auto threads = static_cast<unsigned>(std::min<std::size_t>(threads_, count));
    while (workspaces_.size() < std::max(1u, threads)) {
      workspaces_.push_back(std::make_unique<Workspace>());
      // Both sides of every thread's pair share what may be mapped.
      workspaces_.back()->window = window_ / (2 * threads_);
    }
    std::atomic<std::size_t> next{0};
    std::exception_ptr failure;
    std::mutex failure_lock;
    const auto loop = [&](Workspace& workspace) {
      const DefaultArithmetic arithmetic;
      try {
        for (std::size_t task = next++; task < count; task = next++) work(task, workspace);
      } catch (...) {
        const std::lock_guard<std::mutex> hold(failure_lock);
        failure = std::current_exception();
      }
    };
    {
      std::vector<std::jthread> others;
      for (unsigned i = 1; i < threads; ++i) others.emplace_back(loop, std::ref(*workspaces_[i]));
      loop(*workspaces_[0]);
    }
    if (failure) std::rethrow_exception(failure);
  }

 private:
  unsigned threads_;
  std::size_t window_;
  std::vector<std::unique_ptr<Workspace>> workspaces_;
};

// Pairs of several groups, pass by pass, so that every thread finds work to the end.
void run_large(std::deque<Job>& jobs, Crew& crew) {
  struct Task {
    Job* job;
    std::int64_t group;
  };
  for (const Pass pass : {Pass::first, Pass::scaled, Pass::second}) {
    std::vector<Task> tasks;
    for (Job& job : jobs) {
      if (!job.needs(pass)) continue;
      for (std::int64_t group = 0; group < job.groups(); ++group) tasks.push_back({&job, group});
    }
    crew.run(tasks.size(), [&](std::size_t i, Workspace& workspace) {
      tasks[i].job->run(pass, tasks[i].group, workspace);
    });
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      if (tasks[i].group == 0) tasks[i].job->finish(pass);
    }
  }
}

}  // namespace

std::vector<Result> measure_all(const std::vector<const Pair*>& pairs, const Options& options) {
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  Crew crew(options.threads ? options.threads : cores, options.window);
  std::vector<Result> results(pairs.size());

  // A pair of one group is measured by one thread while it is in the cache, many pairs at a time.
  constexpr std::size_t kAtOnce = 16;
  std::deque<Job> large;
  std::vector<std::size_t> small;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (pairs[i]->target.count() > kGroupElements) {
      large.emplace_back(*pairs[i], options, results[i]);
    } else {
      small.push_back(i);
    }
  }
  const std::size_t batches = (small.size() + kAtOnce - 1) / kAtOnce;
  const std::size_t at_once = batches >= 64 ? kAtOnce : 1;
  crew.run((small.size() + at_once - 1) / at_once, [&](std::size_t task, Workspace& workspace) {
    const std::size_t end = std::min((task + 1) * at_once, small.size());
    for (std::size_t k = task * at_once; k < end; ++k) {
      Job(*pairs[small[k]], options, results[small[k]]).run_whole(workspace);
    }
  });
  run_large(large, crew);
  return results;
}

Description describe(const Operand& operand) {
  // A tensor against itself: what is compared is then what is finite.
  Pair pair{operand, operand};
  pair.target.mask_below = pair.reference.mask_below = -std::numeric_limits<double>::infinity();
  pair.overflow_limit = std::numeric_limits<double>::infinity();
  Options options;
  options.tier = Tier::base;
  options.threads = 1;
  Description description;
  description.result = measure_all({&pair}, options)[0];
  description.finite = description.result.counts.compared;
  return description;
}

}  // namespace syncpoint
