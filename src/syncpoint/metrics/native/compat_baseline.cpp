// The sums of compat.hpp for any processor.
#include "simd_baseline.hpp"

#define SYNCPOINT_ISA baseline
#include "compat_passes.hpp"

namespace syncpoint {

const CompatKernel kBaselineCompat{baseline::kIsaName,          baseline::compat_first,
                                   baseline::compat_second,     baseline::compat_quotients,
                                   baseline::compat_divergence, baseline::compat_both};

}  // namespace syncpoint
