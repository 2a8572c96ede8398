// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The plan of a stage-in: the job's resources, expanded, summed and checked before the import
// begins.

#include <nlohmann/json_fwd.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/job_config.hpp"
#include "fs/staging.hpp"
#include "stage/pfs/pfs_io.hpp"
#include "stage/plan/skip.hpp"

namespace efs::stage {

enum class EntryType : std::uint8_t { directory, file, symlink };

/// One name to stage in.
struct PlanEntry {
  std::string path;  // relative to the mount point
  // its source, relative to root_dir; nullopt: as `path`
  std::optional<std::string> source = std::nullopt;
  // the target of a followed symbolic link: an absolute path without links; "": use `source`
  std::string outside = {};
  EntryType type = EntryType::file;
  std::uint64_t size = 0;       // bytes; 0 for directories
  std::uint64_t allocated = 0;  // bytes on the PFS: less than size for sparse files
  std::uint64_t needed = 0;     // bytes in the buffer: as Plan::needed
  unsigned place = 0;  // index of the backend for its content, in the order of the job file
  fs::StagedAttributes attributes;
  fs::Origin origin;
  std::string target;  // of a symbolic link
  config::FileClass file_class = config::FileClass::temporary;
  int priority = 0;     // of the resource; the highest of several
  bool linked = false;  // the file has more names on the PFS, perhaps outside the resources
  // "", or another name of the same file: a name of the plan without link_to, or a name in the
  // buffer
  std::string link_to;
  bool found = false;       // in a directory or by a pattern; not named by a resource
  bool may_vanish = false;  // found, and skipped if it no longer exists when it is copied
  bool reusable = false;    // a resource permits it to be imported from, and kept in, the cache
  // when its content is copied; the earliest that a resource says
  config::StageWhen stage = config::StageWhen::now;
  bool evictable = false;       // all resources that have it say evict: when-full
  bool accepts_change = false;  // all resources accept another version than the planned one

  const std::string& from() const { return source ? *source : path; }
};

/// True for a file whose content stays on the PFS at first (fs::Remote). A file with several names
/// is always imported whole, and an empty one has no content.
inline bool is_remote(const PlanEntry& entry) {
  return entry.stage != config::StageWhen::now && entry.type == EntryType::file && !entry.linked &&
         entry.link_to.empty() && entry.size > 0;
}

/// True for such a file that gives its room to others: no room is kept for it.
inline bool is_evictable(const PlanEntry& entry) {
  return is_remote(entry) && entry.evictable;
}

/// The bytes to transfer by the stage-in, without holes.
inline std::uint64_t data_of(const PlanEntry& entry) {
  return is_remote(entry) ? 0 : std::min(entry.size, entry.allocated);
}

/// Copies the attributes of a file or directory on the PFS to its entry.
void take_version(PlanEntry& entry, const struct stat& attributes);

/// Why the job must not start: the object, the reason, and the line of the job file (0: none).
struct PlanProblem {
  std::string path;
  std::string reason;
  int line = 0;
  // for an unreadable file: the name that it would have in the buffer; "": another problem
  std::string unreadable{};
  std::string not_there{};  // the name that does not exist in root-dir; "": another problem
};

/// A symbolic link among the inputs whose target on the mount differs from the target on the PFS.
struct PlanNote {
  std::string path;
  std::string target;
  std::string reason;
};

/// A file of a partitioned resource, and the one node that gets it.
struct Dealt {
  std::string path;
  unsigned node = 0;
};

/// The part of the plan that goes to one of several backends.
struct Share {
  std::string backend;                                      // its id
  bool memory = false, journal = false, new_files = false;  // its kind and other content
  std::uint64_t files = 0;
  std::uint64_t needed = 0;           // bytes, as Plan::needed
  std::uint64_t spilled = 0;          // those of its files whose own backend has no room
  std::optional<std::uint64_t> room;  // bytes that it can take, if known
};

/// Bytes that each backend can take, in the order of the job file; nullopt: not known.
using Rooms = std::vector<std::optional<std::uint64_t>>;

struct Plan {
  std::string name;
  std::string root_dir;
  std::string results_dir;
  std::vector<PlanEntry> entries;  // byte order of paths, hence parents first; each name once
  std::uint64_t bytes = 0;         // sum of sizes; a file with several names counts once
  // bytes of the buffer, without holes (an upper bound if the exact value decides nothing)
  std::uint64_t needed = 0;
  std::uint64_t inodes = 0;
  std::uint64_t files = 0;
  std::uint64_t reusable_files = 0, reusable_bytes = 0;
  std::uint64_t remote_files = 0, remote_bytes = 0;  // whose contents stay on the PFS at first
  std::string cache;                                 // the base directory; "": there is none
  std::optional<std::uint64_t> capacity;
  // the stage-out also removes from results_dir the persistent inputs that the job removes
  bool deletions = false;
  std::map<std::string, std::string> listed;  // as JobConfig::listed
  std::vector<Dealt> parts;                   // of several nodes, in byte order of paths
  std::vector<Share> shares;                  // of each backend, if there are several
  std::vector<PlanProblem> problems;          // all problems; empty: the job may start
  std::vector<PlanSkip> skipped;
  std::vector<PlanNote> links;  // in byte order of paths
};

/// The same for all files of the plan; a file with several names counts once.
inline std::uint64_t data_of(const Plan& plan) {
  std::uint64_t bytes = 0;
  for (const auto& entry : plan.entries) {
    bytes += entry.link_to.empty() ? data_of(entry) : 0;
  }
  return bytes;
}

/// Subtracts the holes of sparse files from `needed`. Asks the PFS for each such file; holes that
/// the PFS does not report stay counted.
void leave_out_holes(Plan& plan, PfsIo& pfs);

/// Reads the PFS and never writes. Symbolic links below root_dir are entries, and are followed if
/// the resource says so. `capacity`: bytes that the buffer can take, if known. A plan with problems
/// is a value; an error means that the planner itself failed.
Result<Plan> make_plan(const config::JobConfig& config, PfsIo& pfs,
                       std::optional<std::uint64_t> capacity = std::nullopt);

/// The same with the room of each backend of the job file: every file is assigned to a backend
/// (placement.hpp).
Result<Plan> make_plan(const config::JobConfig& config, PfsIo& pfs, const Rooms& rooms);

nlohmann::json to_json(const Plan& plan);
/// For people: totals, then problems, then skipped files.
std::string describe(const Plan& plan);

}  // namespace efs::stage
