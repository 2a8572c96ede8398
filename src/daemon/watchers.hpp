// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The outputs of an instance for people and schedulers: the status file, the trace, the access log.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "config/job_config.hpp"
#include "control/status_reply.hpp"
#include "daemon/status_file.hpp"
#include "fuse/access_log.hpp"
#include "fuse/door.hpp"
#include "fuse/trace.hpp"

namespace efs::daemon {

class Watchers {
 public:
  /// Opens the files that the job file requests, before any data moves: an unwritable trace must
  /// fail early.
  static Result<std::unique_ptr<Watchers>> open(const config::JobConfig& config,
                                                const std::string& directory,
                                                StatusFile::Snapshot snapshot);
  /// For a takeover: programs wait and need none of these files. Touches no file. A thread opens
  /// them, logs failures and retries.
  static std::unique_ptr<Watchers> open_later(const config::JobConfig& config,
                                              const std::string& directory,
                                              StatusFile::Snapshot snapshot);
  ~Watchers();

  /// The sinks for the session. They live as long as this object.
  std::vector<fuse::EventSink*> sinks() const;

  /// Reports a change of state.
  void poke() {
    if (status_) {
      status_->poke();
    }
  }

  /// Adds the files in use and their errors.
  void add_status(control::replies::Status& status) const;

 private:
  Watchers() = default;
  void watch(std::unique_ptr<LineFile> trace, std::unique_ptr<LineFile> access);
  std::function<void()> every_second() const;
  std::unique_ptr<LineFile> trace_file_, access_file_;
  std::unique_ptr<fuse::Trace> trace_;
  std::unique_ptr<fuse::AccessLog> access_log_;
  std::unique_ptr<StatusFile> status_;  // last: its thread reports on the other files
};

/// Returns the counters as `efs status --json` shows them.
nlohmann::json figures_of(const fuse::Counters& counters);
/// The programs that intercept, the first 64 of them one by one, and what all have served.
control::replies::Intercept figures_of(const fuse::Door& door);
/// How many files are open, by the kind of the owner.
control::replies::OpenFiles figures_of(const fs::OpenTable& opens);

}  // namespace efs::daemon
