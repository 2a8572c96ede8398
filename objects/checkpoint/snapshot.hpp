// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Write protection of the program's memory by userfaultfd: the first write to a granule waits until
// the content of the granule is saved.

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "objects/checkpoint/fast.hpp"
#include "objects/files.hpp"

namespace efs::objects {

/// Whole pages of an array that are protected. `item` and `at` are for the caller.
struct Range {
  char* begin = nullptr;
  std::uint64_t size = 0;
  std::uint64_t saved = 0;  // the offset in the memory for copies
  std::size_t item = 0;     // the array
  std::uint64_t at = 0;     // the offset in the array
};

/// The unit of protection: at most 2 MiB, aligned to 2 MiB but for the ends of a range.
struct Granule {
  enum class State { untouched, taken, saving, saved };

  Range range;
  std::atomic<State> state = State::untouched;
};

/// A system that cannot protect is EPERM or ENOTSUP, with the reason.
class Snapshot {
 public:
  /// Protects the ranges. `fast` must have memory up to the end of the last copy; until the
  /// destruction only this object writes to it.
  static Result<std::unique_ptr<Snapshot>> of(const std::vector<Range>& ranges, const Fast& fast);

  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;
  /// Ends the protection of all memory.
  ~Snapshot();

  /// Calls each(range, content) for each granule with what it contained when it was protected,
  /// until it returns a failure. Granules that the program waits for come first. Call it once.
  template <typename Each>
  Status for_each(Each each) {
    for (std::size_t i = 0; i < granules_.size(); ++i) {
      for (std::size_t urgent = urgent_.exchange(none); urgent != none;
           urgent = urgent_.exchange(none)) {
        EO_TRY(visit(urgent, each));
      }
      EO_TRY(visit(i, each));
    }
    return {};
  }

  /// Granules that the program wrote to before they were visited.
  std::uint64_t saved() const { return saved_; }

 private:
  explicit Snapshot(const Fast& fast) : fast_(fast) {}

  static constexpr std::size_t none = SIZE_MAX;

  template <typename Each>
  Status visit(std::size_t index, Each& each) {
    if (visited_[index]) {
      return {};
    }
    const char* content = acquire(granules_[index]);
    visited_[index] = true;
    return each(granules_[index].range, content);
  }

  void divide(const std::vector<Range>& ranges);
  Status open();
  Status protect(const std::vector<Range>& ranges);
  /// Returns the content of a granule, valid until the next call.
  const char* acquire(Granule& granule);
  void handle_faults();
  void handle(const char* address);
  void release(const Range& range) const;

  const Fast& fast_;
  Fd faults_;
  Fd ending_;                      // an eventfd
  std::vector<Granule> granules_;  // in the order of memory
  std::vector<bool> visited_;      // of the thread that visits
  std::vector<char> content_;      // likewise
  std::vector<Range> registered_;
  std::atomic<std::size_t> urgent_ = none;
  std::atomic<std::uint64_t> saved_ = 0;
  std::thread handler_;
};

}  // namespace efs::objects
