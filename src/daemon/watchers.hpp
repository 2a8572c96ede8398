#pragma once
// What watches an instance for people and schedulers: the status file, the trace, the access log.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "config/job_config.hpp"
#include "daemon/status_file.hpp"
#include "fuse/access_log.hpp"
#include "fuse/trace.hpp"

namespace efs::daemon {

class Watchers {
 public:
  /// Opens what the job file asks for, before anything moves: a trace that cannot be written is
  /// found now.
  static Result<std::unique_ptr<Watchers>> open(const config::JobConfig& config,
                                                const std::string& directory,
                                                StatusFile::Snapshot snapshot);
  /// For a takeover: programs wait, and need none of it. Touches no file: the thread opens them,
  /// says in the log which it cannot, and tries those again.
  static std::unique_ptr<Watchers> open_later(const config::JobConfig& config,
                                              const std::string& directory,
                                              StatusFile::Snapshot snapshot);
  ~Watchers();

  /// For the session; they live as long as this.
  std::vector<fuse::EventSink*> sinks() const;

  /// The state has changed.
  void poke() {
    if (status_) {
      status_->poke();
    }
  }

  /// Which files there are, and what went wrong with them: "status_file", "trace", "access_log".
  nlohmann::json figures() const;

 private:
  Watchers() = default;
  void watch(std::unique_ptr<LineFile> trace, std::unique_ptr<LineFile> access);
  std::function<void()> every_second() const;
  std::unique_ptr<LineFile> trace_file_, access_file_;
  std::unique_ptr<fuse::Trace> trace_;
  std::unique_ptr<fuse::AccessLog> access_log_;
  std::unique_ptr<StatusFile> status_;  // last: its thread tells what becomes of the files
};

/// The counters as `efs status --json` shows them.
nlohmann::json figures_of(const fuse::Counters& counters);

}  // namespace efs::daemon
