#include "compat.hpp"

#include <string_view>

#include "lanes.hpp"

namespace syncpoint {

const CompatKernel& compat_kernel() {
#ifdef SYNCPOINT_HAS_AVX2
  if (std::string_view(lane_kernel().name) == kAvx2Compat.name) return kAvx2Compat;
#endif
  return kBaselineCompat;
}

}  // namespace syncpoint
