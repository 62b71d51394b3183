// The native kernel as Python sees it: operands and pairs in, sums and counts out. What they mean
// (which tolerances, which threshold is a mask) is decided by the Python side of this room.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

#include "measure.hpp"
#include "on_demand_binding.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace syncpoint;

namespace {

Quantization make_quantization(std::vector<double> scale, std::vector<double> zero_point,
                               std::vector<double> table, int axis, std::int64_t block,
                               const std::vector<std::int64_t>& shape) {
  Quantization q{std::move(scale), std::move(zero_point), std::move(table)};
  if (axis < 0 || q.scale.size() <= 1) return q;
  const auto at = static_cast<std::size_t>(axis);
  q.length = shape.at(at);
  q.block = std::max<std::int64_t>(block, 1);
  for (std::size_t k = at + 1; k < shape.size(); ++k) q.inner *= shape[k];
  return q;
}

void init_operand(Operand* self, std::uintptr_t address, const std::string& dtype,
                  std::vector<std::int64_t> shape, std::vector<std::int64_t> strides, bool swapped,
                  bool packed, double mask_below, std::vector<double> scale,
                  std::vector<double> zero_point, std::vector<double> table, int axis,
                  std::int64_t block) {
  Quantization quantization = make_quantization(std::move(scale), std::move(zero_point),
                                                std::move(table), axis, block, shape);
  new (self) Operand{reinterpret_cast<const std::byte*>(address),
                     dtype_named(dtype),
                     std::move(shape),
                     std::move(strides),
                     swapped,
                     packed,
                     mask_below,
                     std::move(quantization)};
}

UlpUnit ulp_unit_named(const std::string& name) {
  if (name == "none") return UlpUnit::none;
  if (name == "integer") return UlpUnit::integer;
  if (name == "ordered") return UlpUnit::ordered;
  if (name == "fraction") return UlpUnit::fraction;
  throw std::invalid_argument("unknown unit " + name);
}

StepOf step_of_named(const std::string& name) {
  if (name == "none") return StepOf::none;
  if (name == "target") return StepOf::target;
  if (name == "reference") return StepOf::reference;
  throw std::invalid_argument("unknown side " + name);
}

void init_pair(Pair* self, const Operand& target, const Operand& reference, double rtol,
               double atol, double mask_rtol, double overflow_limit, const std::string& ulp_unit,
               int mantissa, int min_exponent, const std::string& step_of) {
  if (target.shape != reference.shape) throw std::invalid_argument("shapes differ");
  new (self) Pair{target,
                  reference,
                  rtol,
                  atol,
                  mask_rtol,
                  overflow_limit,
                  ulp_unit_named(ulp_unit),
                  mantissa,
                  min_exponent,
                  step_of_named(step_of)};
}

}  // namespace

NB_MODULE(_kernel, m) {
  m.doc() = "Measures pairs of tensors in place.";

  nb::class_<Operand>(m, "Operand")
      .def("__init__", &init_operand, nb::kw_only(), "address"_a, "dtype"_a, "shape"_a, "strides"_a,
           "swapped"_a, "packed"_a, "mask_below"_a, "scale"_a, "zero_point"_a, "table"_a, "axis"_a,
           "block"_a);

  nb::class_<Pair>(m, "Pair").def("__init__", &init_pair, "target"_a, "reference"_a, nb::kw_only(),
                                  "rtol"_a, "atol"_a, "mask_rtol"_a, "overflow_limit"_a,
                                  "ulp_unit"_a, "mantissa"_a, "min_exponent"_a, "step_of"_a);

  nb::class_<Scaled>(m, "Scaled")
      .def_ro("value", &Scaled::value)
      .def_ro("exponent", &Scaled::exponent);

  nb::class_<SideResult>(m, "SideResult")
      .def_ro("nan", &SideResult::nan)
      .def_ro("inf", &SideResult::inf)
      .def_ro("zero", &SideResult::zero)
      .def_ro("overflow", &SideResult::overflow)
      .def_ro("min", &SideResult::min)
      .def_ro("max", &SideResult::max)
      .def_ro("sum", &SideResult::sum)
      .def_ro("sum_squares", &SideResult::sum_squares)
      .def_ro("sum_squared_deviations", &SideResult::sum_squared_deviations);

  nb::class_<Result>(m, "Result")
      .def_ro("count", &Result::count)
      .def_ro("compared", &Result::compared)
      .def_ro("masked", &Result::masked)
      .def_ro("mismatched", &Result::mismatched)
      .def_ro("equal", &Result::equal)
      .def_ro("target", &Result::target)
      .def_ro("reference", &Result::reference)
      .def_ro("peak", &Result::peak)
      .def_ro("sum_abs", &Result::sum_abs)
      .def_ro("sum_squares", &Result::sum_squares)
      .def_ro("max_abs", &Result::max_abs)
      .def_ro("max_abs_index", &Result::max_abs_index)
      .def_ro("dot", &Result::dot)
      .def_ro("relative_count", &Result::relative_count)
      .def_ro("relative_undefined", &Result::relative_undefined)
      .def_ro("sum_relative", &Result::sum_relative)
      .def_ro("max_relative", &Result::max_relative)
      .def_ro("sum_relative_robust", &Result::sum_relative_robust)
      .def_ro("within_1e3", &Result::within_1e3)
      .def_ro("within_5e3", &Result::within_5e3)
      .def_ro("close", &Result::close)
      .def_ro("max_ulp", &Result::max_ulp)
      .def_ro("sum_squared_steps", &Result::sum_squared_steps)
      .def_ro("error_histogram", &Result::error_histogram);

  nb::class_<Description>(m, "Description")
      .def_ro("count", &Description::count)
      .def_ro("finite", &Description::finite)
      .def_ro("side", &Description::side);

  m.def("measure", &measure_all, "pairs"_a, "threads"_a, nb::call_guard<nb::gil_scoped_release>());
  m.def("describe", &describe, "operand"_a, nb::call_guard<nb::gil_scoped_release>());
  bind_on_demand(m);
}
