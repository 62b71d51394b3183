// The native kernel as Python sees it: operands and pairs in, sums and counts out. What they mean
// (which tolerances, which threshold is a mask) is decided by the Python side of this room.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

#include "compat_binding.hpp"
#include "dense.hpp"
#include "lanes.hpp"
#include "measure.hpp"
#include "metrics.hpp"
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

// NumPy's array interface, as its documentation lays it out. Reading it here is several times
// faster than taking address, shape and strides from Python, one object each.
struct ArrayInterface {
  int two;
  int nd;
  char typekind;
  int itemsize;
  int flags;
  Py_intptr_t* shape;
  Py_intptr_t* strides;
  void* data;
};
constexpr int kNotSwapped = 0x200;

void take_array(nb::handle array, Operand& operand) {
  const nb::object capsule = array.attr("__array_struct__");
  const auto* found =
      static_cast<const ArrayInterface*>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
  if (!found || found->two != 2) throw std::invalid_argument("not an array");
  operand.data = static_cast<const std::byte*>(found->data);
  operand.shape.assign(found->shape, found->shape + found->nd);
  operand.strides.assign(found->strides, found->strides + found->nd);
  operand.swapped = !(found->flags & kNotSwapped) && found->itemsize > 1;
}

// `data`: an array, or path, offset and size of a file region. `shape`: None for arrays that are
// not packed.
void init_operand(Operand* self, nb::object data, const std::string& dtype,
                  std::optional<std::vector<std::int64_t>> shape, bool packed, double mask_below,
                  std::vector<double> scale, std::vector<double> zero_point,
                  std::vector<double> table, int axis, std::int64_t block) {
  Operand operand;
  if (nb::isinstance<nb::tuple>(data)) {
    auto [path, offset, nbytes] =
        nb::cast<std::tuple<std::string, std::int64_t, std::int64_t>>(data);
    operand.file = std::make_shared<const FileRegion>(FileRegion{std::move(path), offset, nbytes});
  } else {
    take_array(data, operand);
  }
  if (shape) operand.shape = std::move(*shape);
  operand.dtype = dtype_named(dtype);
  operand.packed = packed;
  operand.mask_below = mask_below;
  operand.quantization = make_quantization(std::move(scale), std::move(zero_point),
                                           std::move(table), axis, block, operand.shape);
  new (self) Operand(std::move(operand));
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

Tier tier_named(const std::string& name) {
  if (name == "base") return Tier::base;
  if (name == "relative") return Tier::relative;
  if (name == "default") return Tier::all;
  throw std::invalid_argument("unknown tier " + name);
}

// Fills a tuple from its first place to its last.
class Row {
 public:
  explicit Row(Py_ssize_t size) : tuple_(nb::steal(PyTuple_New(size))) {}

  Row& operator<<(std::int64_t x) { return put(PyLong_FromLongLong(x)); }
  Row& operator<<(double x) { return put(PyFloat_FromDouble(x)); }
  Row& operator<<(const Number& x) { return x ? *this << *x : none(); }
  Row& operator<<(const SideMetrics& side) {
    return *this << side.mean << side.std << side.min << side.max << side.l2;
  }
  Row& none() { return put(Py_NewRef(Py_None)); }
  Row& when(bool known, std::int64_t x) { return known ? *this << x : none(); }
  Row& put(PyObject* object) {
    PyTuple_SET_ITEM(tuple_.ptr(), next_++, object);
    return *this;
  }
  nb::object take() { return std::move(tuple_); }

 private:
  nb::object tuple_;
  Py_ssize_t next_ = 0;
};

// Rows hold numbers and nothing else, so looking for cycles among thousands of them is in vain.
class NoCollection {
 public:
  NoCollection() : was_on_(PyGC_Disable()) {}
  ~NoCollection() {
    if (was_on_) PyGC_Enable();
  }
  NoCollection(const NoCollection&) = delete;
  NoCollection& operator=(const NoCollection&) = delete;

 private:
  int was_on_;
};

nb::object histogram_of(const Result& result) {
  Row bins(static_cast<Py_ssize_t>(result.error_histogram.size()));
  for (const auto& [exponent, count] : result.error_histogram) {
    Row bin(2);
    bin << std::int64_t{exponent} << count;
    bins.put(bin.take().release().ptr());
  }
  return bins.take();
}

// In the order of the fields of `syncpoint.metrics.Measurement`.
nb::object row_of(const Result& result, const Pair& pair, Tier tier) {
  constexpr Py_ssize_t kFields = 53;
  const Counts& counts = result.counts;
  const Metrics m = derive_metrics(result, pair, tier);
  const bool overflow = pair.overflow_limit < std::numeric_limits<double>::infinity();
  const bool relative = tier != Tier::base;
  Row row(kFields);
  row << result.count << counts.compared << counts.masked << counts.mismatched << counts.equal
      << m.exact;
  row << m.psnr << m.sqnr << m.mae << m.mse << m.rmse << m.max_abs;
  row.when(counts.compared > 0, result.max_abs_index);
  row << m.rel_l2 << m.euclid << m.cosine << m.norm_ratio << m.peak;
  for (const auto& [side, tally] :
       {std::pair<const SideMetrics&, const SideTally&>(m.target, counts.target),
        {m.reference, counts.reference}}) {
    row << side << tally.nan << tally.inf;
    row.when(overflow, tally.overflow) << tally.zero;
  }
  row << m.max_rel << m.mean_rel << m.acc_rel;
  row.when(relative, counts.relative_count).when(relative, counts.relative_undefined);
  row << m.mean_rel_robust << m.within_1e3 << m.within_5e3 << m.allclose << m.max_ulp << m.lsb;
  row.when(result.outliers >= 0, result.outliers);
  row << m.outliers_from << m.bulk_sqnr << m.bulk_rmse << m.bulk_max_abs;
  row.put(histogram_of(result).release().ptr());
  return row.take();
}

nb::list measure(const std::vector<const Pair*>& pairs, const std::string& tier, unsigned threads,
                 std::size_t window, bool robust, double robust_above, double bulk_below) {
  const Options options{tier_named(tier), threads, window, robust, robust_above, bulk_below};
  std::vector<Result> results;
  {
    const nb::gil_scoped_release others_may_run;
    results = measure_all(pairs, options);
  }
  const NoCollection meanwhile;
  nb::list rows;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (results[i].failure.empty()) {
      rows.append(row_of(results[i], *pairs[i], options.tier));
    } else {
      rows.append(nb::str(results[i].failure.c_str()));
    }
  }
  return rows;
}

nb::object describe_operand(const Operand& operand) {
  Description description;
  {
    const nb::gil_scoped_release others_may_run;
    description = describe(operand);
  }
  const Result& result = description.result;
  if (!result.failure.empty()) return nb::str(result.failure.c_str());
  const SideTally& tally = result.counts.target;
  Row row(9);
  row << result.count << side_metrics(result.target, tally, description.finite) << tally.nan
      << tally.inf << tally.zero;
  return row.take();
}

void dense(nb::handle from, nb::handle to) {
  Operand source;
  Operand target;
  take_array(from, source);
  take_array(to, target);
  const auto size = nb::cast<std::size_t>(from.attr("itemsize"));
  const bool known = size == 1 || size == 2 || size == 4 || size == 8 || size == 16;
  if (!known || nb::cast<std::size_t>(to.attr("itemsize")) != size) {
    throw std::invalid_argument("elements of one size, a power of two up to 16, are needed");
  }
  const nb::object flags = to.attr("flags");
  const bool fit =
      nb::cast<bool>(flags.attr("c_contiguous")) && nb::cast<bool>(flags.attr("writeable"));
  if (source.shape != target.shape || !fit) {
    throw std::invalid_argument("a dense array of the same shape is needed");
  }
  const nb::gil_scoped_release others_may_run;
  copy_dense(source.data, source.shape, source.strides, size, const_cast<std::byte*>(target.data));
}

std::uint64_t read_all(const std::vector<std::pair<std::uintptr_t, std::size_t>>& stretches) {
  std::uint64_t fold = 0;
  for (const auto& [address, count] : stretches) {
    fold ^= lane_kernel().fold_bytes(reinterpret_cast<const std::byte*>(address), count);
  }
  return fold;
}

}  // namespace

NB_MODULE(_kernel, m) {
  m.doc() = "Measures pairs of tensors in place.";

  nb::class_<Operand>(m, "Operand")
      .def("__init__", &init_operand, "data"_a, "dtype"_a, "shape"_a.none(), "packed"_a,
           "mask_below"_a, "scale"_a, "zero_point"_a, "table"_a, "axis"_a, "block"_a);

  nb::class_<Pair>(m, "Pair").def("__init__", &init_pair, "target"_a, "reference"_a, "rtol"_a,
                                  "atol"_a, "mask_rtol"_a, "overflow_limit"_a, "ulp_unit"_a,
                                  "mantissa"_a, "min_exponent"_a, "step_of"_a);

  m.def("measure", &measure, "pairs"_a, "tier"_a, "threads"_a, "window"_a, "robust"_a,
        "robust_above"_a, "bulk_below"_a);
  m.def("describe", &describe_operand, "operand"_a);
  m.def("isa", [] { return lane_kernel().name; });
  m.def("dense", &dense, "source"_a, "to"_a);
  m.def("read_all", &read_all, "stretches"_a, nb::call_guard<nb::gil_scoped_release>());
  bind_on_demand(m);
  bind_compat(m);
}
