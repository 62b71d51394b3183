// The native kernel: the numbers of one pair of tensors.
#include <nanobind/nanobind.h>

NB_MODULE(_kernel, m) {
  m.doc() = "Measures pairs of tensors.";
  m.attr("ABI") = 1;
}
