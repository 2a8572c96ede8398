// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The files that a job leaves to its user after an export: the receipt with the record, and the
// report beside it.

#include <chrono>

#include "config/job_config.hpp"
#include "control/replies.hpp"
#include "daemon/control_parts.hpp"
#include "daemon/job_store.hpp"
#include "daemon/kept_figures.hpp"
#include "daemon/mount_service.hpp"
#include "daemon/stop_coordinator.hpp"
#include "daemon/tasks.hpp"
#include "daemon/transfer_service.hpp"
#include "stage/export/job_record.hpp"
#include "stage/export/receipt.hpp"

namespace efs::daemon {

// The advice after a stop with a deadline: no daemon remains that could be stopped again.
constexpr const char* way_out_of_image = "export them: efs salvage";

/// For the thread of the instance, after the unmount. The store must be open. No call waits longer
/// for the PFS than its stop may, except write_receipt().
class JobRecorder {
 public:
  /// All outlive this object.
  struct Parts {
    const JobFacts& facts;
    JobStore& store;
    MountService& mount;
    TransferService& transfers;
    Tasks& tasks;
    const stage::Progress& progress;  // of the export
    KeptFigures* figures = nullptr;   // null: the record has only what this worker knows
  };

  explicit JobRecorder(Parts parts) : its_(parts), config_(parts.facts.config) {}

  /// Call when the last file is exported. Asks root-dir for names: at most some seconds, and at
  /// most a part of the time that the stop has left. Logs a shortage of memory.
  void add_record(stage::Receipt& receipt, const StopRequest& request);
  /// Writes the receipt to results-dir. If that fails, writes it to the instance's directory, which
  /// stays until the results are exported. Adds its path and a summary to `outcome`. Returns false
  /// if the receipt could not be written to its usual path.
  bool write_receipt(const stage::Receipt& receipt, control::replies::Stopped& outcome);
  /// Writes the report beside the receipt, if the job file wants one, and adds its path to
  /// `outcome`. Removes the report of an earlier stop otherwise. Logs errors.
  void write_report(const stage::Receipt& receipt, const StopRequest& request,
                    control::replies::Stopped& outcome);

 private:
  stage::JobRecord record_of_job(const stage::Receipt& receipt, const StopRequest& request);
  stage::JobCounters job_counters();
  stage::JobSpace job_space();
  stage::MissedInputs missed_inputs(std::chrono::milliseconds time);
  bool write_second_receipt(const stage::Receipt& receipt, control::replies::Stopped& outcome,
                            std::string& note);

  const Parts its_;
  const config::JobConfig& config_;
};

}  // namespace efs::daemon
