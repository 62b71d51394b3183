#include "reader.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "decode.hpp"

namespace syncpoint {
namespace {

// `step` elements of `Stored` lie between neighbours: 2 for the parts of complex numbers.
template <class Stored, class Convert>
void convert_run(const std::byte* source, std::size_t step, std::size_t count, double* out,
                 Convert convert) {
  for (std::size_t i = 0; i < count; ++i) {
    // Unaligned on purpose: tensors inside files start anywhere.
    Stored stored;
    std::memcpy(&stored, source + i * step * sizeof(Stored), sizeof(Stored));
    out[i] = convert(stored);
  }
}

template <class Stored>
double as_double(Stored stored) {
  return static_cast<double>(stored);
}

// Calls visit(scale number, first element, number of elements) for every stretch of [begin, begin +
// count) that shares a scale; element numbers count from `begin`.
template <class Visit>
void each_scale(const Quantization& q, std::int64_t begin, std::size_t count, Visit visit) {
  if (q.scale.size() == 1) {
    visit(std::size_t{0}, std::size_t{0}, count);
    return;
  }
  for (std::size_t done = 0; done < count;) {
    const std::int64_t logical = begin + static_cast<std::int64_t>(done);
    const std::int64_t index = logical / q.inner % q.length;
    const std::int64_t next = std::min((index / q.block + 1) * q.block, q.length);
    const std::int64_t left = (next - index) * q.inner - logical % q.inner;
    const std::size_t run = std::min(count - done, static_cast<std::size_t>(left));
    visit(static_cast<std::size_t>(index / q.block), done, run);
    done += run;
  }
}

}  // namespace

Reader::Reader(const Operand& operand, std::size_t capacity, std::size_t window)
    : operand_(operand), source_(operand, window) {
  values_.re.resize(capacity);
  if (is_complex(operand.dtype)) values_.im.resize(capacity);
  if (is_wide(operand.dtype)) values_.lo.resize(capacity);
}

const Values& Reader::read(std::int64_t begin, std::size_t count) {
  values_.wide = false;
  for (std::size_t done = 0; done < count; done += kBlock) {
    const std::size_t run = std::min(count - done, kBlock);
    const std::byte* bytes = source_.read(begin + static_cast<std::int64_t>(done), run);
    if (operand_.packed) {
      unpack(bytes, run, done);
    } else {
      decode(bytes, run, done);
    }
  }
  if (!values_.lo.empty()) {
    values_.wide = std::any_of(values_.lo.begin(), values_.lo.begin() + count,
                               [](double lo) { return lo != 0.0; });
  }
  if (operand_.quantization.present()) dequantize(begin, count);
  return values_;
}

void Reader::unpack(const std::byte* source, std::size_t count, std::size_t at) {
  const bool has_sign = operand_.dtype == DType::i4;
  for (std::size_t i = 0; i < count; ++i) {
    const auto nibble =
        static_cast<std::uint8_t>(static_cast<unsigned>(source[i / 2]) >> (i % 2 * 4));
    values_.re[at + i] = has_sign ? decode_i4(nibble) : decode_u4(nibble);
  }
}

void Reader::decode(const std::byte* source, std::size_t count, std::size_t at) {
  double* re = values_.re.data() + at;
  double* im = values_.im.data() + at;
  double* lo = values_.lo.data() + at;
  const std::size_t step = is_complex(operand_.dtype) ? 2 : 1;
  const auto as = [&]<class Stored>(Stored, double* out, std::size_t offset, auto convert) {
    convert_run<Stored>(source + offset, step, count, out, convert);
  };
  switch (operand_.dtype) {
    case DType::f64:
      return as(double{}, re, 0, as_double<double>);
    case DType::f32:
      return as(float{}, re, 0, as_double<float>);
    case DType::f16:
      return as(std::uint16_t{}, re, 0, decode_f16);
    case DType::bf16:
      return as(std::uint16_t{}, re, 0, decode_bf16);
    case DType::f8_e4m3fn:
      return as(std::uint8_t{}, re, 0, decode_f8_e4m3fn);
    case DType::f8_e5m2:
      return as(std::uint8_t{}, re, 0, decode_f8_e5m2);
    case DType::i64:
      as(std::int64_t{}, re, 0, as_double<std::int64_t>);
      return as(std::int64_t{}, lo, 0, beyond_double<std::int64_t>);
    case DType::u64:
      as(std::uint64_t{}, re, 0, as_double<std::uint64_t>);
      return as(std::uint64_t{}, lo, 0, beyond_double<std::uint64_t>);
    case DType::i32:
      return as(std::int32_t{}, re, 0, as_double<std::int32_t>);
    case DType::u32:
      return as(std::uint32_t{}, re, 0, as_double<std::uint32_t>);
    case DType::i16:
      return as(std::int16_t{}, re, 0, as_double<std::int16_t>);
    case DType::u16:
      return as(std::uint16_t{}, re, 0, as_double<std::uint16_t>);
    case DType::i8:
      return as(std::int8_t{}, re, 0, as_double<std::int8_t>);
    case DType::u8:
      return as(std::uint8_t{}, re, 0, as_double<std::uint8_t>);
    case DType::i4:
      return as(std::uint8_t{}, re, 0, decode_i4);
    case DType::u4:
      return as(std::uint8_t{}, re, 0, decode_u4);
    case DType::boolean:
      return as(std::uint8_t{}, re, 0, [](std::uint8_t byte) { return byte ? 1.0 : 0.0; });
    case DType::c64:
      as(float{}, re, 0, as_double<float>);
      return as(float{}, im, sizeof(float), as_double<float>);
    case DType::c128:
      as(double{}, re, 0, as_double<double>);
      return as(double{}, im, sizeof(double), as_double<double>);
  }
}

void Reader::dequantize(std::int64_t begin, std::size_t count) {
  const Quantization& q = operand_.quantization;
  double* re = values_.re.data();
  const auto size = static_cast<double>(q.table.size());
  each_scale(q, begin, count, [&](std::size_t k, std::size_t first, std::size_t run) {
    const double scale = q.scale[k];
    const double zero = q.zero_point[q.zero_point.size() == 1 ? 0 : k];
    for (std::size_t i = first; i < first + run; ++i) {
      if (!q.table.empty()) {
        // A stored number outside the table stands for nothing.
        const double at = re[i] - zero;
        re[i] = at >= 0 && at < size ? scale * q.table[static_cast<std::size_t>(at)]
                                     : std::numeric_limits<double>::quiet_NaN();
      } else if (values_.wide) {
        re[i] = scale * difference(re[i], values_.lo[i], zero, 0);
      } else {
        re[i] = scale * (re[i] - zero);
      }
    }
  });
  values_.wide = false;
}

void Reader::steps(std::int64_t begin, std::size_t count, double* out) const {
  const Quantization& q = operand_.quantization;
  each_scale(q, begin, count, [&](std::size_t k, std::size_t first, std::size_t run) {
    std::fill(out + first, out + first + run, std::abs(q.scale[k]));
  });
}

}  // namespace syncpoint
