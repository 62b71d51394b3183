// The vector vocabulary of the block loops for any processor, in plain C++. It must mean the same
// as `simd_avx2.hpp`, lane by lane; only mul_add rounds twice here.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "decode.hpp"

namespace syncpoint::baseline {

#define SYNCPOINT_INLINE inline __attribute__((always_inline))

inline constexpr const char* kIsaName = "baseline";

template <class T, int N>
struct Lanes {
  T at[N];
};
using F64x4 = Lanes<double, 4>;
using F32x8 = Lanes<float, 8>;
using I64x4 = Lanes<std::int64_t, 4>;
using I32x8 = Lanes<std::int32_t, 8>;
using U8x32 = Lanes<std::uint8_t, 32>;

template <class T, int N, class F>
SYNCPOINT_INLINE Lanes<T, N> each(F f) {
  Lanes<T, N> out;
  for (int k = 0; k < N; ++k) out.at[k] = f(k);
  return out;
}
template <int N, class F>
SYNCPOINT_INLINE unsigned bits_of(F f) {
  unsigned bits = 0;
  for (int k = 0; k < N; ++k) bits |= static_cast<unsigned>(f(k)) << k;
  return bits;
}

template <class... V>
SYNCPOINT_INLINE void pin(V&...) {}
SYNCPOINT_INLINE void prefetch(const std::byte* where) { __builtin_prefetch(where); }

// --- doubles ---

SYNCPOINT_INLINE F64x4 all(double x) {
  return each<double, 4>([=](int) { return x; });
}
SYNCPOINT_INLINE F64x4 zeros() { return all(0.0); }
SYNCPOINT_INLINE F64x4 load(const double* p) {
  return each<double, 4>([=](int k) { return p[k]; });
}
SYNCPOINT_INLINE void store(double* p, const F64x4& x) { std::memcpy(p, x.at, sizeof x.at); }
SYNCPOINT_INLINE F32x8 load8(const float* p) {
  F32x8 out;
  std::memcpy(out.at, p, sizeof out.at);
  return out;
}
SYNCPOINT_INLINE F64x4 widen(const float* p) {
  float narrow[4];
  std::memcpy(narrow, p, sizeof narrow);
  return each<double, 4>([&](int k) { return static_cast<double>(narrow[k]); });
}
SYNCPOINT_INLINE F64x4 add(const F64x4& a, const F64x4& b) {
  return each<double, 4>([&](int k) { return a.at[k] + b.at[k]; });
}
SYNCPOINT_INLINE F64x4 sub(const F64x4& a, const F64x4& b) {
  return each<double, 4>([&](int k) { return a.at[k] - b.at[k]; });
}
SYNCPOINT_INLINE F64x4 mul(const F64x4& a, const F64x4& b) {
  return each<double, 4>([&](int k) { return a.at[k] * b.at[k]; });
}
SYNCPOINT_INLINE F64x4 div(const F64x4& a, const F64x4& b) {
  return each<double, 4>([&](int k) { return a.at[k] / b.at[k]; });
}
SYNCPOINT_INLINE F64x4 max(const F64x4& a, const F64x4& b) {
  return each<double, 4>([&](int k) { return a.at[k] > b.at[k] ? a.at[k] : b.at[k]; });
}
SYNCPOINT_INLINE F64x4 mul_add(const F64x4& a, const F64x4& b, const F64x4& c) {
  return each<double, 4>([&](int k) { return a.at[k] * b.at[k] + c.at[k]; });
}
SYNCPOINT_INLINE F64x4 abs(const F64x4& a) {
  return each<double, 4>([&](int k) { return __builtin_fabs(a.at[k]); });
}
SYNCPOINT_INLINE F64x4 where_nonzero(const F64x4& r, const F64x4& x, const F64x4& other) {
  return each<double, 4>([&](int k) { return r.at[k] != 0 ? x.at[k] : other.at[k]; });
}
SYNCPOINT_INLINE F64x4 where_less(const F64x4& size, const F64x4& limit, const F64x4& x,
                                  const F64x4& y) {
  return each<double, 4>([&](int k) { return size.at[k] < limit.at[k] ? x.at[k] : y.at[k]; });
}
SYNCPOINT_INLINE F64x4 keep_less(const F64x4& size, const F64x4& limit, const F64x4& x) {
  return each<double, 4>([&](int k) { return size.at[k] < limit.at[k] ? x.at[k] : 0.0; });
}
SYNCPOINT_INLINE bool any_above(const F64x4& a, const F64x4& b) {
  return bits_of<4>([&](int k) { return a.at[k] > b.at[k]; }) != 0;
}
SYNCPOINT_INLINE bool all_finite(const F64x4& a) {
  return bits_of<4>([&](int k) { return __builtin_fabs(a.at[k]) < __builtin_inf(); }) == 15;
}

// --- counters of doubles ---

SYNCPOINT_INLINE I64x4 no_counts() { return {}; }
SYNCPOINT_INLINE I64x4 count_less(const I64x4& n, const F64x4& a, const F64x4& b) {
  return each<std::int64_t, 4>([&](int k) { return n.at[k] + (a.at[k] < b.at[k]); });
}
SYNCPOINT_INLINE I64x4 count_up_to(const I64x4& n, const F64x4& a, const F64x4& b) {
  return each<std::int64_t, 4>([&](int k) { return n.at[k] + (a.at[k] <= b.at[k]); });
}
SYNCPOINT_INLINE I64x4 count_nonzero(const I64x4& n, const F64x4& a) {
  return each<std::int64_t, 4>([&](int k) { return n.at[k] + (a.at[k] != 0); });
}
SYNCPOINT_INLINE I64x4 count_equal(const I64x4& n, const F64x4& a, const F64x4& b) {
  return each<std::int64_t, 4>([&](int k) { return n.at[k] + (a.at[k] == b.at[k]); });
}
SYNCPOINT_INLINE unsigned lanes_equal(const F64x4& a, const F64x4& b) {
  return bits_of<4>([&](int k) { return a.at[k] == b.at[k]; });
}
SYNCPOINT_INLINE std::int64_t total(const I64x4& n) {
  return (n.at[0] + n.at[1]) + (n.at[2] + n.at[3]);
}
SYNCPOINT_INLINE double total(const F64x4& x) { return (x.at[0] + x.at[1]) + (x.at[2] + x.at[3]); }
template <class T, int N>
SYNCPOINT_INLINE T greatest_of(const Lanes<T, N>& x) {
  T most = x.at[0];
  for (int k = 1; k < N; ++k) most = x.at[k] > most ? x.at[k] : most;
  return most;
}
SYNCPOINT_INLINE double greatest(const F64x4& x) { return greatest_of(x); }

// --- floats ---

SYNCPOINT_INLINE F32x8 all8(float x) {
  return each<float, 8>([=](int) { return x; });
}
SYNCPOINT_INLINE void store8(float* p, const F32x8& x) { std::memcpy(p, x.at, sizeof x.at); }
SYNCPOINT_INLINE F32x8 min8(const F32x8& a, const F32x8& b) {
  return each<float, 8>([&](int k) { return a.at[k] < b.at[k] ? a.at[k] : b.at[k]; });
}
SYNCPOINT_INLINE F32x8 max8(const F32x8& a, const F32x8& b) {
  return each<float, 8>([&](int k) { return a.at[k] > b.at[k] ? a.at[k] : b.at[k]; });
}
SYNCPOINT_INLINE F32x8 mul8(const F32x8& a, const F32x8& b) {
  return each<float, 8>([&](int k) { return a.at[k] * b.at[k]; });
}
SYNCPOINT_INLINE F32x8 sub8(const F32x8& a, const F32x8& b) {
  return each<float, 8>([&](int k) { return a.at[k] - b.at[k]; });
}
SYNCPOINT_INLINE F32x8 abs8(const F32x8& a) {
  return each<float, 8>([&](int k) { return __builtin_fabsf(a.at[k]); });
}
SYNCPOINT_INLINE I32x8 no_counts8() { return {}; }
SYNCPOINT_INLINE I32x8 count_equal8(const I32x8& n, const F32x8& a, const F32x8& b) {
  return each<std::int32_t, 8>([&](int k) { return n.at[k] + (a.at[k] == b.at[k]); });
}
SYNCPOINT_INLINE I32x8 add8(const I32x8& a, const I32x8& b) {
  return each<std::int32_t, 8>([&](int k) { return a.at[k] + b.at[k]; });
}
SYNCPOINT_INLINE std::int64_t total8(const I32x8& n) {
  std::int64_t sum = 0;
  for (int k = 0; k < 8; ++k) sum += n.at[k];
  return sum;
}
SYNCPOINT_INLINE float greatest8(const F32x8& x) { return greatest_of(x); }
SYNCPOINT_INLINE float least8(const F32x8& x) {
  float least = x.at[0];
  for (int k = 1; k < 8; ++k) least = x.at[k] < least ? x.at[k] : least;
  return least;
}
SYNCPOINT_INLINE unsigned lanes_up_to(const F32x8& a, const F32x8& b) {
  return bits_of<8>([&](int k) { return a.at[k] <= b.at[k]; });
}
SYNCPOINT_INLINE unsigned lanes_between(const F32x8& low, const F32x8& x, const F32x8& high) {
  return bits_of<8>([&](int k) { return low.at[k] < x.at[k] && x.at[k] < high.at[k]; });
}
SYNCPOINT_INLINE unsigned lanes_same(const F32x8& a, const F32x8& b) {
  return bits_of<8>([&](int k) { return a.at[k] == b.at[k]; });
}
SYNCPOINT_INLINE unsigned lanes_nan(const F32x8& a) {
  return bits_of<8>([&](int k) { return a.at[k] != a.at[k]; });
}
SYNCPOINT_INLINE void compact(unsigned lanes, const F32x8& t, const F32x8& r, std::uint32_t first,
                              float* t_out, float* r_out, std::uint32_t* place) {
  for (std::uint32_t k = 0; lanes; ++k, lanes >>= 1) {
    if (!(lanes & 1)) continue;
    *t_out++ = t.at[k];
    *r_out++ = r.at[k];
    *place++ = first + k;
  }
}

// --- bits of floats ---

SYNCPOINT_INLINE I32x8 differing(const I32x8& so_far, const F32x8& a, const F32x8& b) {
  return each<std::int32_t, 8>([&](int k) {
    const auto x = std::bit_cast<std::int32_t>(a.at[k]) ^ std::bit_cast<std::int32_t>(b.at[k]);
    return so_far.at[k] | x;
  });
}
SYNCPOINT_INLINE bool none_set(const I32x8& bits) {
  std::int32_t any = 0;
  for (int k = 0; k < 8; ++k) any |= bits.at[k];
  return any == 0;
}
SYNCPOINT_INLINE std::int32_t signed_by(std::int32_t size, float x) {
  return std::bit_cast<std::int32_t>(x) < 0 ? -size : size;
}
SYNCPOINT_INLINE std::int32_t size_bits(float x) {
  return std::bit_cast<std::int32_t>(x) & 0x7fffffff;
}
SYNCPOINT_INLINE I32x8 ordinal32(const F32x8& x) {
  return each<std::int32_t, 8>([&](int k) { return signed_by(size_bits(x.at[k]), x.at[k]); });
}
SYNCPOINT_INLINE I32x8 ordinal16(const F32x8& x) { return ordinal32(mul8(x, all8(0x1p-112f))); }
SYNCPOINT_INLINE I32x8 max_distance(const I32x8& most, const I32x8& a, const I32x8& b) {
  return each<std::int32_t, 8>([&](int k) {
    const auto x = static_cast<std::uint32_t>(a.at[k]);
    const auto y = static_cast<std::uint32_t>(b.at[k]);
    const std::uint32_t apart = a.at[k] > b.at[k] ? x - y : y - x;
    const auto before = static_cast<std::uint32_t>(most.at[k]);
    return static_cast<std::int32_t>(apart > before ? apart : before);
  });
}
SYNCPOINT_INLINE std::uint32_t greatest_unsigned(const I32x8& x) {
  std::uint32_t most = 0;
  for (int k = 0; k < 8; ++k) {
    const auto lane = static_cast<std::uint32_t>(x.at[k]);
    most = lane > most ? lane : most;
  }
  return most;
}
SYNCPOINT_INLINE F64x4 ordinal_as_double(const float* p) {
  float x[4];
  std::memcpy(x, p, sizeof x);
  return each<double, 4>(
      [&](int k) { return static_cast<double>(signed_by(size_bits(x[k]), x[k])); });
}
SYNCPOINT_INLINE F64x4 with_sign(const F64x4& size, const F64x4& of) {
  return each<double, 4>([&](int k) { return __builtin_copysign(size.at[k], of.at[k]); });
}

// --- exponents ---

SYNCPOINT_INLINE I32x8 add_exponents8(const I32x8& n, const F32x8& x) {
  return each<std::int32_t, 8>([&](int k) { return n.at[k] + (size_bits(x.at[k]) >> 23); });
}
SYNCPOINT_INLINE I64x4 add_exponents(const I64x4& n, const F64x4& x) {
  return each<std::int64_t, 4>([&](int k) {
    const auto bits = std::bit_cast<std::uint64_t>(x.at[k]) & 0x7fffffffffffffffu;
    return n.at[k] + static_cast<std::int64_t>(bits >> 52);
  });
}

// --- exponents as bytes ---

SYNCPOINT_INLINE U8x32 exponent_bytes(const double* p, int base) {
  return each<std::uint8_t, 32>([=](int k) {
    const int exponent = static_cast<int>(std::bit_cast<std::uint64_t>(p[k]) >> 52) - base;
    return static_cast<std::uint8_t>(exponent < 0 ? 0 : exponent > 255 ? 255 : exponent);
  });
}
SYNCPOINT_INLINE U8x32 all_bytes(int x) {
  return each<std::uint8_t, 32>([=](int) { return static_cast<std::uint8_t>(x); });
}
SYNCPOINT_INLINE U8x32 load_bytes(const std::uint8_t* p) {
  U8x32 out;
  std::memcpy(out.at, p, sizeof out.at);
  return out;
}
SYNCPOINT_INLINE void store_bytes(std::uint8_t* p, const U8x32& x) {
  std::memcpy(p, x.at, sizeof x.at);
}
SYNCPOINT_INLINE U8x32 max_bytes(const U8x32& a, const U8x32& b) {
  return each<std::uint8_t, 32>([&](int k) { return a.at[k] > b.at[k] ? a.at[k] : b.at[k]; });
}
SYNCPOINT_INLINE U8x32 count_bytes(const U8x32& n, const U8x32& a, const U8x32& b) {
  return each<std::uint8_t, 32>(
      [&](int k) { return static_cast<std::uint8_t>(n.at[k] + (a.at[k] == b.at[k])); });
}
SYNCPOINT_INLINE std::int64_t total_bytes(const U8x32& n) {
  std::int64_t sum = 0;
  for (int k = 0; k < 32; ++k) sum += n.at[k];
  return sum;
}
SYNCPOINT_INLINE int greatest_byte(const U8x32& x) { return greatest_of(x); }

// --- stored types to floats, eight at a time ---

template <class Stored, class Convert>
SYNCPOINT_INLINE F32x8 convert8(const std::byte* p, Convert convert) {
  Stored stored[8];
  std::memcpy(stored, p, sizeof stored);
  return each<float, 8>([&](int k) { return static_cast<float>(convert(stored[k])); });
}
SYNCPOINT_INLINE F32x8 from_f16(const std::byte* p) {
  return convert8<std::uint16_t>(p, decode_f16);
}
SYNCPOINT_INLINE F32x8 from_bf16(const std::byte* p) {
  return convert8<std::uint16_t>(p, decode_bf16);
}
SYNCPOINT_INLINE F32x8 from_i8(const std::byte* p) {
  return convert8<std::int8_t>(p, [](std::int8_t x) { return x; });
}
SYNCPOINT_INLINE F32x8 from_u8(const std::byte* p) {
  return convert8<std::uint8_t>(p, [](std::uint8_t x) { return x; });
}

inline std::uint64_t fold_bytes(const std::byte* p, std::size_t count) {
  std::uint64_t fold = 0;
  for (std::size_t i = 0; i + 8 <= count; i += 8) {
    std::uint64_t word;
    std::memcpy(&word, p + i, 8);
    fold ^= word;
  }
  return fold;
}

}  // namespace syncpoint::baseline
