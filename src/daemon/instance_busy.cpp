// SPDX-License-Identifier: BSD-3-Clause
// A stop with a deadline while programs use the mount: exports the files that no program writes to.
#include <algorithm>

#include "base/log.hpp"
#include "daemon/instance.hpp"
#include "stage/live/unload.hpp"

namespace efs::daemon {

using control::replies::StopFailed;

// Such an unload does not merge, even if the stop requests it: a merge begins only when no file can
// change any more.
bool Instance::may_unload(const StopRequest& request, const Error& why_not_unmounted) const {
  return why_not_unmounted.code == EBUSY && request.times.until && request.stage_out &&
         !options_.config.results_dir.empty() && (!request.merge || store_.is_merging());
}

// Tasks that wait for a hanging PFS must neither delay the stop beyond its deadline nor make it
// take the mount from programs.
Status Instance::unmount_or_unload(StopRequest& request, std::string& unloaded) {
  const bool idle = tasks_.end_for(request);
  Status unmounted = mount_.unmount_for(request);
  if (!unmounted && idle && may_unload(request, unmounted.error())) {
    unloaded = unload_for(request);
    unmounted = mount_.unmount_for(request);
  }
  if (!unmounted) {
    return unmounted;
  }
  store_.end_upkeep();
  stops_.renew_last_resort(request);
  end_transfers(request);
  return {};
}

// Two transfers to results-dir at once would remove each other's partials.
void Instance::end_transfers(const StopRequest& request) {
  contents_.end_draining();
  const bool fetches_ended = end_fetches(request);
  if ((!tasks_.end_for(request) || !fetches_ended) && !stops_.last_of(request).stage_out) {
    leave_without_pfs();
  }
  (void)tasks_.get().close(false);
}

// The export needs no content that is not here. A fetch ends at its next call to the PFS, which may
// hang: then the export goes on beside it (Fetcher::end), and tear_down() waits once more.
bool Instance::end_fetches(const StopRequest& request) {
  constexpr auto most = std::chrono::seconds(10);
  constexpr auto look = std::chrono::milliseconds(250);
  for (const auto begin = Clock::now();;) {
    const StopRequest last = stops_.last_of(request);
    const auto end = last.times.until ? last.times.quarter(begin, most) : begin + most / 2;
    const auto now = Clock::now();
    if (contents_.end_reading(std::min(end, now + look))) {
      return true;
    }
    if (now >= end) {
      log::warn("event=fetch_hangs action=\"the stop goes on\"");
      return false;
    }
  }
}

// The unload has a thread of its own: the PFS may hang.
std::string Instance::unload_for(const StopRequest& request) {
  mount_.set_waits_for("programs use the mount: exporting files that they do not write to");
  const auto outcome =
      tasks_.unload_for(request, [this, limits = turn_limits(request)](stage::Progress& progress) {
        return transfers_.unload_until({.names = {""}, .results_only = true}, progress, limits);
      });
  mount_.set_waits_for(nullptr);
  if (!outcome) {
    return "nothing: the PFS did not answer in time, or there were too many files to list";
  }
  return outcome->unloaded ? outcome->unloaded->summary : outcome->failure.error;
}

void Instance::refuse_stop(const StopRequest& request, const Error& why, std::string unloaded) {
  log::warn("event=stop_refused reason=\"{}\" note=\"nothing was unmounted{}; stop again\"",
            describe(why), unloaded.empty() ? " or exported" : "");
  tasks_.get().reopen();
  enter(Event::stop_refused);
  StopFailed refused{.failure = control::replies::failure_of(why), .summary = {}};
  if (!unloaded.empty()) {
    refused.summary = std::move(unloaded);
  }
  if (const std::string overruled = request.stage_out ? stops_.told_overruled() : "";
      !overruled.empty()) {
    refused.failure.error += "; " + overruled + " if that stop succeeds";
    refused.failure.code = ECANCELED;
  }
  stops_.drop_inherited_deadline();
  finish_stop(request, std::move(refused));
}

}  // namespace efs::daemon
