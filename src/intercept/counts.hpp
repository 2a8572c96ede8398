// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Counters of what was served. Thread-safe; a process with one thread pays for no locked
// instruction.

#include <sys/single_threaded.h>

#include <atomic>
#include <cstdint>

namespace efs::intercept {

inline void add(std::atomic<std::uint64_t>& to, std::uint64_t value) {
  if (__libc_single_threaded != 0) {
    to.store(to.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
  } else {
    to.fetch_add(value, std::memory_order_relaxed);
  }
}

struct Counts {
  std::atomic<std::uint64_t> reads{0};
  std::atomic<std::uint64_t> read_bytes{0};
  std::atomic<std::uint64_t> writes{0};
  std::atomic<std::uint64_t> written_bytes{0};
  std::atomic<std::uint64_t> kernel_calls{0};  // of mapped files

  void clear() {
    for (auto* count : {&reads, &read_bytes, &writes, &written_bytes, &kernel_calls}) {
      count->store(0, std::memory_order_relaxed);
    }
  }
};

}  // namespace efs::intercept
