// SPDX-License-Identifier: BSD-3-Clause
// A stop with a deadline while programs use the mount: exports the files that no program writes to.
#include <algorithm>
#include <chrono>

#include "base/log.hpp"
#include "daemon/instance.hpp"
#include "stage/live/unload.hpp"

namespace efs::daemon {

using control::Json;

constexpr auto patience_with_tasks = std::chrono::seconds(10);

// A drain does not merge, even if the stop requests it: a merge begins only when no file can change
// any more.
bool Instance::may_drain(const StopRequest& request, const Error& why_not_unmounted) const {
  return why_not_unmounted.code == EBUSY && request.times.until && request.stage_out &&
         !options_.config.results_dir.empty() && (!request.merge || store_.is_merging());
}

// Tasks that wait for a hanging PFS must neither delay the stop beyond its deadline nor make it
// take the mount from programs.
Status Instance::unmount_or_drain(StopRequest& request, std::string& drained) {
  const bool idle = end_tasks(request);
  Status unmounted = mount_.unmount_for(request);
  if (!unmounted && idle && may_drain(request, unmounted.error())) {
    const auto outcome = drain(request);
    drained = outcome
                  ? outcome->value("summary", outcome->value("error", ""))
                  : "nothing: the PFS did not answer in time, or there were too many files to list";
    unmounted = mount_.unmount_for(request);
  }
  if (!unmounted) {
    return unmounted;
  }
  end_draining();
  store_.end_upkeep();
  stops_.renew_last_resort(request);
  if (!end_tasks(request) && !stops_.last_of(request).stage_out) {
    leave_without_pfs();
  }
  (void)tasks_->close(false);
  return {};
}

// Ends all tasks in time; the export completes the rest. Returns false if a task is left at the end
// of the time.
bool Instance::end_tasks(const StopRequest& request) {
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
std::optional<Json> Instance::drain(const StopRequest& request) {
  const auto id = tasks_->start(TaskKind::drain, "files that no program writes to",
                                [this, limits = turn_limits(request)](stage::Progress& progress) {
                                  return transfers_.unload_until(
                                      {.names = {""}, .results_only = true}, progress, limits);
                                });
  if (!id) {
    return control::error_line(id.error());
  }
  tasks_->reopen();
  log::info("event=drain task={} reason=\"the mount is in use, and the stop has to end in time\"",
            *id);
  mount_.set_waits_for("programs use the mount: exporting files that they do not write to");
  bool ended = has_drained(*id, request, &StopTimes::until);
  if (!ended) {
    (void)tasks_->cancel(*id);
  }
  if (!ended) {
    ended = has_drained(*id, request, &StopTimes::gone_by);
  }
  mount_.set_waits_for(nullptr);
  if (!ended) {
    return std::nullopt;
  }
  const auto seen = tasks_->look(*id);
  return seen ? seen->at("outcome") : control::error_line(seen.error());
}

// Waits until `end`, or less if a later request has an earlier end or requests no export.
bool Instance::has_drained(std::uint64_t task, const StopRequest& request,
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

void Instance::refuse_stop(const StopRequest& request, const Error& why, std::string drained) {
  log::warn("event=stop_refused reason=\"{}\" note=\"nothing was unmounted{}; stop again\"",
            describe(why), drained.empty() ? " or exported" : "");
  tasks_->reopen();
  enter(Event::stop_refused);
  Json refused = control::error_line(why);
  if (!drained.empty()) {
    refused["summary"] = std::move(drained);
  }
  if (const std::string overruled = request.stage_out ? stops_.told_overruled() : "";
      !overruled.empty()) {
    refused["error"] = describe(why) + "; " + overruled + " if that stop succeeds",
    refused["code"] = ECANCELED;
  }
  stops_.drop_inherited_deadline();
  finish_stop(request, std::move(refused));
}

}  // namespace efs::daemon
