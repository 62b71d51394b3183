// The vector vocabulary of the block loops, for AVX2 with FMA and F16C. `simd_baseline.hpp` offers
// the same words for any processor; the loops are written once and compiled with each.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace syncpoint::avx2 {

#define SYNCPOINT_INLINE inline __attribute__((always_inline))

inline constexpr const char* kIsaName = "avx2";

using F64x4 = __m256d;
using F32x8 = __m256;
using I64x4 = __m256i;  // four counters
using I32x8 = __m256i;  // eight counters, or eight ordinals
using U8x32 = __m256i;

// Keeps accumulators in registers and their updates in order: without it GCC moves the additions of
// several steps together, runs out of registers and spills the accumulators to the stack.
template <class... V>
SYNCPOINT_INLINE void pin(V&... v) {
  (..., [&] { asm volatile("" : "+x"(v)); }());
}

SYNCPOINT_INLINE void prefetch(const std::byte* where) {
  _mm_prefetch(reinterpret_cast<const char*>(where), _MM_HINT_T0);
}

// --- doubles ---

SYNCPOINT_INLINE F64x4 zeros() { return _mm256_setzero_pd(); }
SYNCPOINT_INLINE F64x4 all(double x) { return _mm256_set1_pd(x); }
SYNCPOINT_INLINE F64x4 load(const double* p) { return _mm256_loadu_pd(p); }
SYNCPOINT_INLINE void store(double* p, F64x4 x) { _mm256_storeu_pd(p, x); }
SYNCPOINT_INLINE F64x4 widen(const float* p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
SYNCPOINT_INLINE F64x4 add(F64x4 a, F64x4 b) { return _mm256_add_pd(a, b); }
SYNCPOINT_INLINE F64x4 sub(F64x4 a, F64x4 b) { return _mm256_sub_pd(a, b); }
SYNCPOINT_INLINE F64x4 mul(F64x4 a, F64x4 b) { return _mm256_mul_pd(a, b); }
SYNCPOINT_INLINE F64x4 div(F64x4 a, F64x4 b) { return _mm256_div_pd(a, b); }
SYNCPOINT_INLINE F64x4 max(F64x4 a, F64x4 b) { return _mm256_max_pd(a, b); }
// a * b + c; only for sums, which have an allowance for its missing rounding.
SYNCPOINT_INLINE F64x4 mul_add(F64x4 a, F64x4 b, F64x4 c) { return _mm256_fmadd_pd(a, b, c); }
SYNCPOINT_INLINE F64x4 abs(F64x4 a) {
  return _mm256_and_pd(a, _mm256_castsi256_pd(_mm256_set1_epi64x(0x7fffffffffffffffll)));
}
// x where r is not zero, else `other`.
SYNCPOINT_INLINE F64x4 where_nonzero(F64x4 r, F64x4 x, F64x4 other) {
  return _mm256_blendv_pd(other, x, _mm256_cmp_pd(r, _mm256_setzero_pd(), _CMP_NEQ_OQ));
}
// x where size < limit, else y.
SYNCPOINT_INLINE F64x4 where_less(F64x4 size, F64x4 limit, F64x4 x, F64x4 y) {
  return _mm256_blendv_pd(y, x, _mm256_cmp_pd(size, limit, _CMP_LT_OQ));
}
// x where size < limit, else 0.
SYNCPOINT_INLINE F64x4 keep_less(F64x4 size, F64x4 limit, F64x4 x) {
  return _mm256_and_pd(x, _mm256_cmp_pd(size, limit, _CMP_LT_OQ));
}
SYNCPOINT_INLINE bool any_above(F64x4 a, F64x4 b) {
  return _mm256_movemask_pd(_mm256_cmp_pd(a, b, _CMP_GT_OQ)) != 0;
}
SYNCPOINT_INLINE bool all_finite(F64x4 a) {
  return _mm256_movemask_pd(_mm256_cmp_pd(abs(a), all(__builtin_inf()), _CMP_LT_OQ)) == 15;
}

// --- counters of doubles ---

SYNCPOINT_INLINE I64x4 no_counts() { return _mm256_setzero_si256(); }
SYNCPOINT_INLINE I64x4 count(I64x4 n, F64x4 mask) {
  return _mm256_sub_epi64(n, _mm256_castpd_si256(mask));
}
SYNCPOINT_INLINE I64x4 count_less(I64x4 n, F64x4 a, F64x4 b) {
  return count(n, _mm256_cmp_pd(a, b, _CMP_LT_OQ));
}
SYNCPOINT_INLINE I64x4 count_up_to(I64x4 n, F64x4 a, F64x4 b) {
  return count(n, _mm256_cmp_pd(a, b, _CMP_LE_OQ));
}
SYNCPOINT_INLINE I64x4 count_nonzero(I64x4 n, F64x4 a) {
  return count(n, _mm256_cmp_pd(a, _mm256_setzero_pd(), _CMP_NEQ_UQ));
}
SYNCPOINT_INLINE I64x4 count_equal(I64x4 n, F64x4 a, F64x4 b) {
  return count(n, _mm256_cmp_pd(a, b, _CMP_EQ_OQ));
}
SYNCPOINT_INLINE unsigned lanes_equal(F64x4 a, F64x4 b) {
  return static_cast<unsigned>(_mm256_movemask_pd(_mm256_cmp_pd(a, b, _CMP_EQ_OQ)));
}
SYNCPOINT_INLINE std::int64_t total(I64x4 n) {
  alignas(32) std::int64_t lane[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lane), n);
  return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}
SYNCPOINT_INLINE double total(F64x4 x) {
  alignas(32) double lane[4];
  _mm256_store_pd(lane, x);
  return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}
SYNCPOINT_INLINE double greatest(F64x4 x) {
  alignas(32) double lane[4];
  _mm256_store_pd(lane, x);
  double most = lane[0];
  for (int k = 1; k < 4; ++k) most = lane[k] > most ? lane[k] : most;
  return most;
}

// --- floats ---

SYNCPOINT_INLINE F32x8 all8(float x) { return _mm256_set1_ps(x); }
SYNCPOINT_INLINE F32x8 load8(const float* p) { return _mm256_loadu_ps(p); }
SYNCPOINT_INLINE void store8(float* p, F32x8 x) { _mm256_storeu_ps(p, x); }
SYNCPOINT_INLINE F32x8 min8(F32x8 a, F32x8 b) { return _mm256_min_ps(a, b); }
SYNCPOINT_INLINE F32x8 max8(F32x8 a, F32x8 b) { return _mm256_max_ps(a, b); }
SYNCPOINT_INLINE I32x8 no_counts8() { return _mm256_setzero_si256(); }
SYNCPOINT_INLINE I32x8 count_equal8(I32x8 n, F32x8 a, F32x8 b) {
  return _mm256_sub_epi32(n, _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)));
}
SYNCPOINT_INLINE I32x8 add8(I32x8 a, I32x8 b) { return _mm256_add_epi32(a, b); }
SYNCPOINT_INLINE std::int64_t total8(I32x8 n) {
  alignas(32) std::int32_t lane[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lane), n);
  std::int64_t sum = 0;
  for (int k = 0; k < 8; ++k) sum += lane[k];
  return sum;
}
SYNCPOINT_INLINE float least8(F32x8 x) {
  alignas(32) float lane[8];
  _mm256_store_ps(lane, x);
  float least = lane[0];
  for (int k = 1; k < 8; ++k) least = lane[k] < least ? lane[k] : least;
  return least;
}
SYNCPOINT_INLINE float greatest8(F32x8 x) {
  alignas(32) float lane[8];
  _mm256_store_ps(lane, x);
  float most = lane[0];
  for (int k = 1; k < 8; ++k) most = lane[k] > most ? lane[k] : most;
  return most;
}

// One bit a lane, for the blocks that hold something unusual.
SYNCPOINT_INLINE unsigned lanes_up_to(F32x8 a, F32x8 b) {
  return static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_LE_OQ)));
}
// Where low < x < high.
SYNCPOINT_INLINE unsigned lanes_between(F32x8 low, F32x8 x, F32x8 high) {
  const __m256 inside =
      _mm256_and_ps(_mm256_cmp_ps(low, x, _CMP_LT_OQ), _mm256_cmp_ps(x, high, _CMP_LT_OQ));
  return static_cast<unsigned>(_mm256_movemask_ps(inside));
}
SYNCPOINT_INLINE unsigned lanes_same(F32x8 a, F32x8 b) {
  return static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)));
}
SYNCPOINT_INLINE unsigned lanes_nan(F32x8 a) {
  return static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)));
}
SYNCPOINT_INLINE F32x8 abs8(F32x8 a) {
  return _mm256_and_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)));
}

// For each set of lanes, the lanes in it, in order.
struct Compaction {
  alignas(32) std::uint32_t lanes[256][8];
  constexpr Compaction() : lanes() {
    for (unsigned bits = 0; bits < 256; ++bits) {
      unsigned n = 0;
      for (unsigned lane = 0; lane < 8; ++lane) {
        if (bits >> lane & 1) lanes[bits][n++] = lane;
      }
    }
  }
};
inline constexpr Compaction kCompaction{};

// Writes the lanes that are set, without gaps, and their numbers counted from `first`; up to eight
// places are written whatever the number of lanes.
SYNCPOINT_INLINE void compact(unsigned lanes, F32x8 t, F32x8 r, std::uint32_t first, float* t_out,
                              float* r_out, std::uint32_t* place) {
  const __m256i order =
      _mm256_load_si256(reinterpret_cast<const __m256i*>(kCompaction.lanes[lanes]));
  _mm256_storeu_ps(t_out, _mm256_permutevar8x32_ps(t, order));
  _mm256_storeu_ps(r_out, _mm256_permutevar8x32_ps(r, order));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(place),
                      _mm256_add_epi32(order, _mm256_set1_epi32(static_cast<int>(first))));
}

// --- bits of floats ---

SYNCPOINT_INLINE I32x8 differing(I32x8 so_far, F32x8 a, F32x8 b) {
  return _mm256_or_si256(so_far, _mm256_castps_si256(_mm256_xor_ps(a, b)));
}
SYNCPOINT_INLINE bool none_set(I32x8 bits) { return _mm256_testz_si256(bits, bits) != 0; }

// The number of floats between 0 and x, with the sign of x.
SYNCPOINT_INLINE I32x8 ordinal32(F32x8 x) {
  return _mm256_sign_epi32(_mm256_castps_si256(abs8(x)), _mm256_castps_si256(x));
}
// The same for the f16 grid, in units of 2^-13: 2^-112 takes the least normal f16 to the least
// normal f32. Rounded where x is no f16 and below 2^-14.
SYNCPOINT_INLINE I32x8 ordinal16(F32x8 x) { return ordinal32(_mm256_mul_ps(x, all8(0x1p-112f))); }
// The greater of `most` and |a - b|, which needs all 32 bits.
SYNCPOINT_INLINE I32x8 max_distance(I32x8 most, I32x8 a, I32x8 b) {
  const __m256i apart = _mm256_sub_epi32(_mm256_max_epi32(a, b), _mm256_min_epi32(a, b));
  return _mm256_max_epu32(most, apart);
}
SYNCPOINT_INLINE std::uint32_t greatest_unsigned(I32x8 x) {
  alignas(32) std::uint32_t lane[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lane), x);
  std::uint32_t most = 0;
  for (int k = 0; k < 8; ++k) most = lane[k] > most ? lane[k] : most;
  return most;
}
// ordinal32 of four floats, as doubles.
SYNCPOINT_INLINE F64x4 ordinal_as_double(const float* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i size = _mm_and_si128(bits, _mm_set1_epi32(0x7fffffff));
  return _mm256_cvtepi32_pd(_mm_sign_epi32(size, bits));
}
SYNCPOINT_INLINE F64x4 with_sign(F64x4 size, F64x4 of) {
  return _mm256_or_pd(size, _mm256_and_pd(of, _mm256_set1_pd(-0.0)));
}

// --- exponents ---

// Adds floor(log2 |x|) + 127 of each float to its lane: 0 for zero and for what is subnormal.
SYNCPOINT_INLINE I32x8 add_exponents8(I32x8 n, F32x8 x) {
  return _mm256_add_epi32(n, _mm256_srli_epi32(_mm256_castps_si256(abs8(x)), 23));
}
// The same of doubles, + 1023.
SYNCPOINT_INLINE I64x4 add_exponents(I64x4 n, F64x4 x) {
  return _mm256_add_epi64(n, _mm256_srli_epi64(_mm256_castpd_si256(abs(x)), 52));
}

// --- exponents as bytes ---

// The biased exponents of 32 positive doubles less `base`, saturated to a byte, in any order.
SYNCPOINT_INLINE U8x32 exponent_bytes(const double* p, int base) {
  const auto eight = [](const double* q) {
    const __m256 high = _mm256_shuffle_ps(_mm256_castpd_ps(_mm256_loadu_pd(q)),
                                          _mm256_castpd_ps(_mm256_loadu_pd(q + 4)), 0xdd);
    return _mm256_srli_epi32(_mm256_castps_si256(high), 20);
  };
  const __m256i less = _mm256_set1_epi16(static_cast<short>(base));
  const __m256i low = _mm256_subs_epu16(_mm256_packus_epi32(eight(p), eight(p + 8)), less);
  const __m256i high = _mm256_subs_epu16(_mm256_packus_epi32(eight(p + 16), eight(p + 24)), less);
  return _mm256_packus_epi16(low, high);
}
SYNCPOINT_INLINE U8x32 all_bytes(int x) { return _mm256_set1_epi8(static_cast<char>(x)); }
SYNCPOINT_INLINE U8x32 load_bytes(const std::uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
SYNCPOINT_INLINE void store_bytes(std::uint8_t* p, U8x32 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x);
}
SYNCPOINT_INLINE U8x32 max_bytes(U8x32 a, U8x32 b) { return _mm256_max_epu8(a, b); }
// Each lane counts up to 255 of them.
SYNCPOINT_INLINE U8x32 count_bytes(U8x32 n, U8x32 a, U8x32 b) {
  return _mm256_sub_epi8(n, _mm256_cmpeq_epi8(a, b));
}
SYNCPOINT_INLINE std::int64_t total_bytes(U8x32 n) {
  return total(_mm256_sad_epu8(n, _mm256_setzero_si256()));
}
SYNCPOINT_INLINE int greatest_byte(U8x32 x) {
  alignas(32) std::uint8_t lane[32];
  store_bytes(lane, x);
  int most = 0;
  for (int k = 0; k < 32; ++k) most = lane[k] > most ? lane[k] : most;
  return most;
}

// --- stored types to floats, eight at a time ---

SYNCPOINT_INLINE F32x8 from_f16(const std::byte* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
SYNCPOINT_INLINE F32x8 from_bf16(const std::byte* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
SYNCPOINT_INLINE F32x8 from_i8(const std::byte* p) {
  const __m128i bits = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bits));
}
SYNCPOINT_INLINE F32x8 from_u8(const std::byte* p) {
  const __m128i bits = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bits));
}
SYNCPOINT_INLINE F32x8 mul8(F32x8 a, F32x8 b) { return _mm256_mul_ps(a, b); }
SYNCPOINT_INLINE F32x8 sub8(F32x8 a, F32x8 b) { return _mm256_sub_ps(a, b); }

// Everything read once and folded to a word; the yardstick of the benchmark.
inline std::uint64_t fold_bytes(const std::byte* p, std::size_t count) {
  __m256i a = _mm256_setzero_si256();
  __m256i b = a;
  __m256i c = a;
  __m256i d = a;
  const auto at = [p](std::size_t i) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + i));
  };
  for (std::size_t i = 0; i + 128 <= count; i += 128) {
    a = _mm256_xor_si256(a, at(i));
    b = _mm256_xor_si256(b, at(i + 32));
    c = _mm256_xor_si256(c, at(i + 64));
    d = _mm256_xor_si256(d, at(i + 96));
  }
  a = _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d));
  return static_cast<std::uint64_t>(_mm256_extract_epi64(a, 0) ^ _mm256_extract_epi64(a, 3));
}

}  // namespace syncpoint::avx2
