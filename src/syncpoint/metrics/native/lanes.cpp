#include "lanes.hpp"

#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "decode.hpp"

namespace syncpoint {

bool is_lane_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::f8_e4m3fn:
    case DType::f8_e5m2:
    case DType::i8:
    case DType::u8:
      return true;
    default:
      return false;
  }
}

namespace {

bool is_integer(DType dtype) { return dtype == DType::i8 || dtype == DType::u8; }

// The greatest float that is not above x.
float float_below(double x) {
  const auto near = static_cast<float>(x);
  return near > x ? std::nextafter(near, -std::numeric_limits<float>::infinity()) : near;
}

std::optional<LaneSide> plan_side(const Operand& operand) {
  if (!is_lane_type(operand.dtype) || operand.packed) return std::nullopt;
  if (std::isnan(operand.mask_below)) return std::nullopt;
  LaneSide side{operand.dtype};
  side.low = float_below(operand.mask_below);
  side.may_mask = !std::isinf(operand.mask_below);
  const Quantization& q = operand.quantization;
  if (!q.present()) return side;

  // With scales between these bounds no product, square or quotient leaves the range of a double.
  constexpr double kLeast = 0x1p-60;
  constexpr double kGreatest = 0x1p+60;
  constexpr double kGreatestZero = 0x1p+16;
  const bool one = q.scale.size() == 1 && q.table.empty() && operand.mask_below == -INFINITY;
  if (!one) return std::nullopt;
  const double size = std::abs(q.scale[0]);
  const double zero = q.zero_point[0];
  const bool plain_zero = is_integer(operand.dtype) && zero == std::trunc(zero);
  if (!(size >= kLeast && size <= kGreatest)) return std::nullopt;
  if (!(zero == 0 || (plain_zero && std::abs(zero) <= kGreatestZero))) return std::nullopt;
  side.scale = q.scale[0];
  side.zero = static_cast<float>(zero);
  return side;
}

UlpLoop ulp_loop(const Pair& pair) {
  constexpr int kF32Mantissa = 23;
  constexpr int kF32MinExponent = -126;
  constexpr int kF16Mantissa = 10;
  constexpr int kF16MinExponent = -14;
  if (pair.ulp_unit != UlpUnit::fraction) return UlpLoop::none;
  if (pair.min_exponent == kF32MinExponent && pair.mantissa <= kF32Mantissa) return UlpLoop::floats;
  const bool half = pair.mantissa == kF16Mantissa && pair.min_exponent == kF16MinExponent;
  return half ? UlpLoop::halves : UlpLoop::any;
}

std::array<float, 256> decode_all(double (*decode)(std::uint8_t)) {
  std::array<float, 256> table{};
  for (std::size_t code = 0; code < table.size(); ++code) {
    table[code] = static_cast<float>(decode(static_cast<std::uint8_t>(code)));
  }
  return table;
}

const LaneKernel& choose_kernel() {
  const char* asked = std::getenv("SYNCPOINT_ISA");
  const bool plain = asked && std::string_view(asked) == kBaselineKernel.name;
#ifdef SYNCPOINT_HAS_AVX2
  __builtin_cpu_init();
  const bool can = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                   __builtin_cpu_supports("f16c");
  if (can && !plain) return kAvx2Kernel;
#endif
  return kBaselineKernel;
}

}  // namespace

std::optional<LanePlan> plan_lanes(const Pair& pair, Tier tier) {
  const auto target = plan_side(pair.target);
  const auto reference = plan_side(pair.reference);
  // Negative tolerances are nobody's wish, and the loops count equal elements as close.
  if (!target || !reference || !(pair.rtol >= 0) || !(pair.atol >= 0)) return std::nullopt;
  LanePlan plan;
  plan.target = *target;
  plan.reference = *reference;
  plan.float_scales = static_cast<float>(target->scale) == target->scale &&
                      static_cast<float>(reference->scale) == reference->scale;
  plan.rtol = pair.rtol;
  plan.atol = pair.atol;
  plan.mask_rtol = pair.mask_rtol;
  plan.overflow_limit = pair.overflow_limit;
  plan.tier = tier;
  plan.ulp = ulp_loop(pair);
  plan.ulp_is_error = pair.ulp_unit == UlpUnit::integer;
  plan.mantissa = pair.mantissa;
  plan.min_exponent = pair.min_exponent;
  if (pair.step_of != StepOf::none) {
    const LaneSide& side = pair.step_of == StepOf::target ? plan.target : plan.reference;
    plan.step = std::abs(side.scale);
  }
  return plan;
}

const LaneKernel& lane_kernel() {
  static const LaneKernel& kernel = choose_kernel();
  return kernel;
}

const float* small_float_table(DType dtype) {
  static const auto e4m3fn = decode_all(decode_f8_e4m3fn);
  static const auto e5m2 = decode_all(decode_f8_e5m2);
  return (dtype == DType::f8_e5m2 ? e5m2 : e4m3fn).data();
}

}  // namespace syncpoint
