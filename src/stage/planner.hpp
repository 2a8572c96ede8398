#pragma once
// What a stage-in would move, found before anything moves: the job's resources expanded, summed and checked.

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/job_config.hpp"
#include "fs/staging.hpp"
#include "stage/pfs_io.hpp"

namespace efs::stage {

enum class EntryType : std::uint8_t { directory, file, symlink };

/// One name to stage in.
struct PlanEntry {
  std::string path;  // relative to root_dir
  EntryType type = EntryType::file;
  std::uint64_t size = 0;       // bytes; 0 for directories
  std::uint64_t allocated = 0;  // bytes on the PFS: less than size for sparse files
  fs::StagedAttributes attributes;
  fs::Origin origin;
  std::string target;  // of a symbolic link
  config::FileClass file_class = config::FileClass::temporary;
  int priority = 0;  // of the resource that asks for it; the highest of several
  bool reusable = false;  // one of them says so: it may come from the cache, and go there
};

/// Why the job must not start: the object, what is wrong with it, and where the job file asks for it (0: nowhere).
struct PlanProblem {
  std::string path;
  std::string reason;
  int line = 0;
};

/// Left out without harm: sockets, FIFOs and devices below a resource.
struct PlanSkip {
  std::string path;
  std::string reason;
};

struct Plan {
  std::string name;
  std::string root_dir;
  std::string results_dir;
  std::vector<PlanEntry> entries;  // byte order of paths, hence parents first; each name once
  std::uint64_t bytes = 0;         // sum of sizes
  std::uint64_t needed = 0;        // what the buffer must hold, holes left out (an upper bound where that decides nothing)
  std::uint64_t inodes = 0;
  std::uint64_t files = 0;
  std::uint64_t reusable_files = 0, reusable_bytes = 0;
  std::string cache;  // the base directory; "": there is none
  std::optional<std::uint64_t> capacity;
  std::vector<PlanProblem> problems;  // all that were found; empty: the job may start
  std::vector<PlanSkip> skipped;
};

/// Reads, never writes. Symbolic links below root_dir are entries, never followed. `capacity`: what the buffer can
/// take, where known. A plan with problems is a value; an error is only what kept the planner itself from working.
Result<Plan> make_plan(const config::JobConfig& config, PfsIo& pfs, std::optional<std::uint64_t> capacity = std::nullopt);

nlohmann::json to_json(const Plan& plan);
/// For people: totals, then every problem, then what is skipped.
std::string describe(const Plan& plan);

}  // namespace efs::stage
