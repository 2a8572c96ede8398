// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The answers to status, wait and limit: one struct for each part of the daemon that knows its
// fields. The fields of all parts are in one object, unless a member has the name of an object in
// it. Also what efs reports of an instance that does not answer. replies.cpp spells them;
// src/control/README.md describes their meaning.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "control/replies.hpp"

namespace efs::control::replies {

/// A progress line, for which the server adds the rest. The figures are those of the current or
/// last import or export.
struct Progress {
  std::string state;
  std::uint64_t bytes_done = 0, bytes_total = 0, files_done = 0, files_total = 0;
  double started = 0;                 // seconds since 1970
  std::optional<std::string> note;    // about a wait, for people
  std::optional<Turn> turn;           // an object
  std::optional<double> eta_seconds;  // the remaining time, at the current rate

  bool operator==(const Progress&) const = default;
};

/// The facts about an instance that its worker does not change. Can be read alone.
struct Identity {
  std::string name, job_file;
  std::vector<std::string> start_options;
  std::string mount, root_dir, results_dir, directory, log;
  int supervisor_pid = 0, worker_pid = 0;
  std::uint64_t takeovers = 0, protocol = 0;
  std::int64_t since = 0;  // seconds since 1970

  bool operator==(const Identity&) const = default;
};

struct SkippedInput {
  std::string path, reason;
  bool vanished = false;

  bool operator==(const SkippedInput&) const = default;
};

/// The object staged_in.
struct StagedIn {
  std::uint64_t files = 0, bytes = 0, bytes_read = 0, files_reused = 0, bytes_reused = 0;
  std::uint64_t files_away = 0, skipped = 0;
  std::vector<SkippedInput> skipped_first;

  bool operator==(const StagedIn&) const = default;
};

/// A file to which the instance writes the operations of programs.
struct Recording {
  std::string file;
  std::optional<std::string> error;
  std::optional<std::uint64_t> lost_lines;

  bool operator==(const Recording&) const = default;
};

struct OpenFiles {
  std::uint64_t kernel = 0, sessions = 0;

  bool operator==(const OpenFiles&) const = default;
};

/// One of several backends.
struct BackendFigures {
  std::string id, description;
  std::uint64_t capacity = 0, used = 0, available = 0;
  std::string durability;
  bool journal = false, new_files = false;
  std::optional<std::string> io;  // by the mount

  bool operator==(const BackendFigures&) const = default;
};

/// The store, while programs use it.
struct Store {
  std::string backend;
  std::uint64_t capacity = 0, used = 0, available = 0;
  std::string durability;
  bool read_only = false;
  std::optional<OpenFiles> open_files;
  std::vector<BackendFigures> backends;  // absent if there is only one

  bool operator==(const Store&) const = default;
};

/// The limits of a mount that has limits. 0: none.
struct Limits {
  std::uint64_t read = 0, write = 0, ops = 0;
  std::uint64_t delayed = 0;

  bool operator==(const Limits&) const = default;
};

/// limit: those from now on.
struct LimitsSet {
  Limits limits;  // an object

  bool operator==(const LimitsSet&) const = default;
};

/// A program that serves its own reads and writes.
struct InterceptClient {
  std::int64_t pid = 0;
  std::string program;
  std::uint64_t reads = 0, read_bytes = 0, writes = 0, written_bytes = 0;
  std::uint64_t kernel_calls = 0, mapped_files = 0;

  bool operator==(const InterceptClient&) const = default;
};

struct InterceptTotals {
  std::uint64_t clients = 0, reads = 0, read_bytes = 0, writes = 0, written_bytes = 0;
  std::uint64_t kernel_calls = 0;

  bool operator==(const InterceptTotals&) const = default;
};

struct Intercept {
  std::uint64_t clients_now = 0;
  std::vector<InterceptClient> clients;  // the first
  InterceptTotals totals;

  bool operator==(const Intercept&) const = default;
};

/// The mount, while the daemon serves it.
struct Mount {
  std::string io;  // "passthrough" or "daemon"
  std::optional<std::string> io_reason;
  bool writeback = false;
  bool takeover = true;
  std::optional<std::string> takeover_reason;
  std::optional<Limits> limits;
  // A free-form document: the operations that were counted are its keys. efsd(8) lists its fields,
  // which efs metrics reads by their paths.
  Json counters;
  std::optional<Intercept> intercept;

  bool operator==(const Mount&) const = default;
};

/// The files that a stop would export.
struct Changed {
  std::uint64_t changed_files = 0, changed_bytes = 0;

  bool operator==(const Changed&) const = default;
};

/// The results that went home while the job ran, of a job that has output rules with `drain`.
struct Drain {
  std::uint64_t drained = 0, drained_bytes = 0;  // once for each time
  std::uint64_t failures = 0;                    // at each attempt
  std::uint64_t due = 0;                         // files that are not home
  std::optional<std::string> last_error;         // while the last attempt failed
  // files that were dropped from the buffer by `keep`, and their bytes
  std::uint64_t dropped = 0, dropped_bytes = 0;
  // the same of files that never went home (`to-pfs`)
  std::uint64_t unsent = 0, unsent_bytes = 0;

  bool operator==(const Drain&) const = default;
};

/// The contents of inputs that are fetched while the job runs, of a job that has such inputs.
struct Fetch {
  std::uint64_t fetched = 0, fetched_bytes = 0;
  std::uint64_t failures = 0;                  // at each attempt
  std::uint64_t remote = 0, remote_bytes = 0;  // files whose contents are not here
  std::uint64_t running = 0;                   // files that are being fetched
  std::uint64_t waiting = 0;                   // operations of programs that wait for a content
  std::optional<std::string> last_error;       // while the last attempt failed

  bool operator==(const Fetch&) const = default;
};

/// The contents that left a full buffer, of a job with `evict: when-full`.
struct Evict {
  std::uint64_t evicted = 0, evicted_bytes = 0;  // files, once for each time
  std::optional<std::string> last_error;         // while nothing can be evicted

  bool operator==(const Evict&) const = default;
};

/// A tier, and the contents that moved into it and out of it by themselves (files once for each
/// time).
struct TierFigures {
  std::string id;  // of the backend
  std::uint64_t capacity = 0, used = 0;
  std::uint64_t moved_in = 0, moved_in_bytes = 0, moved_out = 0, moved_out_bytes = 0;
  std::optional<std::string> last_error{};  // while it is above `high` and nothing can leave it

  bool operator==(const TierFigures&) const = default;
};

struct Status {
  Progress progress;
  Identity job;
  std::vector<Task> tasks;           // oldest first
  std::optional<std::string> error;  // about results that are not exported
  bool given_up = false;             // the starter is gone
  std::optional<StagedIn> staged_in;
  std::optional<std::string> status_file;  // path
  std::optional<Recording> trace, access_log;
  std::optional<std::string> lost_before;  // for people: losses of an earlier instance
  std::optional<Store> store;
  std::optional<Mount> mount;
  std::optional<Drain> drain;
  std::optional<Fetch> fetch;
  std::optional<Evict> evict;
  std::vector<TierFigures> tiers;  // the fastest first; absent if there are none
  std::optional<Changed> changed;

  bool operator==(const Status&) const = default;
};

/// The store that an instance left, as its manifest says.
struct LeftStore {
  std::string left;  // image::name_of() of its ShutdownState
  std::string store, job_file;
  std::vector<std::string> start_options;
  bool restarted = false;  // the machine, since

  bool operator==(const LeftStore&) const = default;
};

/// An instance that does not answer: efs finds this out by itself.
struct Remains {
  std::string name, directory;
  std::string state;                    // "dead", "kept" or "silent"
  std::optional<std::string> error;     // for people; absent if it was kept
  std::optional<std::string> damaged;   // why no start can continue the store
  std::optional<LeftStore> left_store;  // if there is a manifest
  bool lost = false;                    // a store without an instance

  bool operator==(const Remains&) const = default;
};

/// An instance whose directory cannot be reached.
struct Unreachable {
  std::string name, directory, mount, job_file;
  std::string error;  // for people

  bool operator==(const Unreachable&) const = default;
};

}  // namespace efs::control::replies
