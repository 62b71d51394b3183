// The sums of compat.hpp as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

namespace syncpoint {

void bind_compat(nanobind::module_& m);

}  // namespace syncpoint
