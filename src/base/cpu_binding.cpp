// SPDX-License-Identifier: BSD-3-Clause
#include "base/cpu_binding.hpp"

#include <sched.h>
#include <unistd.h>

#include <array>

namespace efs {
namespace {

// A machine can have more CPUs than one cpu_set_t, and then the kernel refuses a smaller mask.
class CpuMask {
 public:
  static CpuMask of(pid_t thread) {
    CpuMask mask;
    mask.known_ = ::sched_getaffinity(thread, sizeof mask.sets_, mask.sets_.data()) == 0;
    return mask;
  }

  static CpuMask only(unsigned cpu) {
    CpuMask mask;
    mask.known_ = cpu < most;
    CPU_SET_S(cpu, sizeof mask.sets_, mask.sets_.data());
    return mask;
  }

  bool has(unsigned cpu) const { return known_ && CPU_ISSET_S(cpu, sizeof sets_, sets_.data()); }

  std::optional<unsigned> only_member() const {
    if (!known_ || CPU_COUNT_S(sizeof sets_, sets_.data()) != 1) {
      return std::nullopt;
    }
    unsigned cpu = 0;
    while (!has(cpu)) {
      ++cpu;
    }
    return cpu;
  }

  bool apply() const { return known_ && ::sched_setaffinity(0, sizeof sets_, sets_.data()) == 0; }

 private:
  static constexpr unsigned most = 8 * CPU_SETSIZE;
  std::array<cpu_set_t, 8> sets_{};
  bool known_ = false;
};

thread_local std::optional<unsigned> bound;

}  // namespace

std::optional<unsigned> only_cpu_of(pid_t thread) {
  const auto cpu = CpuMask::of(thread).only_member();
  const int policy = cpu ? ::sched_getscheduler(thread) : -1;
  const bool shares = policy == SCHED_OTHER || policy == SCHED_BATCH || policy == SCHED_IDLE;
  return shares && CpuMask::of(::getpid()).has(*cpu) ? cpu : std::nullopt;
}

bool bind_to_cpu(unsigned cpu) {
  if (!CpuMask::of(::getpid()).has(cpu) || !CpuMask::only(cpu).apply()) {
    return false;
  }
  bound = cpu;
  return true;
}

void use_cpus_of_process() {
  bound.reset();
  (void)CpuMask::of(::getpid()).apply();
}

void unbind_from_cpu() {
  if (bound) {
    use_cpus_of_process();
  }
}

std::optional<unsigned> bound_cpu() {
  return bound;
}

}  // namespace efs
