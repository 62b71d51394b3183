// The fast path: pairs whose stored elements are floats of 32 bits or fit into them exactly,
// perhaps times one scale. A block of both sides is held as floats in the first level of cache and
// read by a few loops of vector instructions; every sum is in double precision.
//
// The loops exist once for each instruction set (`block_loops.hpp`, compiled by `isa_*.cpp`); which
// of them runs is decided when the library is loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "pair.hpp"
#include "source.hpp"
#include "sums.hpp"
#include "tally.hpp"

namespace syncpoint {

// One side: value = scale * (stored - zero), where stored - zero is a float without rounding.
struct LaneSide {
  DType dtype = DType::f32;
  double scale = 1;
  float zero = 0;
  float low = 0;  // at or below this a value is a mask
  bool may_mask = false;
};

// Which loop finds the greatest distance in units in the last place.
enum class UlpLoop {
  none,
  floats,  // f32 or bf16: a part of the distance in f32, as both have the same exponents
  halves,  // f16
  any,     // every format, in double precision
};

struct LanePlan {
  LaneSide target;
  LaneSide reference;
  bool float_scales = false;  // both scales are floats
  double rtol = 0;
  double atol = 0;
  double mask_rtol = 0;
  double overflow_limit = 0;
  Tier tier = Tier::all;
  UlpLoop ulp = UlpLoop::none;
  bool ulp_is_error = false;  // both sides are integers: the distance is the difference
  int mantissa = 0;
  int min_exponent = 0;
  double step = 0;  // the quantization step of `lsb`; 0: none
};

// None if the pair has to take the general path.
std::optional<LanePlan> plan_lanes(const Pair& pair, Tier tier);

// Room for one block of a thread. Loops read and write whole vectors, hence the margin.
struct LaneBuffers {
  static constexpr std::size_t kMargin = 32;
  alignas(64) float target[kBlock + kMargin];
  alignas(64) float reference[kBlock + kMargin];
  alignas(64) float kept_target[kBlock + kMargin];
  alignas(64) float kept_reference[kBlock + kMargin];
  alignas(64) double error[kBlock + kMargin];
  alignas(64) std::uint8_t exponent[kBlock + kMargin];
  alignas(64) std::uint32_t place[kBlock + kMargin];
};

// What a thread remembers from chunk to chunk of a pair. It saves work and changes no result.
struct LaneMemory {
  double max_abs = -1;          // only greater errors need their place looked up
  bool expect_unusual = false;  // the last block held something that is not compared
  bool expect_zeros = false;    // the last block had zeros in the reference
};

struct LaneSources {
  Source& target;
  Source& reference;
};

struct LaneKernel {
  const char* name;

  // One chunk of at most kChunk elements. Chunks of one pair must come in ascending order for one
  // and the same memory: errors no greater than those before them leave no trace in the sums.
  Sums (*measure)(const LanePlan& plan, const LaneSources& sources, std::int64_t begin,
                  std::size_t count, LaneBuffers& buffers, LaneMemory& memory, Tally& tally);

  // The second look at one chunk; `all_compared`: nothing has to be left out.
  SecondSums (*look_again)(const LanePlan& plan, const LaneSources& sources, std::int64_t begin,
                           std::size_t count, LaneBuffers& buffers, bool all_compared,
                           const SecondLook& look);

  // Reads memory and does nothing with it.
  std::uint64_t (*fold_bytes)(const std::byte* bytes, std::size_t count);
};

extern const LaneKernel kBaselineKernel;
#ifdef SYNCPOINT_HAS_AVX2
extern const LaneKernel kAvx2Kernel;
#endif

// The kernel in use: the best that this processor can run, or what SYNCPOINT_ISA names.
const LaneKernel& lane_kernel();

// Whether the elements of a type fit into the floats that the lanes compute with.
bool is_lane_type(DType dtype);

// Floats of the 256 codes of an 8-bit float type.
const float* small_float_table(DType dtype);

}  // namespace syncpoint
