// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/job_history.hpp"

#include <algorithm>

namespace efs::daemon {

std::chrono::seconds SpaceSeries::add(stage::SpaceSample sample) {
  // A worker that died between two stores may have left any count.
  std::size_t count = std::min(count_.load(), most);
  if (count == most) {
    for (std::size_t i = 0; i < most / 2; ++i) {
      const auto& first = samples_[2 * i];
      const auto& second = samples_[2 * i + 1];
      samples_[i] = first.used > second.used ? first : second;
    }
    count = most / 2;
    interval_ = std::clamp<std::int64_t>(2 * interval_, 1, 24 * 3600);
  }
  samples_[count] = sample;
  count_ = count + 1;
  return std::chrono::seconds(interval_);
}

std::vector<stage::SpaceSample> SpaceSeries::all() const {
  const auto count = static_cast<std::ptrdiff_t>(std::min(count_.load(), most));
  std::vector<stage::SpaceSample> samples(samples_.begin(), samples_.begin() + count);
  std::ranges::stable_sort(samples, {}, &stage::SpaceSample::time);
  return samples;
}

void KeptHistory::note(Moment moment) {
  auto& time = times[static_cast<std::size_t>(moment)];
  const bool is_first_only = moment == Moment::begun || moment == Moment::running;
  if (!is_first_only || time == 0) {
    time = wall_clock();
  }
}

std::optional<Nanoseconds> KeptHistory::at(Moment moment) const {
  const Nanoseconds time = times[static_cast<std::size_t>(moment)];
  return time == 0 ? std::nullopt : std::optional(time);
}

std::vector<stage::JobPhase> KeptHistory::phases(std::uint64_t bytes_in,
                                                 std::uint64_t bytes_out) const {
  constexpr Nanoseconds moment = 1'000'000'000;

  struct Span {
    const char* name;
    Moment begin, end;
    std::uint64_t bytes;
  };

  const std::array<Span, 9> spans{
      Span{"plan", Moment::begun, Moment::asked_in, 0},
      Span{"wait-in", Moment::asked_in, Moment::in_begun, 0},
      Span{"stage-in", Moment::in_begun, Moment::in_ended, bytes_in},
      Span{"mount", Moment::in_ended, Moment::running, 0},
      Span{"run", Moment::running, Moment::unmounting, 0},
      Span{"unmount", Moment::unmounting, Moment::unmounted, 0},
      // between a stop that failed and the one that exported the rest
      Span{"unsaved", Moment::unmounted, Moment::asked_out, 0},
      Span{"wait-out", Moment::asked_out, Moment::out_begun, 0},
      Span{"stage-out", Moment::out_begun, Moment::out_ended, bytes_out}};
  std::vector<stage::JobPhase> phases;
  for (const auto& span : spans) {
    const auto begin = at(span.begin), end = at(span.end);
    const bool is_idle = span.end == Moment::asked_out && begin && end && *end - *begin < moment;
    if (begin && end && *end >= *begin && !is_idle) {
      phases.push_back({.name = span.name, .begin = *begin, .end = *end, .bytes = span.bytes});
    }
  }
  return phases;
}

}  // namespace efs::daemon
