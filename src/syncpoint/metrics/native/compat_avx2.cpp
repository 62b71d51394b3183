// The sums of compat.hpp for processors with AVX2, FMA and F16C; nothing here may run on others.
#include "simd_avx2.hpp"

#define SYNCPOINT_ISA avx2
#include "compat_passes.hpp"

namespace syncpoint {

const CompatKernel kAvx2Compat{avx2::kIsaName,         avx2::compat_first,      avx2::compat_second,
                               avx2::compat_quotients, avx2::compat_divergence, avx2::compat_both};

}  // namespace syncpoint
