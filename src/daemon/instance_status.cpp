// SPDX-License-Identifier: BSD-3-Clause
// The figures of the store and of the mount in the status of an instance.
#include <ranges>

#include "backends/virtual_device.hpp"
#include "base/boot.hpp"
#include "daemon/instance.hpp"

namespace efs::daemon {
namespace {

using control::Json;

// The answer contains only the first ones; the receipt lists all.
Json first_of(const std::vector<stage::PlanSkip>& skipped) {
  constexpr std::size_t most = 100;
  Json all = Json::array();
  for (const auto& skip : skipped | std::views::take(most)) {
    all.push_back({{"path", skip.path}, {"reason", skip.reason}, {"vanished", skip.vanished}});
  }
  return all;
}

}  // namespace

void Instance::add_backends(Json& status) const {
  const auto& config = options_.config;
  for (unsigned place = 0; store_.backend->places() > 1 && place < store_.backend->places();
       ++place) {
    Backend& one = store_.backend->at(place);
    const Space its = one.space();
    status["backends"].push_back(
        {{"id", config.backends.at(place).id},
         {"description", one.description()},
         {"capacity", its.capacity},
         {"used", its.used},
         {"available", its.available},
         {"durability", name_of(one.durability())},
         {"journal", place == 0},
         {"new_files", place == config.new_files},
         {"io", session_->passthrough() && !refusals_.contains(place) ? "passthrough" : "daemon"}});
  }
}

std::string Instance::why_daemon_io() const {
  if (!options_.config.trace.empty()) {
    return "traced: all I/O is served by the daemon";
  }
  if (limits_.any()) {
    return "limited (limit-read, limit-write or limit-ops)";
  }
  if (options_.daemon_io) {
    return "requested (-o daemon-io)";
  }
  if (options_.writeback) {
    return "requested (-o writeback)";
  }
  if (!options_.privileged) {
    return "not started by root";
  }
  if (!store_.backend->offers_descriptor()) {
    return "the daemon counts the capacity";
  }
  return !refusals_.empty() ? refusals_.begin()->second
                            : "the kernel or libfuse offers no passthrough";
}

void Instance::add_store(Json& status) const {
  const Space space = store_.backend->space();
  status["backend"] = store_.backend->description();
  status["capacity"] = space.capacity;
  status["used"] = space.used;
  status["available"] = space.available;
  status["durability"] = name_of(weakest_durability(*store_.backend));
  add_backends(status);
  const bool passthrough = session_->passthrough();
  status["io"] = passthrough ? "passthrough" : "daemon";
  if (!passthrough) {
    status["io_reason"] = why_daemon_io();
  }
  status["writeback"] = session_->writeback();
  status["takeover"] = can_be_replaced_.load();
  const std::string no_takeover = no_takeover_reason(kernel_release());
  if (!can_be_replaced_) {
    status["takeover_reason"] = no_takeover.empty()
                                    ? "the kernel does not resend requests (FUSE_NOTIFY_RESEND)"
                                    : no_takeover;
  }
  status["read_only"] = filesystem_->failed();
  if (limits_.any()) {
    status["limits"] = limits_.shown();
  }
  status["counters"] = figures_of(session_->counters());
  status["open_files"] = figures_of(filesystem_->open_files());
  status["intercept"] = figures_of(session_->door());
}

void Instance::add_status(Json& status) {
  MutexLock lock(mutex_);
  if (const auto& in = staged_in_) {
    status["staged_in"] = {{"files", in->files},
                           {"bytes", in->bytes},
                           {"bytes_read", in->bytes - in->bytes_reused},
                           {"files_reused", in->files_reused},
                           {"bytes_reused", in->bytes_reused},
                           {"files_away", in->files_away},
                           {"skipped", in->skipped.size()},
                           {"skipped_first", first_of(in->skipped)}};
  }
  if (!lost_.empty()) {
    status["lost_before"] = lost_;
  }
  if (watchers_) {
    status.update(watchers_->figures());
  }
  if (!ready_ || !store_.backend) {
    return;
  }
  add_store(status);
}

}  // namespace efs::daemon
