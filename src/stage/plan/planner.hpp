#pragma once
// What a stage-in would move, found before anything moves: the job's resources expanded, summed and
// checked.

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
  // where it comes from, relative to root_dir; nullopt: as `path`
  std::optional<std::string> source = std::nullopt;
  // what a symbolic link leads to that is followed: a whole path, without links; "": source counts
  std::string outside = {};
  EntryType type = EntryType::file;
  std::uint64_t size = 0;       // bytes; 0 for directories
  std::uint64_t allocated = 0;  // bytes on the PFS: less than size for sparse files
  std::uint64_t needed = 0;     // bytes of the buffer: as Plan::needed
  unsigned place = 0;           // the backend that its content goes to, of those of the job file
  fs::StagedAttributes attributes;
  fs::Origin origin;
  std::string target;  // of a symbolic link
  config::FileClass file_class = config::FileClass::temporary;
  int priority = 0;     // of the resource that asks for it; the highest of several
  bool linked = false;  // the PFS has more names of this file, perhaps not below a resource
  // "", or another name of the same file: one of the plan without a link_to, or one in the buffer
  std::string link_to;
  bool found = false;       // in a directory or by a pattern: no resource names it
  bool may_vanish = false;  // found, and left out where it is gone when it is to be copied
  bool reusable = false;    // one of them says so: it may come from the cache, and go there

  const std::string& from() const { return source ? *source : path; }
};

/// What there is to move, without holes.
inline std::uint64_t data_of(const PlanEntry& entry) {
  return std::min(entry.size, entry.allocated);
}

/// Takes what the PFS says of a file or directory over into its entry.
void take_version(PlanEntry& entry, const struct stat& attributes);

/// Why the job must not start: the object, what is wrong with it, and where the job file asks for
/// it (0: nowhere).
struct PlanProblem {
  std::string path;
  std::string reason;
  int line = 0;
  // what may not be read would have this name in the buffer; "": another problem
  std::string unreadable{};
  std::string not_there{};  // the PFS has nothing of this name in root-dir; "": another problem
};

/// A symbolic link among the inputs that leads to something else on the mount than on the PFS.
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

/// What one of several backends has to take.
struct Share {
  std::string backend;                                      // its id
  bool memory = false, journal = false, new_files = false;  // what it is, and what it holds besides
  std::uint64_t files = 0;
  std::uint64_t needed = 0;           // bytes, as Plan::needed
  std::uint64_t spilled = 0;          // of its files: because their own backend has no room
  std::optional<std::uint64_t> room;  // bytes that it can take, where known
};

/// Bytes that each backend can take, in the order of the job file; nullopt: not known.
using Rooms = std::vector<std::optional<std::uint64_t>>;

struct Plan {
  std::string name;
  std::string root_dir;
  std::string results_dir;
  std::vector<PlanEntry> entries;  // byte order of paths, hence parents first; each name once
  std::uint64_t bytes = 0;         // sum of sizes; a file with several names counts once
  // what the buffer must hold, holes left out (an upper bound where that decides nothing)
  std::uint64_t needed = 0;
  std::uint64_t inodes = 0;
  std::uint64_t files = 0;
  std::uint64_t reusable_files = 0, reusable_bytes = 0;
  std::string cache;  // the base directory; "": there is none
  std::optional<std::uint64_t> capacity;
  bool deletions = false;  // persistent inputs that the job removes go from results_dir, too
  std::map<std::string, std::string> listed;  // as JobConfig::listed
  std::vector<Dealt> parts;                   // of several nodes, in byte order of paths
  std::vector<Share> shares;                  // of each backend, where there are several
  std::vector<PlanProblem> problems;          // all that were found; empty: the job may start
  std::vector<PlanSkip> skipped;
  std::vector<PlanNote> links;  // in byte order of paths
};

/// The same of all its files; one with several names counts once.
inline std::uint64_t data_of(const Plan& plan) {
  std::uint64_t bytes = 0;
  for (const auto& entry : plan.entries) {
    bytes += entry.link_to.empty() ? data_of(entry) : 0;
  }
  return bytes;
}

/// Takes the holes of sparse files out of `needed`. Asks the PFS for each such file; holes that it
/// does not tell stay counted.
void leave_out_holes(Plan& plan, PfsIo& pfs);

/// Reads, never writes. Symbolic links below root_dir are entries, and followed where the resource
/// says so. `capacity`: what the buffer can take, where known. A plan with problems is a value; an
/// error is only what kept the planner itself from working.
Result<Plan> make_plan(const config::JobConfig& config, PfsIo& pfs,
                       std::optional<std::uint64_t> capacity = std::nullopt);

/// The same with what each backend of the job file can take: every file is given its place
/// (placement.hpp).
Result<Plan> make_plan(const config::JobConfig& config, PfsIo& pfs, const Rooms& rooms);

nlohmann::json to_json(const Plan& plan);
/// For people: totals, then every problem, then what is skipped.
std::string describe(const Plan& plan);

}  // namespace efs::stage
