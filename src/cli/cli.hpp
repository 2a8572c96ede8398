#pragma once
// The command efs: one file per verb. Everything a verb touches comes in as a World, so that a verb
// is a function of its arguments and its world.

#include <functional>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/user.hpp"
#include "config/load.hpp"
#include "control/client.hpp"
#include "control/instances.hpp"
#include "image/manifest.hpp"

namespace efs::cli {

using Json = nlohmann::json;

enum ExitCode : int {
  exit_good = 0,
  exit_failure = 1,
  exit_usage = 2,
  exit_some_failed = 3,
  exit_not_saved = 125,
  exit_cannot_run = 126,
  exit_not_found = 127
};

/// Where a verb writes and whether a person watches.
struct World {
  std::ostream& out;
  std::ostream& err;
  bool terminal = false;  // err is one: show progress
  bool json = false;
};

/// What start, run, plan and check share.
struct JobArguments {
  std::string job_file;
  // of the job file, where it came from a pipe; job_file is "-" then
  std::optional<std::string> text = std::nullopt;
  config::Overrides overrides;
  std::string options;  // -o
  std::string user;
  std::string node;          // NUMBER/NODES of a job on several nodes
  std::string interleaving;  // directory of the queue; wins over the job file
  bool debug = false;
  // check and plan: before the job is there, and perhaps not on a node like its own
  bool at_submission = false;
  // check: file for what its nodes shall read; "": none. Needs at_submission
  std::string snapshot;
  // plan: JSON without what would move, which is as long as there are files
  bool brief = false;
  bool foreground = false;
  bool show = false;
  bool keys = false;  // check: list the keys of job files; no job file is read
  // of the batch job on a node; "": as the environment says, where it does
  std::string memory;
  std::string node_memory;  // check and plan: of the largest node; "": not known
  std::string memory_source = "--mem";
};

/// What the verbs for files share.
struct FileArguments {
  std::string instance;            // "": the one that the paths lie in, or the only one
  std::vector<std::string> paths;  // or task ids
  std::string file_class;          // of set
  bool wait = false;
  bool replace = false, force = false;  // load
  bool as_is = false, remove = false;   // unload
  bool instances = false;               // ls
  std::uint64_t offset = 0, size = 0;   // of one file
};

// Verbs: each returns the exit code and has reported everything.
int check(World& world, const JobArguments& arguments);
int plan(World& world, const JobArguments& arguments);
int start(World& world, const JobArguments& arguments);
int run(World& world, const JobArguments& arguments, const std::vector<std::string>& command);
int status(World& world, const std::string& which);
int list_all(World& world);  // and stores without an instance
/// What the nodes of a batch job say, or slurmctld, while it has none. `job`: its number, or
/// ARRAY_TASK; `shared`: the site's directory, "": as plugstack.conf has it.
int job_status(World& world, const std::string& job, const std::string& shared);
/// `directory`: "": as plugstack.conf has it.
int queue(World& world, const std::string& directory);
/// What this node lacks for efs, and for the stores of a job file (may be "").
int doctor(World& world, const std::string& job_file, const std::string& memory);

struct StopArguments {
  std::string which;
  bool stage_out = true;
  bool keep = false;
  double deadline = 0;  // seconds; 0: none
  bool cut_off = false;
  bool merge = false;
  // of the instance that is meant, whatever has its name by now; 0: that which has it
  pid_t supervisor = 0;
  // of the same: has been sent "wait-end"; closed when it is not needed any more, or the daemon
  // would wait for who does not read
  std::optional<control::Client>* end = nullptr;
  bool brief = false;  // JSON without the receipt, which is as long as there are files
};

int stop(World& world, const StopArguments& arguments);

struct SalvageArguments {
  std::string which, to;
  bool all = false, list = false, lost = false;
};

int salvage(World& world, const SalvageArguments& arguments);
/// With `lost`.
int salvage_orphans(World& world, const SalvageArguments& arguments);
/// 0: the PFS has all that the receipt names by a checksum; 3: not all.
int verify_receipt(World& world, const std::string& receipt);
int check_image(World& world, const std::string& which, bool repair);

struct CleanArguments {
  std::vector<std::string> which;  // names; none: all that are dead
  bool force = false;
  bool kept = false;  // without names: those, too, that were left on purpose
};

int clean(World& world, const CleanArguments& arguments);
/// Removes a dead instance: its mount, store and directory. ENOTEMPTY where results would be lost,
/// unless `force`; EBUSY where it has been used since it was listed. Root follows what the user's
/// files say with the user's rights. What it had to save and was gone before: a text, or "".
Result<std::string> clean_instance(const control::Instance& instance, bool force);

struct CacheArguments {
  std::string action;              // ls or clean
  std::vector<std::string> paths;  // of the PFS
  std::string directory, user;     // "": as configured; the caller
  bool all = false;
};

int cache(World& world, const CacheArguments& arguments);

struct TopArguments {
  std::string which;
  double interval = 2;  // seconds
  bool once = false;
};

int top(World& world, const TopArguments& arguments);
int load(World& world, const FileArguments& arguments);
int unload(World& world, const FileArguments& arguments);
int wait(World& world, const FileArguments& arguments);
int cancel(World& world, const FileArguments& arguments);
int ls(World& world, const FileArguments& arguments);
int explain(World& world, const FileArguments& arguments);
int set(World& world, const FileArguments& arguments);

// Shared pieces
/// The name of the instance that a batch job has on this node; `job`: its number, or ARRAY_TASK.
/// Sets EFS_RUNTIME_DIR where the site has its instances elsewhere. ENOENT: this node has none.
Result<std::string> instance_of_job(const std::string& job);
/// Sets EFS_RUNTIME_DIR to where the site's Slurm plugin has its instances. False where it is set
/// already, or this machine does not know.
bool use_runtime_directory_of_plugin();
/// The bytes that the batch job has on this node, by --memory or Slurm's environment.
std::optional<std::uint64_t> job_memory_of(const JobArguments& arguments);
/// Loads the job file or reports every problem of it.
std::expected<config::JobConfig, int> load_job(World& world, const JobArguments& arguments);
/// The error that an answer tells of.
Error error_in(const Json& answer, const char* otherwise);
/// Does it in a child that has become `user` for good, with his rights and no others. For root.
int as_user(World& world, const User& user, const std::function<int()>& work);
/// The same as the job's user (-u), where one is named; reports that he cannot be had.
int as_job_user(World& world, const JobArguments& arguments, const std::function<int()>& work);
/// What --json says of an error.
Json error_document(const Error& error, int code = exit_failure);
/// Prints one JSON document, the only one of a command with --json.
void print_document(World& world, const Json& document);
/// The values of a job file with their sources, as `--show` prints them.
void show_values(World& world, const config::JobConfig& config);
Json values_of(const config::JobConfig& config);
/// Reports an error in the world's form; returns `code`.
int report(World& world, const Error& error, int code = exit_failure);
/// Which is taken where an argument says several, of which some live and others do not.
enum class Meant : std::uint8_t { living, dead };
/// The instance named by job file, mount point or name; with "" the only one that lives, or is
/// dead, as meant (of the living: else the only one). EINVAL with their names where several are
/// meant, ENOENT where none is.
Result<control::Instance> find_instance(const std::string& which, Meant meant = Meant::living);

/// An instance that is mounted, and whose directory something has removed, with the socket that the
/// verbs ask.
struct UnreachableInstance {
  std::string name, directory, mount, job_file, results_dir;
  std::vector<pid_t> processes;
};

/// Those of the caller's own processes that `which` means, by name, mount point, job file or store;
/// "": those in the caller's runtime directory.
std::vector<UnreachableInstance> unreachable_instances(const std::string& which);
/// What has happened to it, and the way out: every verb says the same.
std::string text_of(const UnreachableInstance& instance);
/// EHOSTUNREACH with that text, where there is one.
Status refuse_unreachable(const std::string& which);
/// What a dead instance's directory says of its store; ENOENT.
Result<image::Manifest> manifest_of(const control::Instance& instance);
using OwnersWork = std::function<Result<std::string>()>;
/// Does `work` with the rights of `owner` and no others, in a child where the caller is root; its
/// answer.
Result<std::string> as_owner(uid_t owner, const OwnersWork& work);
/// Takes away what a dead instance, which the caller holds, left mounted. Ok where nothing is;
/// EBUSY where something else is mounted there.
Status drop_mount(const image::Manifest& manifest, const control::Instance& instance);
/// Ends the connection of a dead instance's mount where it outlived the daemon
/// (daemon/death_pipe.hpp), and holds the store and programs. Waits for what is left of the daemon
/// to be gone, and some seconds for the mount to answer.
void end_silent_mount(const control::Instance& instance);
/// Are they two names of one file? False where that cannot be told.
bool is_same_path(const std::string& a, const std::string& b);
/// Where the store of a job of `owner` lies that is not in the directory of its instance.
std::string store_path(const config::JobConfig& config, uid_t owner);
/// The name of a job whose name nobody has given is the job file's, unless another job has that
/// name here; then a suffix follows that depends on the path of the job file alone. An instance, or
/// a store, with that suffix is the job's own and is found again. Changes `config`. The job file
/// of the other job, for a message; "": none has the name.
std::string choose_default_name(config::JobConfig& config, uid_t owner);
/// Where a job file of an instance that left no directory (a restart of the machine empties /run)
/// would have had its store.
std::optional<std::string> store_of_job(const std::string& job_file);
/// The store that is there for a directory or such a job file, also one whose removal began.
std::optional<std::string> store_of(const std::string& which);
/// The instance that this store is of, if one is left.
std::optional<control::Instance> instance_of_store(const std::string& path);

/// A store to which no instance leads: /run was emptied, or is another's.
struct LostStore {
  std::string path;
  // of a backend behind the first of several: where that one was, which had the journal; it is
  // gone, too
  std::string first;
};

/// Those in this directory that are the caller's, or for root anybody's, and not in use.
std::vector<LostStore> stores_without_instance(const std::string& directory);
/// The same in all directories that the site's file names for backends, as far as they answer.
std::vector<LostStore> stores_of_site_without_instance();
/// The status of one instance; of one that is dead, its state and why.
Json status_of(const control::Instance& instance);
/// The commands for what a dead instance left, of which this is the status.
std::string ways_on_from(const Json& status);
/// The command that goes on with what an instance left that has this status.
std::string start_command(const Json& status);

/// Of the inputs that a start did not bring again, for the job had taken them away ("; ..."); ""
/// where there are none.
std::string text_of_away(const Json& staged_in);
/// The instance that is meant; with no name, the one on whose mount or below whose root-dir the
/// first path lies, else the one of EFS_MOUNT, or the only one running.
Result<control::Instance> find_instance_for(const FileArguments& arguments);
/// Asks the instance; an answer that is no success is an Error.
Result<Json> ask(const control::Instance& instance, const Json& request,
                 const std::function<void(const Json&)>& progress = {});
/// Asks for what takes long, showing how it goes; see control/asking.hpp.
Result<Json> ask_until_answered(World& world, const control::Instance& instance,
                                const Json& request);
/// Numbers of tasks; EINVAL for what is none.
Result<std::vector<std::uint64_t>> task_numbers(const std::vector<std::string>& texts);
/// Waits for a task, shows how it goes and how it went; the exit code.
int finish_task(World& world, const control::Instance& instance, std::uint64_t task);
/// Starts efsd for a job and waits until the inputs are there; its status line.
std::expected<Json, int> launch(World& world, const JobArguments& arguments,
                                const config::JobConfig& config);

struct Stopped {
  int code = exit_good;
  Json document;  // for --json: the daemon's answer, or the error; the caller prints it
};

/// Stops an instance and reports the outcome, except with --json.
Stopped stop_instance(World& world, const control::Instance& instance,
                      const StopArguments& arguments);
/// A line of a listing, of what stage::inventory_entry() says of a name.
void print_item(std::ostream& out, const Json& item);
/// What comes from `fd` up to its end or its first error, of `most` bytes and a piece more at most.
std::string read_all(int fd, std::size_t most = std::size_t{1} << 20);
/// Draws a progress line (bytes, rate, time left) over the last one.
void show_progress(World& world, const Json& progress);
void end_progress(World& world);

}  // namespace efs::cli
