// A block as floats, whatever its stored type. Included once for each instruction set.
#pragma once

#include <cstring>

#include "block_loops.hpp"

namespace syncpoint::SYNCPOINT_ISA {

SYNCPOINT_INLINE double value(const LaneSide& side, float stored) {
  return static_cast<double>(stored) * side.scale;
}

SYNCPOINT_INLINE float float_at(const float* p, std::size_t i) {
  float x;
  std::memcpy(&x, p + i, sizeof x);
  return x;
}

template <std::size_t Size, class Convert>
SYNCPOINT_INLINE void convert_all(const std::byte* from, std::size_t count, float* to,
                                  Convert convert) {
  std::size_t i = 0;
#pragma GCC unroll 4
  for (; i + 8 <= count; i += 8) store8(to + i, convert(from + i * Size));
  if (i == count) return;
  std::byte rest[8 * Size] = {};
  std::memcpy(rest, from + i * Size, (count - i) * Size);
  store8(to + i, convert(rest));
}

// A block as floats: in place where it lies so in memory, else in `buffer`.
SYNCPOINT_HOT inline const float* read_floats(Source& source, const LaneSide& side,
                                              std::int64_t begin, std::size_t count,
                                              float* buffer) {
  const std::byte* from = source.read(begin, count);
  const std::size_t padded = (count + kStride - 1) / kStride * kStride;
  const F32x8 zero = all8(side.zero);
  switch (side.dtype) {
    case DType::f16:
      convert_all<2>(from, count, buffer, [](const std::byte* p) { return from_f16(p); });
      break;
    case DType::bf16:
      convert_all<2>(from, count, buffer, [](const std::byte* p) { return from_bf16(p); });
      break;
    case DType::i8:
      convert_all<1>(from, count, buffer,
                     [zero](const std::byte* p) { return sub8(from_i8(p), zero); });
      break;
    case DType::u8:
      convert_all<1>(from, count, buffer,
                     [zero](const std::byte* p) { return sub8(from_u8(p), zero); });
      break;
    case DType::f8_e4m3fn:
    case DType::f8_e5m2: {
      const float* table = small_float_table(side.dtype);
      for (std::size_t i = 0; i < count; ++i) buffer[i] = table[static_cast<unsigned>(from[i])];
      break;
    }
    default:
      if (padded == count) return reinterpret_cast<const float*>(from);
      std::memcpy(buffer, from, count * sizeof(float));
  }
  for (std::size_t i = count; i < padded; ++i) buffer[i] = 0;
  return buffer;
}

}  // namespace syncpoint::SYNCPOINT_ISA
