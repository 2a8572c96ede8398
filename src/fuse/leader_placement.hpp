// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Decides on which CPU the leading thread of the request loop serves.
//
// A round trip costs two wake-ups. They cost least if the caller and the thread that serves it
// share a CPU, because the wake-up of an idle CPU costs more than most requests. A caller that may
// use several CPUs does not stay: the kernel's scheduler wakes it on a CPU that is idle, so to
// follow it gains nothing (measured: docs/benchmarks.md). A caller that is bound to one CPU, as
// batch systems and MPI bind tasks, stays. So the leader joins a bound caller when many requests in
// a row come from that CPU. It leaves with the first request from elsewhere, for slow work, and
// when no request comes for a moment: the caller may compute then.

#include <cstdint>
#include <functional>
#include <optional>

namespace efs::fuse {

/// Not thread-safe: only the leader uses it.
class LeaderPlacement {
 public:
  static constexpr unsigned enough = 64;  // requests in a row
  // After this many requests of one caller its CPU is asked for again.
  static constexpr unsigned valid = 1024;

  /// Returns the CPU that a thread is bound to, or nullopt (base/cpu_binding.hpp).
  using OnlyCpu = std::function<std::optional<unsigned>(std::uint32_t thread)>;

  explicit LeaderPlacement(OnlyCpu only_cpu) : only_cpu_(std::move(only_cpu)) {}

  /// Call for each request. `caller` is the thread that the kernel names, or 0 for a request of the
  /// kernel itself, which changes nothing. Returns the CPU to serve on; nullopt: any.
  std::optional<unsigned> next(std::uint32_t caller);

  /// The leader joins nobody before enough further requests.
  void start_over() { in_a_row_ = 0; }

 private:
  const OnlyCpu only_cpu_;
  std::uint32_t caller_ = 0;
  unsigned of_caller_ = 0;  // its requests since its CPU was asked for
  std::optional<unsigned> cpu_;
  unsigned in_a_row_ = 0;  // requests from `cpu_`, at most `enough`
};

}  // namespace efs::fuse
