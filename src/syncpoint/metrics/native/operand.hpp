// One side of a pair as the kernel sees it: memory it reads in place and never owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace syncpoint {

// Element types, by the names of `syncpoint.run.dtypes`.
enum class DType {
  f64,
  f32,
  f16,
  bf16,
  f8_e4m3fn,
  f8_e5m2,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  i4,
  u4,
  boolean,
  c64,
  c128,
};

// Throws std::invalid_argument for a name that is not known.
DType dtype_named(std::string_view name);

// Bytes of one element; int4 and uint4 take one when they are not packed.
std::size_t itemsize(DType dtype);

inline bool is_complex(DType dtype) { return dtype == DType::c64 || dtype == DType::c128; }

// 64-bit integers need a second double: a double alone is exact only to 2^53.
inline bool is_wide(DType dtype) { return dtype == DType::i64 || dtype == DType::u64; }

// real = scale * (stored - zero_point), or scale * table[stored - zero_point]. Scale and zero point
// are one for all elements, or change along one axis, every `block` of its indices.
struct Quantization {
  std::vector<double> scale;       // empty: the operand is not quantized
  std::vector<double> zero_point;  // one for all, or one for each scale
  std::vector<double> table;       // empty: no look-up table
  std::int64_t inner = 1;          // elements under one index of the axis
  std::int64_t length = 1;         // indices of the axis
  std::int64_t block = 1;          // neighbouring indices that share a scale

  bool present() const { return !scale.empty(); }
};

// A dense row-major tensor inside a file, which the kernel maps itself, a window at a time.
struct FileRegion {
  std::string path;
  std::int64_t offset = 0;
  std::int64_t nbytes = 0;
};

struct Operand {
  const std::byte* data = nullptr;  // null where `file` is given
  std::shared_ptr<const FileRegion> file;
  DType dtype = DType::f64;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // in bytes; any sign, 0 repeats an element
  bool swapped = false;               // bytes are in the other order than this machine's
  bool packed = false;                // two 4-bit elements a byte, low nibble first, dense
  double mask_below = -std::numeric_limits<double>::infinity();
  Quantization quantization;

  std::int64_t count() const {
    std::int64_t product = 1;
    for (std::int64_t extent : shape) product *= extent;
    return product;
  }
};

}  // namespace syncpoint
