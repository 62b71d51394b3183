// The worst slice: one ruined channel among many is not seen in the error of the whole.
#include <algorithm>
#include <cmath>

#include "on_demand.hpp"
#include "on_demand_chunk.hpp"
#include "summation.hpp"

namespace syncpoint {
namespace {

constexpr std::int64_t kSliceLanes = 8;

// The power of two that brings `greatest` near 1; 1 while squares are far from the ends of the
// range of a double.
double factor_for(double greatest) {
  if (greatest == 0 || (greatest > 0x1p-400 && greatest < 0x1p400)) return 1;
  if (std::isinf(greatest)) return 0x1p-1000;
  return std::ldexp(1.0, std::clamp(-std::ilogb(greatest), -1000, 1000));
}

// |d|² and |r|² of a chunk, each element in its place; 0 where it is not compared.
class Squares {
 public:
  explicit Squares(std::size_t capacity) : error(capacity), reference(capacity) {}

  void derive(Chunk& chunk, double error_factor, double reference_factor) {
    const std::size_t count = chunk.size();
    const bool plain = !chunk.complex() && !chunk.target().wide && !chunk.reference().wide;
    if (chunk.ordinary() && plain && error_factor == 1 && reference_factor == 1) {
      const double* t = chunk.target().re.data();
      const double* r = chunk.reference().re.data();
      for (std::size_t i = 0; i < count; ++i) {
        error[i] = (t[i] - r[i]) * (t[i] - r[i]);
        reference[i] = r[i] * r[i];
      }
    } else {
      for (std::size_t i = 0; i < count; ++i) {
        const bool used = chunk.compared(i);
        error[i] = used ? square_error(chunk, i, error_factor) : 0;
        reference[i] = used ? square_reference(chunk, i, reference_factor) : 0;
      }
    }
    const double* e = error.data();
    const double* r = reference.data();
    greatest_error = lane_max(count, greatest_error, [=](std::size_t i) { return e[i]; });
    greatest_reference = lane_max(count, greatest_reference, [=](std::size_t i) { return r[i]; });
  }

  std::vector<double> error;
  std::vector<double> reference;
  double greatest_error = 0;  // of all that were derived
  double greatest_reference = 0;

 private:
  static double square_error(Chunk& chunk, std::size_t i, double factor) {
    const double re = chunk.difference_at(i, factor);
    const double im = chunk.imaginary_difference_at(i, factor);
    return re * re + im * im;
  }

  static double square_reference(Chunk& chunk, std::size_t i, double factor) {
    const Values& r = chunk.reference();
    const double re = r.re[i] * factor;
    const double im = r.complex() ? r.im[i] * factor : 0;
    return re * re + im * im;
  }
};

// The sums of one axis. An element's lane follows from its place inside its slice, never from where
// a chunk was cut, so that equal slices have equal sums and the lowest index wins.
class SliceSums {
 public:
  SliceSums(const SliceAxis& axis, std::int64_t count)
      : axis_(axis),
        elements_(count / axis.length),
        lanes_(axis.inner >= kSliceLanes ? kSliceLanes : 1),
        error_(static_cast<std::size_t>(axis.length * lanes_)),
        reference_(error_.size()) {}

  void add(std::int64_t begin, Chunk& chunk, const Squares& squares) {
    each_run(begin, chunk.size(), [&](std::size_t lane, std::size_t at, std::size_t run) {
      add_run(squares.error.data() + at, lane, run, error_);
      add_run(squares.reference.data() + at, lane, run, reference_);
    });
    if (chunk.ordinary()) return;
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      if (chunk.compared(i)) continue;
      if (left_out_.empty()) left_out_.resize(static_cast<std::size_t>(axis_.length));
      ++left_out_[slice_of(begin + static_cast<std::int64_t>(i))];
    }
  }

  WorstSlice worst(double error_factor, double reference_factor) const {
    const auto length = static_cast<std::size_t>(axis_.length);
    double total = 0;
    std::size_t used = 0;
    for (std::size_t k = 0; k < length; ++k) {
      total += sum(reference_, k);
      used += is_used(k);
    }
    if (used == 0 || total == 0) return {};
    const double floor = 0.1 * std::sqrt(total / static_cast<double>(used));
    WorstSlice worst;
    double greatest = -1;
    for (std::size_t k = 0; k < length; ++k) {
      if (!is_used(k)) continue;
      const double norm = std::max(std::sqrt(sum(reference_, k)), floor);
      const double ratio = std::sqrt(sum(error_, k)) / norm;
      if (ratio > greatest) {
        greatest = ratio;
        worst.index = static_cast<std::int64_t>(k);
      }
    }
    worst.rel_l2 = greatest * reference_factor / error_factor;
    return worst;
  }

 private:
  std::size_t slice_of(std::int64_t logical) const {
    return static_cast<std::size_t>(logical / axis_.inner % axis_.length);
  }

  bool is_used(std::size_t k) const { return left_out_.empty() || left_out_[k] < elements_; }

  // Calls visit(first lane, first element, elements) for every stretch that can be added at once:
  // one element a slice where slices are interleaved, else elements of one slice.
  template <class Visit>
  void each_run(std::int64_t begin, std::size_t count, Visit visit) const {
    const std::int64_t period = axis_.inner == 1 ? axis_.length : axis_.inner;
    for (std::size_t done = 0; done < count;) {
      const std::int64_t logical = begin + static_cast<std::int64_t>(done);
      const std::int64_t offset = logical % period;
      const std::size_t run = std::min(count - done, static_cast<std::size_t>(period - offset));
      std::size_t lane = slice_of(logical) * static_cast<std::size_t>(lanes_);
      lane += static_cast<std::size_t>(offset % lanes_);
      visit(lane, done, run);
      done += run;
    }
  }

  void add_run(const double* x, std::size_t lane, std::size_t run, std::vector<double>& to) const {
    double* sums = to.data() + lane;
    if (axis_.inner == 1) {
      for (std::size_t i = 0; i < run; ++i) sums[i] += x[i];
      return;
    }
    if (lanes_ == 1) {
      for (std::size_t i = 0; i < run; ++i) *sums += x[i];
      return;
    }
    std::size_t i = 0;
    for (; i < run && (lane + i) % kSliceLanes != 0; ++i) sums[i] += x[i];
    double* slice = to.data() + lane / kSliceLanes * kSliceLanes;
    for (; i + kSliceLanes <= run; i += kSliceLanes) {
      for (std::size_t k = 0; k < kSliceLanes; ++k) slice[k] += x[i + k];
    }
    for (std::size_t k = 0; i < run; ++i, ++k) slice[k] += x[i];
  }

  double sum(const std::vector<double>& of, std::size_t slice) const {
    const double* lane = of.data() + slice * static_cast<std::size_t>(lanes_);
    if (lanes_ == 1) return *lane;
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) +
           ((lane[4] + lane[5]) + (lane[6] + lane[7]));
  }

  SliceAxis axis_;
  std::int64_t elements_;  // of one slice
  std::int64_t lanes_;
  std::vector<double> error_;
  std::vector<double> reference_;
  std::vector<std::int64_t> left_out_;  // elements of each slice that are not compared
};

// Readings of one pair. A second and third are needed only where squares leave the range of a
// double, or all differences are 0.
class SliceSearch {
 public:
  SliceSearch(const Pair& pair, const std::vector<SliceAxis>& axes)
      : axes_(axes), count_(pair.target.count()), chunk_(pair, capacity()), squares_(capacity()) {}

  std::vector<WorstSlice> run() {
    std::vector<WorstSlice> found = pass(1, 1);
    if (is_ordinary(squares_.greatest_error) && is_ordinary(squares_.greatest_reference)) {
      return found;
    }
    const auto [error, reference] = magnitudes();
    const double error_factor = factor_for(error);
    const double reference_factor = factor_for(reference);
    if (error_factor == 1 && reference_factor == 1) return found;
    return pass(error_factor, reference_factor);
  }

 private:
  std::size_t capacity() const {
    return static_cast<std::size_t>(std::min<std::int64_t>(count_, kPiece));
  }

  static bool is_ordinary(double square) { return square > 0x1p-800 && square < 0x1p800; }

  std::vector<WorstSlice> pass(double error_factor, double reference_factor) {
    std::vector<SliceSums> sums;
    for (const SliceAxis& axis : axes_) sums.emplace_back(axis, count_);
    each_piece(count_, [&](std::int64_t begin, std::size_t size) {
      chunk_.read(begin, size);
      squares_.derive(chunk_, error_factor, reference_factor);
      for (SliceSums& axis : sums) axis.add(begin, chunk_, squares_);
    });
    std::vector<WorstSlice> found;
    for (const SliceSums& axis : sums) {
      found.push_back(axis.worst(error_factor, reference_factor));
    }
    return found;
  }

  // The greatest component of d and of r.
  std::pair<double, double> magnitudes() {
    double error = 0;
    double reference = 0;
    each_piece(count_, [&](std::int64_t begin, std::size_t size) {
      chunk_.read(begin, size);
      const Values& r = chunk_.reference();
      for (std::size_t i = 0; i < size; ++i) {
        if (!chunk_.compared(i)) continue;
        error = std::max({error, std::abs(chunk_.difference_at(i, 1)),
                          std::abs(chunk_.imaginary_difference_at(i, 1))});
        reference = std::max({reference, std::abs(r.re[i]), r.complex() ? std::abs(r.im[i]) : 0});
      }
    });
    return {error, reference};
  }

  const std::vector<SliceAxis>& axes_;
  std::int64_t count_;
  Chunk chunk_;
  Squares squares_;
};

}  // namespace

std::vector<WorstSlice> worst_slices(const Pair& pair, const std::vector<SliceAxis>& axes) {
  const PlainArithmetic arithmetic;
  if (pair.target.count() == 0) return std::vector<WorstSlice>(axes.size());
  return SliceSearch(pair, axes).run();
}

}  // namespace syncpoint
