// SPDX-License-Identifier: BSD-3-Clause
#include "intercept/own_process.hpp"

#include <sys/types.h>

#include <atomic>

#include "intercept/raw.hpp"

namespace efs::intercept::own_process {
namespace {

constinit std::atomic<long> process{0};
constinit std::atomic<bool> shared{false};

}  // namespace

void begin() {
  process.store(raw(SYS_getpid));
  shared.store(false);
}

void share_memory() {
  shared.store(true);
}

// A process that never shares its memory pays no system call.
bool is_here() {
  return !shared.load(std::memory_order_relaxed) || raw(SYS_getpid) == process.load();
}

}  // namespace efs::intercept::own_process
