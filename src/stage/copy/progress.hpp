#pragma once
// How far a transfer is, readable while it runs, and the switch that stops it.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/clock.hpp"

namespace efs::stage {

/// What a reader of Progress sees; the counters are read one by one and may be a chunk apart.
struct ProgressSnapshot {
  std::uint64_t bytes_total = 0;
  std::uint64_t bytes_done = 0;
  std::uint64_t files_total = 0;
  std::uint64_t files_done = 0;
  Nanoseconds started = 0;  // wall clock; 0: not started
};

/// Thread-safe. bytes are of data, without holes (data_of()); done reaches total. `cancel` is
/// looked at before every chunk; once set, a transfer ends soon and reports what it did not do.
/// Staging never clears it; stage_in sets it when a file fails.
struct Progress {
  // What every thread adds to, and what every thread looks at, in cache lines of their own: else
  // each look would wait for the last sum.
  static constexpr std::size_t cache_line = 64;
  alignas(cache_line) std::atomic<std::uint64_t> bytes_done{0};
  std::atomic<std::uint64_t> files_done{0};
  alignas(cache_line) std::atomic<bool> cancel{false};
  std::atomic<bool> time_is_up{false};  // why; set before
  std::atomic<bool> listing{false};     // it computes: no call to the PFS is under way
  std::atomic<std::uint64_t> bytes_total{0};
  std::atomic<std::uint64_t> files_total{0};
  std::atomic<Nanoseconds> started{0};

  const char* why_cancelled() const { return time_is_up ? "time was up" : "cancelled"; }

  ProgressSnapshot snapshot() const {
    return {.bytes_total = bytes_total,
            .bytes_done = bytes_done,
            .files_total = files_total,
            .files_done = files_done,
            .started = started};
  }

  void begin(std::uint64_t files, std::uint64_t bytes) {
    files_done = 0;
    bytes_done = 0;
    files_total = files;
    bytes_total = bytes;
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    started = to_ns(now);
  }
};

}  // namespace efs::stage
