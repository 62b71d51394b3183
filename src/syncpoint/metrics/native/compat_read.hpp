// A block of any stored type as floats, rounded once, as NumPy casts. Included once for each
// instruction set.
#pragma once

#include <algorithm>
#include <cstring>

#include "block_read.hpp"
#include "compat.hpp"
#include "decode.hpp"

namespace syncpoint::SYNCPOINT_ISA {

template <class Stored, class Convert>
SYNCPOINT_INLINE void cast_all(const std::byte* from, std::size_t count, float* to,
                               Convert convert) {
  for (std::size_t i = 0; i < count; ++i) {
    Stored stored;
    std::memcpy(&stored, from + i * sizeof(Stored), sizeof(Stored));
    to[i] = convert(stored);
  }
}

template <class Stored>
SYNCPOINT_INLINE void cast_all(const std::byte* from, std::size_t count, float* to) {
  cast_all<Stored>(from, count, to, [](Stored stored) { return static_cast<float>(stored); });
}

SYNCPOINT_HOT inline void cast_block(const Operand& operand, const std::byte* from,
                                     std::size_t count, float* to) {
  switch (operand.dtype) {
    case DType::f64:
      return cast_all<double>(from, count, to);
    case DType::i64:
      return cast_all<std::int64_t>(from, count, to);
    case DType::i32:
      return cast_all<std::int32_t>(from, count, to);
    case DType::i16:
      return cast_all<std::int16_t>(from, count, to);
    case DType::u64:
      return cast_all<std::uint64_t>(from, count, to);
    case DType::u32:
      return cast_all<std::uint32_t>(from, count, to);
    case DType::u16:
      return cast_all<std::uint16_t>(from, count, to);
    case DType::boolean:
      return cast_all<std::uint8_t>(from, count, to,
                                    [](std::uint8_t byte) { return byte ? 1.0f : 0.0f; });
    case DType::i4:
    case DType::u4: {
      const bool has_sign = operand.dtype == DType::i4;
      for (std::size_t i = 0; i < count; ++i) {
        const auto byte = static_cast<unsigned>(from[operand.packed ? i / 2 : i]);
        const auto nibble = static_cast<std::uint8_t>(operand.packed ? byte >> (i % 2 * 4) : byte);
        to[i] = static_cast<float>(has_sign ? decode_i4(nibble) : decode_u4(nibble));
      }
      return;
    }
    default:
      std::fill(to, to + count, std::numeric_limits<float>::quiet_NaN());  // refused before
  }
}

// One side of a pair, a block at a time.
class FloatReader {
 public:
  explicit FloatReader(const Operand& operand)
      : operand_(operand), source_(operand, kWindow), side_{operand.dtype} {}

  // Elements [begin, begin + count), begin even and count <= kBlock. The floats after them, up to
  // a multiple of 8, may be read too.
  const float* read(std::int64_t begin, std::size_t count) {
    if (operand_.dtype == DType::f32 && count % 8 == 0) {
      return reinterpret_cast<const float*>(source_.read(begin, count));
    }
    if (is_lane_type(operand_.dtype)) return read_floats(source_, side_, begin, count, buffer_);
    cast_block(operand_, source_.read(begin, count), count, buffer_);
    std::fill(buffer_ + count, buffer_ + (count + kStride - 1) / kStride * kStride, 0.0f);
    return buffer_;
  }

 private:
  static constexpr std::size_t kWindow = 16 << 20;

  const Operand& operand_;
  Source source_;
  LaneSide side_;
  alignas(64) float buffer_[kBlock + LaneBuffers::kMargin];
};

}  // namespace syncpoint::SYNCPOINT_ISA
