#include "dense.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace syncpoint {
namespace {

struct Axis {
  std::int64_t extent;
  std::int64_t from;  // strides in bytes
  std::int64_t to;
};

// Neighbouring axes that are as one on both sides are joined.
std::vector<Axis> axes_of(const std::vector<std::int64_t>& shape,
                          const std::vector<std::int64_t>& strides, std::size_t size) {
  std::vector<Axis> axes;
  for (std::size_t k = 0; k < shape.size(); ++k) {
    if (shape[k] == 1) continue;
    if (!axes.empty() && axes.back().from == shape[k] * strides[k]) {
      axes.back() = {axes.back().extent * shape[k], strides[k], 0};
    } else {
      axes.push_back({shape[k], strides[k], 0});
    }
  }
  auto stride = static_cast<std::int64_t>(size);
  for (std::size_t k = axes.size(); k-- > 0;) {
    axes[k].to = stride;
    stride *= axes[k].extent;
  }
  return axes;
}

// Calls visit(from, to) for every combination of indices.
template <class Visit>
void each_index(const std::vector<Axis>& axes, const std::byte* from, std::byte* to, Visit visit) {
  std::vector<std::int64_t> index(axes.size(), 0);
  for (;;) {
    visit(from, to);
    std::size_t k = axes.size();
    for (;;) {
      if (k-- == 0) return;
      from += axes[k].from;
      to += axes[k].to;
      if (++index[k] < axes[k].extent) break;
      from -= axes[k].from * axes[k].extent;
      to -= axes[k].to * axes[k].extent;
      index[k] = 0;
    }
  }
}

template <class T>
struct Tile {
  static constexpr std::size_t kLanes = 16 / sizeof(T);
  typedef T Vector __attribute__((vector_size(16)));  // GCC ignores it on a dependent `using`

  template <std::size_t... I>
  static Vector low(const Vector& a, const Vector& b, std::index_sequence<I...>) {
    return __builtin_shufflevector(a, b, (I % 2 ? kLanes + I / 2 : I / 2)...);
  }
  template <std::size_t... I>
  static Vector high(const Vector& a, const Vector& b, std::index_sequence<I...>) {
    return __builtin_shufflevector(a, b,
                                   (I % 2 ? kLanes + kLanes / 2 + I / 2 : kLanes / 2 + I / 2)...);
  }

  // Rows of `from` become columns of `to`, as many as a vector has lanes: each round interleaves
  // the first half of the rows with the second.
  static void turn(const std::byte* from, std::int64_t from_row, std::byte* to,
                   std::int64_t to_row) {
    constexpr auto kAll = std::make_index_sequence<kLanes>{};
    Vector row[kLanes];
    for (std::size_t k = 0; k < kLanes; ++k) {
      std::memcpy(&row[k], from + static_cast<std::int64_t>(k) * from_row, sizeof(Vector));
    }
    for (std::size_t round = 1; round < kLanes; round *= 2) {
      Vector next[kLanes];
      for (std::size_t k = 0; k < kLanes / 2; ++k) {
        next[2 * k] = low(row[k], row[k + kLanes / 2], kAll);
        next[2 * k + 1] = high(row[k], row[k + kLanes / 2], kAll);
      }
      for (std::size_t k = 0; k < kLanes; ++k) row[k] = next[k];
    }
    for (std::size_t k = 0; k < kLanes; ++k) {
      std::memcpy(to + static_cast<std::int64_t>(k) * to_row, &row[k], sizeof(Vector));
    }
  }
};

template <class T>
void copy_corner(const std::byte* from, const Axis& rows, const Axis& run, std::byte* to) {
  for (std::int64_t i = 0; i < rows.extent; ++i) {
    for (std::int64_t k = 0; k < run.extent; ++k) {
      std::memcpy(to + i * rows.to + k * run.to, from + i * rows.from + k * run.from, sizeof(T));
    }
  }
}

// One plane: elements lie side by side along `near` in `from`, and along `far` in `to`.
template <class T>
void turn_plane(const std::byte* from, const Axis& near, const Axis& far, std::byte* to) {
  constexpr auto kLanes = static_cast<std::int64_t>(Tile<T>::kLanes);
  constexpr std::int64_t kSquare = std::max<std::int64_t>(64 / sizeof(T), kLanes);  // a cache line
  const std::int64_t whole_near = near.extent - near.extent % kLanes;
  const std::int64_t whole_far = far.extent - far.extent % kLanes;
  for (std::int64_t i0 = 0; i0 < whole_far; i0 += kSquare) {
    for (std::int64_t k0 = 0; k0 < whole_near; k0 += kSquare) {
      const std::int64_t i1 = std::min(i0 + kSquare, whole_far);
      const std::int64_t k1 = std::min(k0 + kSquare, whole_near);
      for (std::int64_t k = k0; k < k1; k += kLanes) {
        for (std::int64_t i = i0; i < i1; i += kLanes) {
          Tile<T>::turn(from + i * far.from + k * near.from, far.from,
                        to + i * far.to + k * near.to, near.to);
        }
      }
    }
  }
  const Axis rest_near{near.extent - whole_near, near.from, near.to};
  copy_corner<T>(from + whole_near * near.from, rest_near, far, to + whole_near * near.to);
  const Axis rest_far{far.extent - whole_far, far.from, far.to};
  const Axis body_near{whole_near, near.from, near.to};
  copy_corner<T>(from + whole_far * far.from, rest_far, body_near, to + whole_far * far.to);
}

template <class T>
void copy_run(const std::byte* from, const Axis& run, std::byte* to) {
  for (std::int64_t k = 0; k < run.extent; ++k) {
    std::memcpy(to + k * static_cast<std::int64_t>(sizeof(T)), from + k * run.from, sizeof(T));
  }
}

template <class T>
void copy_elements(const std::byte* from, std::vector<Axis> axes, std::byte* to) {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
  const Axis last = axes.back();
  axes.pop_back();
  if (last.from == kSize) {
    const auto nbytes = static_cast<std::size_t>(last.extent * kSize);
    constexpr std::size_t kShort = 32;  // sixteen channels of two bytes
    return each_index(axes, from, to, [=](const std::byte* a, std::byte* b) {
      if (nbytes == kShort) {
        std::memcpy(b, a, kShort);
      } else {
        std::memcpy(b, a, nbytes);
      }
    });
  }
  const auto near =
      std::find_if(axes.begin(), axes.end(), [](const Axis& axis) { return axis.from == kSize; });
  if (near == axes.end()) {
    return each_index(axes, from, to,
                      [&](const std::byte* a, std::byte* b) { copy_run<T>(a, last, b); });
  }
  const Axis turned = *near;
  axes.erase(near);
  each_index(axes, from, to,
             [&](const std::byte* a, std::byte* b) { turn_plane<T>(a, turned, last, b); });
}

struct Sixteen {
  std::uint64_t at[2];
};

template <>
struct Tile<Sixteen> {
  static constexpr std::size_t kLanes = 1;
  static void turn(const std::byte* from, std::int64_t, std::byte* to, std::int64_t) {
    std::memcpy(to, from, sizeof(Sixteen));
  }
};

}  // namespace

void copy_dense(const std::byte* from, const std::vector<std::int64_t>& shape,
                const std::vector<std::int64_t>& strides, std::size_t size, std::byte* to) {
  for (const std::int64_t extent : shape) {
    if (extent == 0) return;
  }
  std::vector<Axis> axes = axes_of(shape, strides, size);
  if (axes.empty()) {
    std::memcpy(to, from, size);
    return;
  }
  switch (size) {
    case 1:
      return copy_elements<std::uint8_t>(from, std::move(axes), to);
    case 2:
      return copy_elements<std::uint16_t>(from, std::move(axes), to);
    case 4:
      return copy_elements<std::uint32_t>(from, std::move(axes), to);
    case 8:
      return copy_elements<std::uint64_t>(from, std::move(axes), to);
    default:
      return copy_elements<Sixteen>(from, std::move(axes), to);
  }
}

}  // namespace syncpoint
