#pragma once
// A job file after parsing and validation: plain values, every path absolute and normalised, no
// trailing slash.

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.hpp"

namespace efs::config {

/// Whether a file goes back to the PFS when the job ends.
enum class FileClass : std::uint8_t { temporary = 0, persistent = 1 };

enum class BackendType : std::uint8_t { dram, fsdax, devdax };

/// What happens at the declared capacity where the kernel cannot hold it (efs-job.5).
enum class Enforce : std::uint8_t { advisory, strict };

/// What happens to a new file whose backend is full, where there are several.
enum class OnFull : std::uint8_t { error, spill };

/// What a stage-out does where the PFS has another version of an input than was staged in.
/// Of a name of results-dir that something else than the job's own results and inputs has.
enum class Existing : std::uint8_t { replace, fail, keep_both };
enum class OnConflict : std::uint8_t { fail, keep_both, overwrite };

/// What a stage-out does where the PFS has a persistent input that the job removed or renamed.
enum class Deletions : std::uint8_t { ignore, propagate };

/// What a start does about an input that it found in a directory or by a pattern, and that is gone
/// when it is to be copied.
enum class Vanished : std::uint8_t { fail, skip };

/// What a result's checksum is compared with: nothing more than what passed, or what the PFS gives
/// back.
enum class Verify : std::uint8_t { stream, read_back };

struct Backend {
  std::string id;  // as resources name it, e.g. "nvml:/"
  BackendType type = BackendType::dram;
  // bytes; absent: all there is (dram: a share of the job's memory)
  std::optional<std::uint64_t> capacity;
  // bytes: the site's limit of one in dram that declares none
  std::optional<std::uint64_t> most_capacity;
  std::string daxfs;  // directory (fsdax) or device (devdax); "" for dram
  // bytes: the largest piece of a file that the daemon maps at a time
  std::uint64_t segment_size = 128u << 20;
  Enforce enforce = Enforce::advisory;
  // of a private tmpfs, for what lies within a file's size (tmpfs(5), huge=within_size)
  bool huge_pages = true;
};

/// Which nodes of a job on several nodes get the files.
enum class Distribute : std::uint8_t { replicate, partition };
inline constexpr std::size_t most_backends = 8;
// bytes: below this the journal alone would fill it
inline constexpr std::uint64_t smallest_capacity = 16u << 20;

/// Something to stage in. A path that holds *, ? or [ behind root_dir is a glob (as glob(7), with
/// ** for any depth); root_dir itself is never part of the pattern.
struct Resource {
  // absolute, below root_dir, or root_dir itself: all of it; with is_list of a file anywhere
  std::string path;
  // where it appears, relative to the mount point; "": where it is below root_dir. Not of globs and
  // lists
  std::string as = {};
  std::string backend;
  FileClass file_class = FileClass::temporary;
  bool is_glob = false;
  // not the file itself is staged in, but what it names (stage/plan/input_list.hpp)
  bool is_list = false;
  Distribute distribute = Distribute::replicate;
  // an earlier job makes it: it need not be there when this one is submitted
  bool from_job = false;
  int priority = 0;       // higher ones are staged in first
  bool reusable = false;  // clean, it stays in the node's cache for later jobs
  Vanished vanished = Vanished::fail;
  // symbolic links are staged in as the files and directories that they lead to
  bool follow = false;
  int line = 0;       // of the job file, for messages
  bool open = false;  // its path has patterns of a job that is only being submitted
};

/// The class of files that do not exist when the job starts, and of inputs where it says so.
struct OutputRule {
  // relative to the mount point; glob as above; a directory stands for all below it
  std::string pattern;
  FileClass file_class = FileClass::persistent;
  std::string backend = {};   // the id of one; "": that of new files
  bool holds_inputs = false;  // also of what was staged in, whatever its resource says
  // what it is called in results-dir; "": as in the buffer, at its place
  std::string as = {};
};

/// Where a value comes from; a later one wins over an earlier one.
enum class Source : std::uint8_t { built_in, site, job_file, environment, command_line };
std::string_view name_of(Source source);

/// One line of `efs check --show`.
struct EffectiveValue {
  std::string section, key, value;
  Source source = Source::built_in;
  std::string where;  // "job.yaml:3", "EFS_WORKERS", "--mount-dir"; "" for built-in defaults
};

/// What the values of a job were made of besides its file, so that it means the same when it is
/// read again elsewhere.
struct Circumstances {
  // of the environment: those that were asked for and set
  std::map<std::string, std::string> variables;
  std::vector<std::pair<std::string, std::string>> settings;  // of the command line (--set)
  std::string user, home, node;
};

struct JobConfig {
  std::string source;  // the job file, for messages
  // of the environment and the command line that began with it: words of start_command()
  std::vector<std::string> start_options;
  std::string name;  // instance name: `name`, or the job file's stem
  std::string root_dir;
  std::string mount_dir;
  std::string results_dir;   // "" where nothing can be persistent
  bool in_place = false;     // results_dir == root_dir, said explicitly
  std::string log_file;      // "": in the instance's own directory
  std::string interleaving;  // directory of the queue at the PFS; "": no turns are taken
  // directory below which the user's cache of inputs lies; "": there is none
  std::string cache;
  std::optional<std::uint64_t> cache_capacity;  // bytes; absent: half of its file system
  std::string log_level = "info";               // as log::setup() knows them
  std::string status_file;                      // "": status.json in the instance's own directory
  std::string trace;                            // "": no trace
  std::string access_log;                       // "": none
  std::uint64_t access_log_size = 64u << 20;    // bytes: both of its files together stay below
  // this node's number and how many the job has: of the start, not of the file
  unsigned node = 0, nodes = 1;
  // its number was given: others, or other runs of the job, may write to results_dir
  bool of_batch_job = false;
  // a stop was asked to replace nothing newer: who goes on with the store does not either
  bool merges = false;
  // of a batch job: when it began, by the PFS's clock; 0: not known
  Nanoseconds merge_since = 0;
  // where what results-dir lies on was mounted when the instance began; "": not known
  std::string results_mount;
  // what was mounted below results-dir then: paths relative to it
  std::vector<std::string> mounts_below;
  // threads that stage, at most; 0: as many as the PFS keeps waiting
  unsigned workers = 0;
  std::uint64_t transfer_size = 2u << 20;  // bytes per PFS request
  OnConflict on_conflict = OnConflict::fail;
  Existing existing = Existing::replace;
  // name or number; "": what results-dir hands down, or the job's own
  std::string results_group;
  std::optional<mode_t> results_mode;  // of results; absent: as in the buffer
  Deletions deletions = Deletions::ignore;
  Verify verify = Verify::stream;
  Vanished vanished = Vanished::fail;  // of resources that do not say it
  std::uint64_t max_rate = 0;          // bytes per second from and to the PFS; 0: no cap
  std::uint64_t max_ops = 0;           // calls per second to the PFS; 0: no cap
  unsigned deadline = 0;               // seconds that a stop may take; 0: all it needs
  unsigned retries = 6;                // of a call to the PFS that failed for a passing reason
  // percent of the job's memory that a dram backend without a capacity gets: the site's word
  unsigned memory_share = 50;
  // bytes that the batch job was given on this node: of the start, not of the file
  std::optional<std::uint64_t> job_memory;
  std::vector<Backend> backends;  // never empty: one dram backend where the file has none
  // of backends: where new files go that no rule sends elsewhere
  std::size_t new_files = 0;
  OnFull on_full = OnFull::error;
  std::vector<Resource> resources;
  // destinations of lists, relative to mount_dir, and what is there, relative to root_dir: of the
  // plan, not of the file
  std::map<std::string, std::string> listed;
  std::vector<OutputRule> outputs;
  std::vector<EffectiveValue> effective;  // for people
  std::string text;                       // of the job file
  Circumstances circumstances;            // where load_for_user() or reload() made it
  // Before the job (Surroundings::before_job):
  // these directories have patterns that only its nodes know
  bool root_open = false, results_open = false;
  std::string snapshot;  // the job file as its nodes shall read it
};

/// What a dram backend gets whose job has `memory` bytes and declares no capacity: `share` percent
/// of it, or the smallest capacity where that is more; never more than the memory.
std::uint64_t default_capacity(std::uint64_t memory, unsigned share);

/// What the job may store in a backend, bytes, where `available` bytes of memory are left for it:
/// as declared; for dram without a capacity the default one of what is left, or of the job's memory
/// where that is less; absent: what the file system has.
std::optional<std::uint64_t> capacity_of(const JobConfig& config, const Backend& backend,
                                         std::uint64_t available);

/// Does `path` (relative, "a/b/c") match `pattern` as glob(7) with ** for any number of components,
/// none included? As glob(7): a component's leading period is matched by a period only; ** takes
/// hidden components too.
bool glob_match(std::string_view pattern, std::string_view path);

/// The class of the file at `path` (relative to the mount point) by the rules of efs-job.5. A file
/// that was not staged in: persistent where there is no output rule at all, else as the first rule
/// that matches it or a directory above it says. One that was: as the first of those rules says
/// that hold inputs, too. What is left: as the resource that names the path or holds it most
/// deeply; else persistent where there is no output rule and temporary where there is one.
FileClass classify(const JobConfig& config, std::string_view path, bool staged_in);

/// The same, and in `why` the rule that decided, for people.
FileClass classify(const JobConfig& config, std::string_view path, bool staged_in,
                   std::string& why);

/// Does an output rule match the new file at `path` or a directory above it?
bool has_output_rule(const JobConfig& config, std::string_view path);

/// Where a resource that is no list appears, relative to the mount point: a pattern, if it is one.
std::string_view place_of(const JobConfig& config, const Resource& resource);

/// Where on the PFS, relative to root_dir, an input comes from that appears at `path`.
std::string source_of(const JobConfig& config, std::string_view path);

/// Where in results_dir a result goes that is at `path` in the buffer: there, too, but for an
/// output rule's `as`.
std::string result_path(const JobConfig& config, std::string_view path);
/// Is that so for some other path?
bool renames_results(const JobConfig& config);
/// Do results go where the inputs came from, and take the place of those?
bool has_results_in_place(const JobConfig& config);

/// Does a resource that is no list name or hold `path`? What lists name is known to those who read
/// them.
bool is_input(const JobConfig& config, std::string_view path);

/// Which of the backends a file at `path` goes to: of an input that of the resource that owns it,
/// of a new file that of the first output rule that matches it, or that of new files.
std::size_t backend_of(const JobConfig& config, std::string_view path, bool staged_in);

/// The number of the backend with this id; nullopt where there is none.
std::optional<std::size_t> find_backend(const JobConfig& config, std::string_view id);

/// The place of `path` in the order of the job file: that of the first output rule that matches it
/// or a directory above, then of the resource that holds it; what no rule names comes last. Lower
/// goes first where time is short.
std::size_t rank(const JobConfig& config, std::string_view path);

}  // namespace efs::config
