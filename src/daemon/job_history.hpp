// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The times of a job and samples of its buffer use, in memory that all workers of the instance
// share. They go into the receipt (stage/export/job_record.hpp).

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.hpp"
#include "stage/export/job_record.hpp"

namespace efs::daemon {

/// The ends of the phases of a job.
enum class Moment : std::uint8_t {
  begun,       // the first worker started
  asked_in,    // the plan is made
  in_begun,    // the stage-in has its turn
  in_ended,    // all inputs are in the buffer
  running,     // programs may use the mount
  unmounting,  // a stop began
  unmounted,
  asked_out,  // the latest export began
  out_begun,  // the stage-out has its turn
  out_ended
};
inline constexpr std::size_t moments = static_cast<std::size_t>(Moment::out_ended) + 1;

/// A bounded series. If it is full, each two neighbours become one with the larger value, and the
/// interval doubles: an instance that lives long is disturbed seldom. One thread at a time adds.
class SpaceSeries {
 public:
  static constexpr std::size_t most = 128;

  /// Returns the time until the next sample is due.
  std::chrono::seconds add(stage::SpaceSample sample);
  std::vector<stage::SpaceSample> all() const;

 private:
  std::atomic<std::size_t> count_{0};
  std::atomic<std::int64_t> interval_{1};  // seconds
  std::array<stage::SpaceSample, most> samples_{};
};

struct KeptHistory {
  /// Sets the moment to the present time. A moment that comes again is overwritten, except `begun`
  /// and `running`: a refused stop does not end the run.
  void note(Moment moment);

  std::optional<Nanoseconds> at(Moment moment) const;

  /// The phases between the moments that were reached. `bytes_in` and `bytes_out`: of the
  /// stage-in and the stage-out.
  std::vector<stage::JobPhase> phases(std::uint64_t bytes_in, std::uint64_t bytes_out) const;

  // the instance continued with the buffer of an earlier one
  std::atomic<bool> continued{false};
  std::array<std::atomic<Nanoseconds>, moments> times{};
  SpaceSeries space;
};

}  // namespace efs::daemon
