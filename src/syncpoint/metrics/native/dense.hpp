// Copies elements that lie in memory in any order into row-major order without gaps. Device layouts
// put a few channels innermost, so that going through such a tensor row by row reads two bytes here
// and two there; tiles that are turned in registers read and write whole vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace syncpoint {

// `strides` in bytes, of any sign; `size`: bytes of an element, 1, 2, 4, 8 or 16. `to` has room for
// all elements and does not overlap them.
void copy_dense(const std::byte* from, const std::vector<std::int64_t>& shape,
                const std::vector<std::int64_t>& strides, std::size_t size, std::byte* to);

}  // namespace syncpoint
