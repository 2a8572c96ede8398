// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Facts about a whole job that its receipt keeps for the report: times, use of the buffer, inputs
// that no program opened. Every part is optional: an older receipt, a salvage and a daemon without
// memory for it have none.

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "stage/copy/slowest_files.hpp"

namespace efs::stage {

/// A part of a job's life. Times are of the wall clock.
struct JobPhase {
  std::string name;  // plan, wait-in, stage-in, mount, run, unmount, unsaved, wait-out, stage-out
  Nanoseconds begin = 0, end = 0;
  std::uint64_t bytes = 0;  // moved from or to the PFS
};

/// A load, an unload or a drain that ran while programs used the mount.
struct JobTransfer {
  std::string kind, state;
  Nanoseconds begin = 0, end = 0;
  std::uint64_t bytes = 0;
};

/// Requests that reached the daemon.
struct JobCounters {
  std::uint64_t opens = 0, passthrough_opens = 0;
  std::uint64_t read_bytes = 0, written_bytes = 0;  // by the daemon
  std::uint64_t requests = 0, errors = 0;
  std::string daemon_reason;  // why the daemon does the I/O; "": passthrough
};

struct SpaceSample {
  Nanoseconds time = 0;
  std::uint64_t used = 0;  // bytes
};

/// The largest `used` between two samples is not known.
struct JobSpace {
  std::uint64_t capacity = 0;
  std::vector<SpaceSample> samples;  // by time
};

using JobFile = TimedFile;  // the path is relative to the root of the mount

/// A resource of the job file with inputs that no program opened.
struct UnopenedResource {
  std::string path;  // relative to root-dir; "" is all of it
  int line = 0;      // of the job file
  std::uint64_t files = 0, bytes = 0;
};

/// Regular files that were imported, that no program opened and that the job did not change.
struct UnopenedInputs {
  std::uint64_t files = 0, bytes = 0;
  std::uint64_t of_files = 0, of_bytes = 0;  // all imported files that the mount still has
  std::vector<JobFile> largest;              // at most most_named
  std::vector<UnopenedResource> resources;   // at most most_named, the most bytes first
};

/// Names that programs looked up, that the mount does not have and that root-dir has.
struct MissedInputs {
  std::vector<JobFile> files;   // at most most_named; bytes: of a regular file
  std::uint64_t named = 0;      // all of them; a receipt has their number only
  std::uint64_t not_kept = 0;   // lookups whose names did not fit into the bounded set
  std::uint64_t unchecked = 0;  // names for which root-dir did not answer in time
};

struct JobRecord {
  static constexpr int version = 1;
  static constexpr std::size_t most_named = 50;

  std::string job_file, root_dir;
  unsigned takeovers = 0;
  // The instance continued with the buffer of an earlier one, whose opens are not known. Then
  // `unopened` is not set.
  bool continued = false;
  std::vector<JobPhase> phases;  // by time
  std::vector<JobTransfer> transfers;
  std::uint64_t unlisted_transfers = 0;
  std::vector<JobFile> slowest_inputs;
  std::optional<JobCounters> counters;
  std::optional<JobSpace> space;
  std::optional<UnopenedInputs> unopened;
  std::optional<MissedInputs> missed;
};

/// {"version": 1, ...} without the names of missed inputs (missed_names.hpp); the inverse ignores
/// members that it does not know, and returns nullopt for another version and for a document that
/// is none.
nlohmann::json to_json(const JobRecord& record);
std::optional<JobRecord> job_record_of(const nlohmann::json& json);

}  // namespace efs::stage
