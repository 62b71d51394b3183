// Prints what the kernel measures on made-up tensors of all kinds, every number as its bits. Built
// for two processors, the two outputs are compared: see tools/check_arm.py.
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "measure.hpp"
#include "metrics.hpp"

namespace {

using namespace syncpoint;

struct Random {
  std::uint64_t state;
  std::uint64_t next() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 11;
  }
};

struct Kind {
  const char* name;
  DType dtype;
  std::size_t bytes;
  bool floating;
  int mantissa;
  int min_exponent;
  double greatest;
};

constexpr Kind kKinds[] = {
    {"f64", DType::f64, 8, true, 52, -1022, 1.7976931348623157e308},
    {"f32", DType::f32, 4, true, 23, -126, 3.4028234663852886e38},
    {"f16", DType::f16, 2, true, 10, -14, 65504},
    {"bf16", DType::bf16, 2, true, 7, -126, 3.3895313892515355e38},
    {"f8_e4m3fn", DType::f8_e4m3fn, 1, true, 3, -6, 448},
    {"i8", DType::i8, 1, false, 0, 0, 0},
    {"i64", DType::i64, 8, false, 0, 0, 0},
    {"u16", DType::u16, 2, false, 0, 0, 0},
    {"boolean", DType::boolean, 1, false, 0, 0, 0},
};

std::vector<std::byte> made(const Kind& kind, std::size_t count, bool wild, Random& random) {
  std::vector<std::byte> bytes(count * kind.bytes);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t bits = random.next() ^ random.next() << 21;
    // Wild elements are any bit pattern: NaN, inf, masks, subnormals. Tame floats lie near one.
    if (!wild && kind.floating) {
      const int width = static_cast<int>(kind.bytes) * 8;
      const std::uint64_t one = static_cast<std::uint64_t>(1 - kind.min_exponent - 1)
                                << kind.mantissa;
      bits = one ^ (bits & ((std::uint64_t{1} << kind.mantissa) - 1)) ^
             (bits >> 20 & 1) << (width - 1);
    }
    if (kind.dtype == DType::boolean) bits &= 1;
    std::memcpy(bytes.data() + i * kind.bytes, &bits, kind.bytes);
  }
  return bytes;
}

void print(const char* name, double value) {
  std::uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  std::printf(" %s=%016" PRIx64, name, bits);
}

void print(const char* name, const Number& value) {
  if (value) print(name, *value);
}

void print_side(const char* name, const SideMetrics& side) {
  std::printf(" %s", name);
  print("mean", side.mean), print("std", side.std), print("min", side.min);
  print("max", side.max), print("l2", side.l2);
}

void print_pair(const Pair& pair) {
  Options options;
  options.threads = 2;
  options.robust = true;
  options.bulk_below = std::numeric_limits<double>::infinity();
  const Result result = measure_all({&pair}, options)[0];
  const Metrics m = derive_metrics(result, pair, Tier::all);
  std::printf(" at=%" PRId64, result.max_abs_index);
  print("exact", m.exact), print("psnr", m.psnr), print("sqnr", m.sqnr), print("mae", m.mae);
  print("mse", m.mse), print("max_abs", m.max_abs), print("cosine", m.cosine);
  print("max_rel", m.max_rel), print("mean_rel", m.mean_rel), print("robust", m.mean_rel_robust);
  print("within", m.within_1e3), print("allclose", m.allclose), print("ulp", m.max_ulp);
  print("lsb", m.lsb), print("outliers_from", m.outliers_from), print("bulk_sqnr", m.bulk_sqnr);
  print("bulk_rmse", m.bulk_rmse), print("bulk_max_abs", m.bulk_max_abs);
  std::printf(" outliers=%" PRId64, result.outliers);
  print_side("target", m.target), print_side("reference", m.reference);
  for (const auto& [exponent, count] : result.error_histogram) {
    std::printf(" %d:%" PRId64, exponent, count);
  }
  std::printf("\n");
}

Operand operand(const Kind& kind, const std::vector<std::byte>& bytes, std::size_t rows,
                std::size_t columns, bool turned) {
  Operand made;
  made.data = bytes.data();
  made.dtype = kind.dtype;
  const auto size = static_cast<std::int64_t>(kind.bytes);
  const auto r = static_cast<std::int64_t>(rows), c = static_cast<std::int64_t>(columns);
  made.shape = {r, c};
  made.strides = turned ? std::vector<std::int64_t>{size, r * size}
                        : std::vector<std::int64_t>{c * size, size};
  const bool masks = kind.floating && kind.bytes > 1;
  if (masks) made.mask_below = -kind.greatest / 2;
  return made;
}

}  // namespace

int main() {
  Random random{1};
  for (const Kind& t : kKinds) {
    for (const Kind& r : kKinds) {
      for (const std::size_t rows : {1u, 7u, 300u}) {
        for (const bool wild : {false, true}) {
          const std::size_t columns = 113;
          const auto target = made(t, rows * columns, wild, random);
          const auto reference = made(r, rows * columns, wild, random);
          Pair pair;
          pair.target = operand(t, target, rows, columns, rows == 7);
          pair.reference = operand(r, reference, rows, columns, false);
          pair.rtol = 1e-3, pair.atol = 1e-5, pair.mask_rtol = 1e-3;
          pair.overflow_limit = t.floating ? t.greatest : std::numeric_limits<double>::infinity();
          const Kind& coarse = t.floating && (!r.floating || t.mantissa <= r.mantissa) ? t : r;
          if (t.dtype == DType::boolean || r.dtype == DType::boolean) {
            pair.ulp_unit = UlpUnit::none;
          } else if (!t.floating && !r.floating) {
            pair.ulp_unit = UlpUnit::integer;
          } else {
            const bool ordered = t.dtype == DType::f64 && r.dtype == DType::f64;
            pair.ulp_unit = ordered ? UlpUnit::ordered : UlpUnit::fraction;
          }
          pair.mantissa = coarse.mantissa, pair.min_exponent = coarse.min_exponent;
          if (t.dtype == DType::i8) {
            pair.target.quantization.scale = {0.05};
            pair.target.quantization.zero_point = {3};
            pair.step_of = StepOf::target;
            pair.ulp_unit = UlpUnit::none;
          }
          std::printf("%s %s %zu %d", t.name, r.name, rows, wild);
          print_pair(pair);
        }
      }
    }
  }
  return 0;
}
