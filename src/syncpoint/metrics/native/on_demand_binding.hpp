// The on-demand numbers as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

namespace syncpoint {

void bind_on_demand(nanobind::module_& m);

}  // namespace syncpoint
