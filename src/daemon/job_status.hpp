// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The figures of a job for its clients: the progress line, the status, and the status file.

#include <chrono>
#include <optional>
#include <vector>

#include "control/status_reply.hpp"
#include "daemon/control_parts.hpp"
#include "daemon/slot_keeper.hpp"
#include "daemon/start_outcome.hpp"
#include "daemon/stop_coordinator.hpp"
#include "daemon/tasks.hpp"
#include "stage/copy/progress.hpp"

namespace efs::daemon {

// The interval of progress lines to a client that waits.
constexpr auto progress_interval = std::chrono::milliseconds(250);

/// Thread-safe. src/control/README.md describes the fields.
class JobStatus {
 public:
  /// All outlive this object.
  struct Parts {
    const JobFacts& facts;
    const StopCoordinator& stops;
    const StartOutcome& start;
    const stage::Progress& progress;  // of the import and of the export
    const SlotClient& turns;
    Tasks& tasks;
    BufferAccess& buffer;
    MountControl& mount;
    std::vector<StatusSource*> sources;  // they fill their parts in this order
  };

  explicit JobStatus(Parts parts) : its_(std::move(parts)) {}

  control::replies::Progress progress() const;
  /// `changed`: adds the number of files that a stage-out would export now, and their bytes. Adds
  /// nothing if a walk over the names takes too long, because programs wait meanwhile.
  control::replies::Status status(bool changed) const;
  /// The document for schedulers; efsd(8) describes it. Bytes and files are those of the current or
  /// last import or export. Locks no mutex below rank 5.
  control::Json status_file() const;
  /// Adds to a running task the state of its wait for the PFS.
  void add_turn(control::replies::Task& task) const;

 private:
  control::replies::Identity identity() const;
  std::optional<control::replies::Changed> changed() const;

  const Parts its_;
};

}  // namespace efs::daemon
