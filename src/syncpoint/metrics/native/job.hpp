// One pair on its way through the kernel: which passes it needs, and its parts put together.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "general.hpp"
#include "lanes.hpp"
#include "measure.hpp"

namespace syncpoint {

// Chunks that a thread takes at once. A power of two: a group is then a whole branch of the tree
// over the chunks, and only its root is kept.
inline constexpr std::int64_t kGroup = 32;
inline constexpr std::int64_t kGroupElements = kGroup * static_cast<std::int64_t>(kChunk);

// What one thread keeps from task to task.
struct Workspace {
  std::size_t window = 0;  // bytes of a file that one side of a pair may map
  LaneBuffers buffers;
  Tally tally;
};

// A pair is read once; again where magnitudes ask for scaling; and once more for the robust
// relative error and the bulk, whose floor and border are known only when the reference has been
// seen whole.
enum class Pass { first, scaled, second };

class Job {
 public:
  Job(const Pair& pair, const Options& options, Result& result);

  std::int64_t groups() const { return static_cast<std::int64_t>(parts_.size()); }

  // One group of the pass that comes next. Groups may run at the same time, on any threads. After a
  // failure no further pass is needed.
  void run(Pass pass, std::int64_t group, Workspace& workspace);

  // After all groups of a pass: puts them together. Whether `needs` the next passes is known then.
  void finish(Pass pass);
  bool needs(Pass pass) const;

  // All passes, on this thread.
  void run_whole(Workspace& workspace);

 private:
  struct Part {
    Sums sums;
    SecondSums second{};
  };

  void run_group(Pass pass, std::int64_t group, Workspace& workspace);
  Part run_lanes(Pass pass, std::int64_t begin, std::int64_t end, Workspace& workspace);
  Part run_general(Pass pass, std::int64_t begin, std::int64_t end, Workspace& workspace);
  void absorb(const Tally& tally);
  Sums total_sums() const;
  void report(const Sums& sums);
  void report_second(const SecondSums& sums);
  void decide_robust(const Sums& sums);
  void decide_bulk(const Sums& sums);
  bool may_hide(const Sums& sums, int typical) const;

  const Pair& pair_;
  const Options& options_;
  Result& result_;
  std::optional<LanePlan> lanes_;
  std::vector<Part> parts_;  // one for each group
  std::mutex lock_;
  std::unique_ptr<ErrorHistogram> histogram_;  // of all groups, if there is more than one
  Scaling scaling_;
  SecondLook look_;  // floor and border are scaled as the reference is
};

}  // namespace syncpoint
