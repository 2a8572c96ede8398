// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How far a transfer is, readable while it runs, and the switch that stops it.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/clock.hpp"

namespace efs::stage {

/// A copy of the counters of Progress. The counters are read one by one and may differ by a chunk.
struct ProgressSnapshot {
  std::uint64_t bytes_total = 0;
  std::uint64_t bytes_done = 0;
  std::uint64_t files_total = 0;
  std::uint64_t files_done = 0;
  Nanoseconds started = 0;  // wall clock; 0: not started
};

/// Thread-safe. The byte counters leave holes out (data_of()); done reaches total. A transfer
/// checks `cancel` before every chunk. After `cancel` is set the transfer ends soon and reports the
/// unfinished entries. Staging never clears `cancel`; stage_in sets it when a file fails.
struct Progress {
  // The counters that every thread updates and the flag that every thread reads have separate cache
  // lines. Otherwise each read of the flag would wait for the last update of a counter.
  static constexpr std::size_t cache_line = 64;
  alignas(cache_line) std::atomic<std::uint64_t> bytes_done{0};
  std::atomic<std::uint64_t> files_done{0};
  alignas(cache_line) std::atomic<bool> cancel{false};
  std::atomic<bool> time_is_up{false};  // the reason for `cancel`; set before it
  // another transfer waits for the end of this one, which ends if it still waits for its turn
  std::atomic<bool> gives_way{false};
  std::atomic<bool> listing{false};  // computing; no call to the PFS is in progress
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
