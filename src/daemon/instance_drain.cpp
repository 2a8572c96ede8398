// Programs that stay in the mount of an instance that has to end in time: what they do not write to is brought out all the same.
#include <algorithm>
#include <chrono>

#include "base/log.hpp"
#include "daemon/instance.hpp"
#include "stage/live/unload.hpp"

namespace efs::daemon {

using control::Json;

// It takes no part in the merging that a stop asks for: that begins when nothing can change any more.
bool Instance::may_drain(const StopRequest& request, const Error& why_not_unmounted) const {
  return why_not_unmounted.code == EBUSY && request.until && request.stage_out && !options_.config.results_dir.empty() && (!request.merge || merging_);
}

Status Instance::unmount_or_drain(StopRequest& request, std::string& drained) {
  const Status unmounted = unmount_for(request);
  if (unmounted || !may_drain(request, unmounted.error())) return unmounted;
  const auto outcome = drain(request);
  drained = outcome ? outcome->value("summary", outcome->value("error", "")) : "the PFS did not answer in time";
  return outcome ? unmount_for(request) : unmounted;
}

// In a thread of its own: where the PFS hangs, the stop is refused in time, and the mount, which is in use, stays.
std::optional<Json> Instance::drain(const StopRequest& request) {
  const auto id = tasks_->start(TaskKind::drain, "what no program writes to", [this, limits = turn_limits(request)](stage::Progress& progress) {
    return unload_now({.names = {""}, .results_only = true}, progress, limits);
  });
  if (!id) return control::error_line(id.error());
  log::info("event=drain task={} reason=\"the mount is in use, and the stop has to end in time\"", *id);
  say_what_for("programs are in the mount: bringing out what they do not write to");
  bool ended = has_drained_by(*id, *request.until);
  if (!ended) (void)tasks_->cancel(*id);
  if (!ended) ended = has_drained_by(*id, *request.gone_by);
  say_what_for(nullptr);
  if (!ended) return std::nullopt;
  const auto seen = tasks_->look(*id);
  return seen ? seen->at("outcome") : control::error_line(seen.error());
}

// One that is forgotten has ended.
bool Instance::has_drained_by(std::uint64_t task, std::chrono::steady_clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  const auto ended = tasks_->wait(task, std::max(left, std::chrono::milliseconds(0)));
  return !ended || *ended;
}

void Instance::say_what_for(const char* waits_for) {
  MutexLock lock(mutex_);
  waits_for_ = waits_for;
}

}  // namespace efs::daemon
