// The fast path for processors with AVX2, FMA and F16C; nothing here may run on others.
#include "simd_avx2.hpp"

#define SYNCPOINT_ISA avx2
#include "block_chunk.hpp"

namespace syncpoint {

const LaneKernel kAvx2Kernel{avx2::kIsaName, avx2::measure_chunk, avx2::look_again_chunk,
                             avx2::fold_bytes};

}  // namespace syncpoint
