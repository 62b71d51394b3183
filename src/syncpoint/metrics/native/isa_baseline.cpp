// The fast path for any processor.
#include "simd_baseline.hpp"

#define SYNCPOINT_ISA baseline
#include "block_chunk.hpp"

namespace syncpoint {

const LaneKernel kBaselineKernel{baseline::kIsaName, baseline::measure_chunk,
                                 baseline::look_again_chunk, baseline::fold_bytes};

}  // namespace syncpoint
