#include "operand.hpp"

#include <array>
#include <stdexcept>
#include <string>

namespace syncpoint {
namespace {

struct Entry {
  std::string_view name;
  std::size_t size;
};

// In the order of the enumeration.
constexpr std::array<Entry, 19> kTypes{{{"f64", 8},
                                        {"f32", 4},
                                        {"f16", 2},
                                        {"bf16", 2},
                                        {"f8_e4m3fn", 1},
                                        {"f8_e5m2", 1},
                                        {"i64", 8},
                                        {"i32", 4},
                                        {"i16", 2},
                                        {"i8", 1},
                                        {"u64", 8},
                                        {"u32", 4},
                                        {"u16", 2},
                                        {"u8", 1},
                                        {"i4", 1},
                                        {"u4", 1},
                                        {"bool", 1},
                                        {"c64", 8},
                                        {"c128", 16}}};

}  // namespace

DType dtype_named(std::string_view name) {
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    if (kTypes[i].name == name) return static_cast<DType>(i);
  }
  throw std::invalid_argument("unknown element type " + std::string(name));
}

std::size_t itemsize(DType dtype) { return kTypes[static_cast<std::size_t>(dtype)].size; }

}  // namespace syncpoint
