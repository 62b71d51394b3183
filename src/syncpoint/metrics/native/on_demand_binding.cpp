#include "on_demand_binding.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "on_demand.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace syncpoint {
namespace {

std::vector<WorstSlice> worst_slices_along(
    const Pair& pair, const std::vector<std::pair<std::int64_t, std::int64_t>>& axes) {
  std::vector<SliceAxis> slices;
  for (const auto& [length, inner] : axes) slices.push_back({length, inner});
  return worst_slices(pair, slices);
}

}  // namespace

void bind_on_demand(nb::module_& m) {
  nb::class_<WorstSlice>(m, "WorstSlice")
      .def_ro("index", &WorstSlice::index)
      .def_ro("rel_l2", &WorstSlice::rel_l2);
  nb::class_<ValueRange>(m, "ValueRange")
      .def_ro("least", &ValueRange::least)
      .def_ro("greatest", &ValueRange::greatest);
  nb::class_<ValueCounts>(m, "ValueCounts")
      .def_ro("bins", &ValueCounts::bins)
      .def_ro("masked", &ValueCounts::masked)
      .def_ro("non_finite", &ValueCounts::non_finite);
  nb::class_<Histograms>(m, "Histograms")
      .def_ro("target", &Histograms::target)
      .def_ro("reference", &Histograms::reference);
  nb::class_<RowDivergence>(m, "RowDivergence")
      .def_ro("rows", &RowDivergence::rows)
      .def_ro("undefined", &RowDivergence::undefined)
      .def_ro("sum", &RowDivergence::sum)
      .def_ro("greatest", &RowDivergence::greatest)
      .def_ro("greatest_row", &RowDivergence::greatest_row);
  nb::class_<Divergence>(m, "Divergence")
      .def_ro("count", &Divergence::count)
      .def_ro("value", &Divergence::value);
  nb::class_<Agreement>(m, "Agreement")
      .def_ro("rows", &Agreement::rows)
      .def_ro("undefined", &Agreement::undefined)
      .def_ro("first", &Agreement::first)
      .def_ro("overlap", &Agreement::overlap);

  using Released = nb::call_guard<nb::gil_scoped_release>;
  m.def("worst_slices", &worst_slices_along, "pair"_a, "axes"_a, Released());
  m.def("value_range", &value_range, "pair"_a, Released());
  m.def("value_histograms", &value_histograms, "pair"_a, "edges"_a, Released());
  m.def("softmax_divergence", &softmax_divergence, "pair"_a, "length"_a, Released());
  m.def("minmax_divergence", &minmax_divergence, "pair"_a, Released());
  m.def("rank_agreement", &rank_agreement, "pair"_a, "length"_a, "k"_a, Released());
}

}  // namespace syncpoint
