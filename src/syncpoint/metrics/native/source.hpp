// The stored bytes of an operand, in row-major logical order: read in place where they lie so,
// gathered where strides or byte order ask for it, and mapped a window at a time where they are in
// a file. Everything above it sees dense elements in this machine's byte order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "operand.hpp"

namespace syncpoint {

// A file that does not hold what its operand says; the message names it.
class Unreadable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The unit that is read at once, in elements: small enough for both sides to stay in the first
// level of cache, and even, so that packed nibbles start at a byte.
inline constexpr std::size_t kBlock = 1024;

// A part of a file, mapped while it is needed. What is unmapped no longer counts as memory of this
// process, so a tensor of any size takes no more than its window.
class Window {
 public:
  Window(const FileRegion& file, std::size_t capacity);
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  // Bytes [begin, begin + count) of the region; valid until the next call.
  const std::byte* at(std::int64_t begin, std::size_t count);

 private:
  void map(std::int64_t begin, std::size_t count);
  void unmap();

  const FileRegion& file_;
  std::size_t capacity_;
  int descriptor_;
  std::byte* mapping_ = nullptr;
  std::size_t mapped_ = 0;  // bytes, from the start of a page
  std::int64_t first_ = 0;  // byte of the file at which the mapping starts
};

class Source {
 public:
  // The operand must outlive the source. `window`: bytes that may be mapped at once.
  Source(const Operand& operand, std::size_t window);

  // Elements [begin, begin + count), count <= kBlock; valid until the next call. Of packed
  // operands, the bytes that hold them.
  const std::byte* read(std::int64_t begin, std::size_t count);

  // Where the element after those of the last read probably is: a hint for prefetching only.
  const std::byte* ahead() const { return ahead_; }
  std::size_t item_size() const { return static_cast<std::size_t>(size_); }

 private:
  // One axis; neighbours that are dense in each other are joined into one.
  struct Axis {
    std::int64_t extent;
    std::int64_t stride;
  };

  void find_axes(const Operand& operand);
  void gather(std::int64_t begin, std::size_t count);
  void copy_run(const std::byte* from, std::int64_t stride, std::size_t count, std::byte* to) const;

  std::unique_ptr<Window> window_;
  const std::byte* base_;
  const std::byte* ahead_ = nullptr;
  std::int64_t size_;    // of an element, in bytes
  std::size_t swapped_;  // size of the units whose bytes are reversed; 0: none
  bool packed_;
  bool dense_ = false;
  std::vector<Axis> axes_;
  std::vector<std::byte> gathered_;
};

}  // namespace syncpoint
