// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Answers the control requests of a job. This class has the verbs of the whole job: status, wait,
// stop, wait-end. It passes the others to FileVerbs.

#include <cstdint>

#include "control/requests.hpp"
#include "control/server.hpp"
#include "daemon/control_parts.hpp"
#include "daemon/file_verbs.hpp"
#include "daemon/job_status.hpp"
#include "daemon/start_outcome.hpp"
#include "daemon/stop_coordinator.hpp"
#include "daemon/tasks.hpp"

namespace efs::daemon {

/// Thread-safe. Needs no mount and no store: each part may be that of a test.
class ControlApi {
 public:
  /// All outlive this object, and `transfers` and `fetches` outlive the tasks.
  struct Parts {
    const JobFacts& facts;
    StopCoordinator& stops;
    StartOutcome& start;
    Tasks& tasks;
    const JobStatus& status;
    BufferAccess& buffer;
    LiveTransfers& transfers;
    FetchControl& fetches;
    MountControl& mount;
  };

  explicit ControlApi(Parts parts);

  /// Returns the result line; for control::Server. Throws as control::requests::from_json().
  control::Json handle(const control::Json& request, const control::Server::Progress& progress);

  /// Requests a stop, as `efs stop` does. Signals use this, too. Returns the ticket that
  /// StopCoordinator::finish() will complete; 0 if the request has no effect.
  std::uint64_t request_stop(StopRequest request);

 private:
  control::Json wait(bool starter, const control::Server::Progress& progress);
  control::Json stop(const control::requests::Stop& asked,
                     const control::Server::Progress& progress);
  control::Json wait_end(const control::requests::WaitEnd& request,
                         const control::Server::Progress& progress);
  void give_up_start();
  /// The answer to a client that requested `wanted`.
  control::Json outcome_for(const StopRequest& wanted, bool with_receipt);
  control::Json answer_without_outcome(const StopRequest& wanted);
  Status was_done_as(const StopRequest& wanted, const StopRequest& done) const;

  const Parts its_;
  FileVerbs files_;
};

}  // namespace efs::daemon
