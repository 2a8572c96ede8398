// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The watchers of an instance, from their opening to the end of the worker.

#include <memory>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "daemon/control_parts.hpp"
#include "daemon/watchers.hpp"

namespace efs::daemon {

/// Thread-safe. Before open() and after close() there are no watchers, and no function but these
/// has an effect.
class JobWatchers final : public StatusSource {
 public:
  /// `config` outlives this object; so does all that `snapshot` uses.
  JobWatchers(const config::JobConfig& config, std::string directory, StatusFile::Snapshot snapshot)
      : config_(config), directory_(std::move(directory)), snapshot_(std::move(snapshot)) {}

  /// As Watchers::open().
  Status open();
  /// For a takeover. Does not wait and cannot fail.
  void open_later();
  /// Valid until close().
  std::vector<fuse::EventSink*> sinks() const;
  /// Reports a change of state.
  void poke();
  void add_status(control::replies::Status& status) override;
  /// Writes the last document of the status file, which may be on a hanging file system. Exits the
  /// process with `code` if closing takes too long.
  void close(int code);

 private:
  const config::JobConfig& config_;
  const std::string directory_;
  const StatusFile::Snapshot snapshot_;
  mutable Mutex mutex_;  // rank 5: under it only leaves of the watchers are locked
  std::unique_ptr<Watchers> watchers_ EFS_GUARDED_BY(mutex_);
};

}  // namespace efs::daemon
