// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/job_history.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

using namespace efs;
using daemon::KeptHistory;
using daemon::Moment;
using daemon::SpaceSeries;

namespace {

constexpr Nanoseconds second = 1'000'000'000;

void set(KeptHistory& history, Moment moment, Nanoseconds time) {
  history.times.at(static_cast<std::size_t>(moment)) = time;
}

std::vector<std::string> names_of(const std::vector<stage::JobPhase>& phases) {
  std::vector<std::string> names;
  for (const auto& phase : phases) {
    names.push_back(phase.name);
  }
  return names;
}

}  // namespace

TEST_CASE("job history: a long series stays bounded and keeps its peak", "[daemon]") {
  SpaceSeries series;
  constexpr std::uint64_t samples = 100'000, peak_at = 31'337;
  auto interval = std::chrono::seconds(0);
  for (std::uint64_t i = 0; i < samples; ++i) {
    const auto now =
        series.add({.time = static_cast<Nanoseconds>(i), .used = i == peak_at ? 9u : 1u});
    CHECK(now >= interval);
    interval = now;
  }
  const auto all = series.all();
  CHECK(all.size() <= SpaceSeries::most);
  CHECK(all.size() >= SpaceSeries::most / 2);
  CHECK(std::ranges::max(all, {}, &stage::SpaceSample::used).time == peak_at);
  CHECK(std::ranges::is_sorted(all, {}, &stage::SpaceSample::time));
  CHECK(interval > std::chrono::seconds(60));
}

TEST_CASE("job history: phases lie between the moments that were reached", "[daemon]") {
  KeptHistory history;
  CHECK(history.phases(1, 2).empty());
  set(history, Moment::begun, 1 * second);
  set(history, Moment::asked_in, 2 * second);
  CHECK(names_of(history.phases(1, 2)) == std::vector<std::string>{"plan"});
  set(history, Moment::in_begun, 3 * second);
  set(history, Moment::in_ended, 5 * second);
  set(history, Moment::running, 6 * second);
  set(history, Moment::unmounting, 60 * second);
  set(history, Moment::unmounted, 61 * second);
  set(history, Moment::asked_out, 61 * second + 1);
  set(history, Moment::out_begun, 62 * second);
  set(history, Moment::out_ended, 70 * second);
  const auto phases = history.phases(11, 22);
  CHECK(names_of(phases) == std::vector<std::string>{"plan", "wait-in", "stage-in", "mount", "run",
                                                     "unmount", "wait-out", "stage-out"});
  CHECK(phases[2].bytes == 11);
  CHECK(phases[7].bytes == 22);
  set(history, Moment::asked_out, 65 * second);
  CHECK(std::ranges::count(names_of(history.phases(0, 0)), "unsaved") == 1);
}

TEST_CASE("job history: a refused stop does not begin the run anew", "[daemon]") {
  KeptHistory history;
  history.note(Moment::running);
  const auto first = history.at(Moment::running);
  set(history, Moment::unmounting, 1);
  history.note(Moment::running);
  CHECK(history.at(Moment::running) == first);
  history.note(Moment::unmounting);
  CHECK(*history.at(Moment::unmounting) > 1);
}
