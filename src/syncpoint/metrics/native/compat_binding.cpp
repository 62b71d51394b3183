#include "compat_binding.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <stdexcept>
#include <tuple>

#include "compat.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace syncpoint {
namespace {

using Floats = nb::ndarray<float, nb::numpy, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Scale = std::tuple<float, float, float, double>;
using Share = std::tuple<float, float, float>;

void check(const Operand& target, const Operand& reference) {
  if (target.count() != reference.count()) throw std::invalid_argument("sizes differ");
  for (const Operand* side : {&target, &reference}) {
    if (is_complex(side->dtype) || side->quantization.present()) {
      throw std::invalid_argument("real elements without a scale are needed");
    }
  }
}

CompatFirst first(const Operand& target, const Operand& reference) {
  check(target, reference);
  return compat_kernel().first(target, reference);
}

CompatScale scale_of(const Scale& scale) {
  const auto& [norm, low, range, mean] = scale;
  return {norm, low, range, mean};
}

CompatSecond second(const Operand& target, const Operand& reference, const Scale& x,
                    const Scale& y) {
  check(target, reference);
  return compat_kernel().second(target, reference, scale_of(x), scale_of(y));
}

CompatShare share_of(const Share& share) {
  const auto& [low, range, sum] = share;
  return {low, range, sum};
}

void quotients(const Operand& target, const Operand& reference, const Share& x, const Share& y,
               std::int64_t begin, Floats p, Floats of_q) {
  check(target, reference);
  const auto count = static_cast<std::int64_t>(p.size());
  if (p.size() != of_q.size() || begin < 0 || begin % 8 != 0 || begin + count > target.count()) {
    throw std::invalid_argument("no such stretch of elements");
  }
  const nb::gil_scoped_release others_may_run;
  compat_kernel().quotients(target, reference, share_of(x), share_of(y), begin, count, p.data(),
                            of_q.data());
}

std::tuple<double, double> divergence(const Operand& target, const Operand& reference,
                                      const Share& x, const Share& y) {
  check(target, reference);
  const CompatDivergence found =
      compat_kernel().divergence(target, reference, share_of(x), share_of(y));
  return {found.sum, found.magnitude};
}

double both(const Operand& target, const Operand& reference, double term) {
  check(target, reference);
  return compat_kernel().both(target, reference, term);
}

}  // namespace

void bind_compat(nb::module_& m) {
  nb::class_<CompatFirst>(m, "CompatFirst")
      .def_ro("x_squares", &CompatFirst::x_squares)
      .def_ro("y_squares", &CompatFirst::y_squares)
      .def_ro("errors", &CompatFirst::errors)
      .def_ro("error_squares", &CompatFirst::error_squares)
      .def_ro("ratios", &CompatFirst::ratios)
      .def_ro("greatest_error", &CompatFirst::greatest_error)
      .def_ro("greatest_ratio", &CompatFirst::greatest_ratio)
      .def_ro("x_min", &CompatFirst::x_min)
      .def_ro("x_max", &CompatFirst::x_max)
      .def_ro("y_min", &CompatFirst::y_min)
      .def_ro("y_max", &CompatFirst::y_max)
      .def_ro("x_total", &CompatFirst::x_total)
      .def_ro("y_total", &CompatFirst::y_total);
  nb::class_<CompatSecond>(m, "CompatSecond")
      .def_ro("cosine", &CompatSecond::cosine)
      .def_ro("x_shares", &CompatSecond::x_shares)
      .def_ro("y_shares", &CompatSecond::y_shares)
      .def_ro("x_deviations", &CompatSecond::x_deviations)
      .def_ro("y_deviations", &CompatSecond::y_deviations);

  using Released = nb::call_guard<nb::gil_scoped_release>;
  m.def("compat_first", &first, "target"_a, "reference"_a, Released());
  m.def("compat_second", &second, "target"_a, "reference"_a, "x"_a, "y"_a, Released());
  m.def("compat_quotients", &quotients, "target"_a, "reference"_a, "x"_a, "y"_a, "begin"_a, "p"_a,
        "of_q"_a);
  m.def("compat_divergence", &divergence, "target"_a, "reference"_a, "x"_a, "y"_a, Released());
  m.def("compat_both", &both, "target"_a, "reference"_a, "term"_a, Released());
}

}  // namespace syncpoint
