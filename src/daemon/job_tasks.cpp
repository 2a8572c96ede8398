// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/job_tasks.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "daemon/job_status.hpp"

namespace efs::daemon {

using control::replies::TaskOutcome;

namespace {

constexpr auto patience_with_tasks = std::chrono::seconds(10);

}  // namespace

Status JobTasks::open(std::string book, bool successor, bool drains) {
  auto tasks = Tasks::open(std::move(book), drains);
  if (!tasks) {
    return std::unexpected(tasks.error());
  }
  tasks_ = std::move(*tasks);
  tasks_->inherit(successor);
  return {};
}

bool JobTasks::end_for(const StopRequest& request) {
  for (const auto begin = Clock::now();;) {
    const StopRequest last = stops_.last_of(request);
    auto end = Clock::time_point::max();
    if (last.times.until) {
      end = last.times.quarter(begin, patience_with_tasks);
    } else if (!last.stage_out) {
      end = begin + patience_with_tasks / 2;
    }
    const auto now = Clock::now();
    if (tasks_->close(last.stage_out && !last.times.until,
                      std::min(end, now + progress_interval))) {
      return true;
    }
    if (now >= end) {
      return false;
    }
  }
}

// Runs in its own thread. If the PFS hangs, the stop is refused in time and the busy mount stays.
// The job may continue to load and unload.
std::optional<TaskOutcome> JobTasks::unload_for(const StopRequest& request, Tasks::Work work) {
  const auto id =
      tasks_->start(TaskKind::stop_unload, "files that no program writes to", std::move(work));
  if (!id) {
    return control::replies::failed_task(id.error());
  }
  tasks_->reopen();
  log::info(
      "event=stop_unloads task={} reason=\"the mount is in use, and the stop has to end in time\"",
      *id);
  bool ended = has_ended(*id, request, &StopTimes::until);
  if (!ended) {
    (void)tasks_->cancel(*id);
    ended = has_ended(*id, request, &StopTimes::gone_by);
  }
  if (!ended) {
    return std::nullopt;
  }
  const auto seen = tasks_->look(*id);
  return seen ? seen->outcome : control::replies::failed_task(seen.error());
}

// Waits until `end`, or less if a later request has an earlier end or requests no export.
bool JobTasks::has_ended(std::uint64_t task, const StopRequest& request,
                         std::optional<Clock::time_point> StopTimes::* end) {
  while (true) {
    const StopRequest last = stops_.last_of(request);
    auto latest = *(request.times.*end);
    if (!last.stage_out) {
      latest = Clock::now();
    } else if (const auto theirs = last.times.*end) {
      latest = std::min(latest, *theirs);
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(latest - Clock::now());
    const auto ended =
        tasks_->wait(task, std::clamp(left, std::chrono::milliseconds(0), progress_interval));
    if (!ended || *ended) {
      return true;  // a forgotten task has ended
    }
    if (left.count() <= 0) {
      return false;
    }
  }
}

}  // namespace efs::daemon
