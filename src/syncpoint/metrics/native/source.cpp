#include "source.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace syncpoint {
namespace {

std::int64_t page_size() {
  static const std::int64_t size = sysconf(_SC_PAGESIZE);
  return size;
}

template <std::size_t Size>
void copy_strided(const std::byte* from, std::int64_t stride, std::size_t count, std::byte* to) {
  for (std::size_t i = 0; i < count; ++i, from += stride, to += Size) std::memcpy(to, from, Size);
}

bool is_dense(const Operand& operand) {
  auto expected = static_cast<std::int64_t>(itemsize(operand.dtype));
  if (operand.packed) return operand.strides.back() == expected;
  for (std::size_t i = operand.shape.size(); i-- > 0;) {
    if (operand.shape[i] == 1) continue;
    if (operand.strides[i] != expected) return false;
    expected *= operand.shape[i];
  }
  return true;
}

}  // namespace

Window::Window(const FileRegion& file, std::size_t capacity)
    : file_(file), capacity_(capacity), descriptor_(open(file.path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) {
    throw Unreadable(file.path + ": " + std::strerror(errno));
  }
}

Window::~Window() {
  unmap();
  close(descriptor_);
}

const std::byte* Window::at(std::int64_t begin, std::size_t count) {
  const std::int64_t wanted = file_.offset + begin;
  const std::int64_t end = wanted + static_cast<std::int64_t>(count);
  if (!mapping_ || wanted < first_ || end > first_ + static_cast<std::int64_t>(mapped_)) {
    map(begin, count);
  }
  return mapping_ + (wanted - first_);
}

void Window::map(std::int64_t begin, std::size_t count) {
  unmap();
  // Touching a mapped page beyond the end of a file kills the process, so its size is asked for
  // again whenever a window is mapped.
  struct stat status;
  if (fstat(descriptor_, &status) != 0) throw Unreadable(file_.path + ": " + std::strerror(errno));
  // Offset and size come from files too, and their sum may be too great for its type.
  if (status.st_size - file_.offset < file_.nbytes) {
    const auto end =
        static_cast<std::uint64_t>(file_.offset) + static_cast<std::uint64_t>(file_.nbytes);
    throw Unreadable(file_.path + " has " + std::to_string(status.st_size) + " bytes, " +
                     std::to_string(end) + " are needed");
  }
  const std::int64_t end = file_.offset + file_.nbytes;
  const std::int64_t wanted = file_.offset + begin;
  first_ = wanted - wanted % page_size();
  const std::int64_t least = wanted + static_cast<std::int64_t>(count) - first_;
  const std::int64_t most = std::max(least, static_cast<std::int64_t>(capacity_));
  mapped_ = static_cast<std::size_t>(std::min(most, end - first_));
  void* memory = mmap(nullptr, mapped_, PROT_READ, MAP_PRIVATE, descriptor_, first_);
  if (memory == MAP_FAILED) throw Unreadable(file_.path + ": " + std::strerror(errno));
  mapping_ = static_cast<std::byte*>(memory);
}

void Window::unmap() {
  if (mapping_) munmap(mapping_, mapped_);
  mapping_ = nullptr;
}

Source::Source(const Operand& operand, std::size_t window)
    : base_(operand.data),
      size_(static_cast<std::int64_t>(itemsize(operand.dtype))),
      swapped_(operand.swapped ? itemsize(operand.dtype) / (is_complex(operand.dtype) ? 2 : 1) : 0),
      packed_(operand.packed) {
  if (swapped_ == 1) swapped_ = 0;
  if (operand.file) {
    window_ = std::make_unique<Window>(*operand.file, window);
    dense_ = true;
    return;
  }
  dense_ = is_dense(operand) && !swapped_;
  if (dense_) return;
  find_axes(operand);
  gathered_.resize(kBlock * static_cast<std::size_t>(size_));
}

void Source::find_axes(const Operand& operand) {
  if (operand.packed) {
    axes_.push_back({(operand.count() + 1) / 2, operand.strides.back()});
    return;
  }
  for (std::size_t i = 0; i < operand.shape.size(); ++i) {
    const Axis axis{operand.shape[i], operand.strides[i]};
    if (axis.extent == 1) continue;
    if (!axes_.empty() && axes_.back().stride == axis.extent * axis.stride) {
      axes_.back() = {axes_.back().extent * axis.extent, axis.stride};
    } else {
      axes_.push_back(axis);
    }
  }
  if (axes_.empty()) axes_.push_back({1, size_});
}

const std::byte* Source::read(std::int64_t begin, std::size_t count) {
  if (packed_) {
    begin /= 2;
    count = (count + 1) / 2;
  }
  const std::size_t nbytes = count * static_cast<std::size_t>(size_);
  if (!dense_) {
    gather(begin, count);
    ahead_ = gathered_.data();
    return ahead_;
  }
  const std::byte* found = window_ ? window_->at(begin * size_, nbytes) : base_ + begin * size_;
  ahead_ = found + nbytes;
  return found;
}

void Source::gather(std::int64_t begin, std::size_t count) {
  constexpr std::size_t kMostAxes = 64;  // as many as NumPy allows
  std::int64_t index[kMostAxes];
  const std::size_t last = axes_.size() - 1;
  const std::byte* row = base_;
  std::int64_t rest = begin;
  for (std::size_t k = axes_.size(); k-- > 0;) {
    index[k] = rest % axes_[k].extent;
    rest /= axes_[k].extent;
    if (k != last) row += index[k] * axes_[k].stride;
  }
  const Axis& inner = axes_[last];
  for (std::size_t done = 0; done < count;) {
    const std::size_t run =
        std::min(count - done, static_cast<std::size_t>(inner.extent - index[last]));
    copy_run(row + index[last] * inner.stride, inner.stride, run,
             gathered_.data() + done * static_cast<std::size_t>(size_));
    done += run;
    index[last] = 0;
    for (std::size_t k = last; k-- > 0;) {
      row += axes_[k].stride;
      if (++index[k] < axes_[k].extent) break;
      row -= axes_[k].stride * axes_[k].extent;
      index[k] = 0;
    }
  }
  if (!swapped_) return;
  std::byte* const end = gathered_.data() + count * static_cast<std::size_t>(size_);
  for (std::byte* unit = gathered_.data(); unit < end; unit += swapped_) {
    std::reverse(unit, unit + swapped_);
  }
}

void Source::copy_run(const std::byte* from, std::int64_t stride, std::size_t count,
                      std::byte* to) const {
  if (stride == size_) {
    std::memcpy(to, from, count * static_cast<std::size_t>(size_));
    return;
  }
  switch (size_) {
    case 1:
      return copy_strided<1>(from, stride, count, to);
    case 2:
      return copy_strided<2>(from, stride, count, to);
    case 4:
      return copy_strided<4>(from, stride, count, to);
    case 8:
      return copy_strided<8>(from, stride, count, to);
    default:
      return copy_strided<16>(from, stride, count, to);
  }
}

}  // namespace syncpoint
