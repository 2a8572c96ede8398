// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A parsed and validated job file: plain values. Every path is absolute and normalised, without a
// trailing slash.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.hpp"

namespace efs::config {

/// Whether efs exports a file to the PFS when the job ends.
enum class FileClass : std::uint8_t { temporary = 0, persistent = 1 };

enum class BackendType : std::uint8_t { dram, fsdax, devdax };

/// The behaviour at the declared capacity if the kernel cannot enforce it: advisory checks at
/// create and open; strict counts the bytes (efs-job.5).
enum class Enforce : std::uint8_t { advisory, strict };

/// The behaviour for a new file if its backend is full and there are several backends.
enum class OnFull : std::uint8_t { error, spill };

/// Existing: the behaviour of a stage-out if results-dir has a file of a result's name that is
/// neither a result nor an input of this job. OnConflict: the behaviour if the PFS has another
/// version of an input than the imported one.
enum class Existing : std::uint8_t { replace, fail, keep_both };
enum class OnConflict : std::uint8_t { fail, keep_both, overwrite };

/// The behaviour of a stage-out if the PFS still has a persistent input that the job removed or
/// renamed.
enum class Deletions : std::uint8_t { ignore, propagate };

/// The behaviour of a start if an input, found in a directory or by a pattern, is gone when it is
/// to be copied.
enum class Vanished : std::uint8_t { fail, skip };

/// The data that a result's checksum is compared with: only the transferred stream, or the file
/// read back from the PFS.
enum class Verify : std::uint8_t { stream, read_back };

struct Backend {
  std::string id;  // as in resources, e.g. "nvml:/"
  BackendType type = BackendType::dram;
  // bytes; absent: all available (dram: a share of the job's memory)
  std::optional<std::uint64_t> capacity;
  // bytes: the site's limit for a dram backend without a declared capacity
  std::optional<std::uint64_t> most_capacity;
  std::string daxfs;  // directory (fsdax) or device (devdax); "" for dram
  // bytes: the largest part of a file that the daemon maps at a time
  std::uint64_t segment_size = 128u << 20;
  Enforce enforce = Enforce::advisory;
  bool require_dax = false;  // fsdax: the start fails if the directory is not persistent memory
  // for a private tmpfs: huge pages within a file's size (tmpfs(5), huge=within_size)
  bool huge_pages = true;
};

/// Whether contents move to the fastest tier when a program opens their file.
enum class Promote : std::uint8_t { never, on_open };

/// The backends of a job by their speed. Contents move between them while programs run.
struct Tiers {
  std::vector<std::size_t> order;  // indices of backends, the fastest first; empty: no tiers
  // percent of a tier's capacity: contents go down once more is in use, until less is
  unsigned high = 90, low = 75;
  Promote promote = Promote::never;
  std::uint64_t max_rate = 0;  // bytes per second that move; 0: no limit
};

/// When the contents of inputs are copied into the buffer. All of the rest, and all checks, come
/// before the job starts.
enum class StageWhen : std::uint8_t { now, background, on_access };

/// Whether files whose contents the PFS has give their room to others.
enum class Evict : std::uint8_t { never, when_full };

/// What becomes of an input whose content comes later and whose PFS file has changed meanwhile.
enum class Changed : std::uint8_t { fail, accept };

/// Which nodes of a multi-node job get the files.
enum class Distribute : std::uint8_t { replicate, partition };
inline constexpr std::size_t most_backends = 8;
// bytes: the journal alone would fill a smaller backend
inline constexpr std::uint64_t smallest_capacity = 16u << 20;

/// Files to stage in. A path with *, ? or [ below root_dir is a glob (as glob(7), with ** for any
/// depth). root_dir itself is never part of the pattern.
struct Resource {
  // absolute; root_dir (all of it) or below it; with is_list, any file
  std::string path;
  // the destination, relative to the mount point; "": as below root_dir. Empty for globs and lists
  std::string as = {};
  std::string backend;
  FileClass file_class = FileClass::temporary;
  bool is_glob = false;
  // efs stages in the files that this file names, not this file (stage/plan/input_list.hpp)
  bool is_list = false;
  Distribute distribute = Distribute::replicate;
  // an earlier job creates it: it need not exist when this job is submitted
  bool from_job = false;
  int priority = 0;       // higher priorities are staged in first
  bool reusable = false;  // if unchanged, it stays in the node's cache for later jobs
  Vanished vanished = Vanished::fail;
  // symbolic links are staged in as their target files and directories
  bool follow = false;
  StageWhen stage = StageWhen::now;
  Evict evict = Evict::never;
  Changed changed = Changed::fail;
  int line = 0;       // line in the job file, for messages
  bool open = false;  // its path has patterns that only the submitted job's nodes can resolve
};

/// The class of files that do not exist when the job starts; with holds_inputs, also of inputs.
struct OutputRule {
  // relative to the mount point; glob as above; a directory covers all files below it
  std::string pattern;
  FileClass file_class = FileClass::persistent;
  std::string backend = {};   // id of a backend; "": that of new files
  bool holds_inputs = false;  // applies to inputs too, and overrides their resource
  // its name in results-dir; "": same as in the buffer
  std::string as = {};
  // its results go to results-dir while the job runs: so long after the first change that
  // results-dir does not have, or with 0 after the close; absent: when the job ends
  std::optional<std::chrono::seconds> drain = {};
  // with `drain`: so many of the newest versions stay in the buffer, see VersionName; 0: all
  unsigned keep = 0;
  Evict evict = Evict::never;  // with `drain`
  // with `keep`: the first version and then one in so many go to results-dir while the job runs
  unsigned send_one_in = 1;
};

/// A version by a rule with `keep`: the part of a path up to the component that has the rule's last
/// wildcard. The versions of one rule and one directory are a series.
struct VersionName {
  std::size_t rule = 0;   // index of the output rule
  std::string directory;  // that has the versions of the series; "": the root
  std::string name;       // of the version in it: a file, or a directory with files

  auto operator<=>(const VersionName&) const = default;
};

/// The source of a value; a later source wins over an earlier one.
enum class Source : std::uint8_t { built_in, site, job_file, environment, command_line };
std::string_view name_of(Source source);

/// A line of `efs check --show`.
struct EffectiveValue {
  std::string section, key, value;
  Source source = Source::built_in;
  std::string where;  // "job.yaml:3", "EFS_WORKERS", "--mount-dir"; "" for built-in defaults
};

/// The inputs of a job's values besides its file. With them, another process can read the job file
/// again and get the same values.
struct Circumstances {
  // the environment variables that were read and set
  std::map<std::string, std::string> variables;
  std::vector<std::pair<std::string, std::string>> settings;  // settings of the command line
                                                              // (--set)
  std::string user, home, node;
};

struct JobConfig {
  std::string source;  // the job file, for messages
  // words of start_command(): the environment and the command line of the first start
  std::vector<std::string> start_options;
  std::string name;  // instance name: `name`, or the job file's stem
  std::string root_dir;
  std::string mount_dir;
  std::string results_dir;   // "" if nothing can be persistent
  bool in_place = false;     // results_dir == root_dir, stated explicitly
  std::string log_file;      // "": in the instance's own directory
  std::string interleaving;  // directory of the queue on the PFS; "": no queue
  // the user's cache of inputs lies below this directory; "": no cache
  std::string cache;
  std::optional<std::uint64_t> cache_capacity;  // bytes; absent: half of its file system
  std::string log_level = "info";               // as for log::setup()
  std::string status_file;                      // "": status.json in the instance's own directory
  std::string trace;                            // "": no trace
  std::string access_log;                       // "": none
  std::uint64_t access_log_size = 64u << 20;    // bytes: limit for both files of the log together
  // this node's number, and the job's number of nodes; set by the start, not by the file
  unsigned node = 0, nodes = 1;
  // the start gave a node number: other nodes, or other runs of the job, may write to results_dir
  bool of_batch_job = false;
  // a stop was told not to replace newer files; a later stop of the store inherits this
  bool merges = false;
  // when the batch job began, by the PFS's clock; 0: not known
  Nanoseconds merge_since = 0;
  // mount point of the file system of results-dir when the instance began; "": not known
  std::string results_mount;
  // mount points below results-dir at that time, relative to it
  std::vector<std::string> mounts_below;
  // maximum number of staging threads; 0: as many as the PFS can use
  unsigned workers = 0;
  std::uint64_t transfer_size = 2u << 20;  // bytes per PFS request
  OnConflict on_conflict = OnConflict::fail;
  Existing existing = Existing::replace;
  // name or number; "": inherited from results-dir, or the job's own
  std::string results_group;
  std::optional<mode_t> results_mode;  // mode of results; absent: as in the buffer
  Deletions deletions = Deletions::ignore;
  Verify verify = Verify::stream;
  Vanished vanished = Vanished::fail;  // default for resources
  bool report = true;                  // efs writes a report beside the receipt
  bool xattr = true;                   // programs see extended attributes and ACLs on the mount
  std::uint64_t max_rate = 0;          // bytes per second from and to the PFS; 0: no limit
  std::uint64_t max_ops = 0;           // calls per second to the PFS; 0: no limit
  // of the mount, per second; 0: no limit. With any of them the daemon serves all I/O
  std::uint64_t limit_read = 0, limit_write = 0;  // bytes
  std::uint64_t limit_ops = 0;                    // requests
  unsigned deadline = 0;                          // seconds that a stop may take; 0: no limit
  unsigned retries = 6;                           // retries of a PFS call after a transient error
  // percent of the job's memory for a dram backend without a capacity; set by the site
  unsigned memory_share = 50;
  // bytes of memory of the batch job on this node; set by the start, not by the file
  std::optional<std::uint64_t> job_memory;
  std::vector<Backend> backends;  // never empty: one dram backend if the file names none
  // index of the backend for new files without a rule
  std::size_t new_files = 0;
  OnFull on_full = OnFull::error;
  Tiers tiers;
  std::vector<Resource> resources;
  // destinations of lists, relative to mount_dir -> their sources, relative to root_dir; set by the
  // plan, not by the file
  std::map<std::string, std::string> listed;
  std::vector<OutputRule> outputs;
  std::vector<EffectiveValue> effective;  // for people
  std::string text;                       // the text of the job file
  Circumstances circumstances;            // set by load_for_user() or reload()
  // Before the job (Surroundings::before_job): these directories have patterns that only the job's
  // nodes can resolve
  bool root_open = false, results_open = false;
  std::string snapshot;  // the job file for the job's nodes
};

/// The capacity of a dram backend of a job with `memory` bytes and no declared capacity: `share`
/// percent of the memory, or the smallest capacity if that is more. Never more than the memory.
std::uint64_t default_capacity(std::uint64_t memory, unsigned share);

/// Returns the number of bytes that the job may store in a backend, if `available` bytes of memory
/// are left for it. This is the declared capacity. For dram without a declared capacity, it is the
/// default capacity of the memory left, or of the job's memory if that is less. Absent: the
/// capacity of the file system.
std::optional<std::uint64_t> capacity_of(const JobConfig& config, const Backend& backend,
                                         std::uint64_t available);

/// Returns whether `path` (relative, "a/b/c") matches `pattern`: glob(7) with ** for any number of
/// components, also none. As in glob(7), only a period matches a component's leading period; **
/// matches hidden components too.
bool glob_match(std::string_view pattern, std::string_view path);

/// Returns the class of the file at `path` (relative to the mount point) by the rules of efs-job.5.
/// - A new file: persistent if there are no output rules, else the class of the first rule that
///   matches it or a directory above it.
/// - An input: the class of the first such rule that also applies to inputs.
/// - Otherwise: the class of the resource that names the path, or that contains it most deeply.
/// - Otherwise: persistent if there are no output rules, else temporary.
FileClass classify(const JobConfig& config, std::string_view path, bool staged_in);

/// The same; sets `why` to the rule that decided, for people.
FileClass classify(const JobConfig& config, std::string_view path, bool staged_in,
                   std::string& why);

/// Returns whether an output rule matches the new file at `path` or a directory above it.
bool has_output_rule(const JobConfig& config, std::string_view path);

/// Returns OutputRule::drain of the rule that decides the class of the file at `path`; nullopt too
/// if no rule does.
std::optional<std::chrono::seconds> drain_of(const JobConfig& config, std::string_view path,
                                             bool staged_in);
/// Returns whether any rule has it.
bool drains_results(const JobConfig& config);

/// Returns the version to which the result at `path` belongs; nullopt if the rule that decides its
/// class has no `keep`.
std::optional<VersionName> version_name(const JobConfig& config, std::string_view path);
/// Returns whether results at `path` may lose their contents when the buffer is full.
bool evicts_result(const JobConfig& config, std::string_view path);
/// Returns whether the input at `path`, whose content was copied before the job started or by a
/// load, may lose its content likewise: all resources that name it have `evict: when-full`.
bool evicts_input(const JobConfig& config, std::string_view path);
/// Returns whether any resource or rule has `evict: when-full`.
bool evicts(const JobConfig& config);
/// Returns whether any rule has `keep`.
bool keeps_versions(const JobConfig& config);
/// Returns whether any rule sends only some versions (OutputRule::send_one_in).
bool sends_some_versions(const JobConfig& config);

/// Returns the leading part of a pattern, up to the component with its last wildcard; "": there is
/// none.
std::string_view version_pattern(std::string_view pattern);

/// Returns the destination of a resource that is not a list, relative to the mount point. The
/// destination of a glob is a pattern.
std::string_view place_of(const JobConfig& config, const Resource& resource);

/// Returns the path on the PFS, relative to root_dir, of the input at `path`.
std::string source_of(const JobConfig& config, std::string_view path);

/// Returns the path in results_dir of the result at `path` in the buffer. The path is the same,
/// unless an output rule has an `as`.
std::string result_path(const JobConfig& config, std::string_view path);
/// Returns whether any result has another path in results_dir.
bool renames_results(const JobConfig& config);
/// Returns whether results replace the inputs in root_dir.
bool has_results_in_place(const JobConfig& config);

/// Returns whether a resource names or contains `path`. Ignores lists: only the code that reads a
/// list knows its names.
bool is_input(const JobConfig& config, std::string_view path);

/// Returns the index of the backend for a file at `path`. An input goes to the backend of its
/// resource. A new file goes to the backend of the first output rule that matches it, or to that of
/// new files.
std::size_t backend_of(const JobConfig& config, std::string_view path, bool staged_in);

/// Returns the index of the backend with this id; nullopt if there is none.
std::optional<std::size_t> find_backend(const JobConfig& config, std::string_view id);

/// Returns the rank of `path` in the order of the job file: the first output rule that matches the
/// path or a directory above it, then the resource that contains it. Paths without a rule come
/// last. Lower ranks are exported first if time is short.
std::size_t rank(const JobConfig& config, std::string_view path);

}  // namespace efs::config
