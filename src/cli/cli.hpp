// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The command efs has one source file for each verb. A verb is a function of its arguments and its
// World: the World holds everything else that a verb touches.

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
#include "control/requests.hpp"
#include "control/status_reply.hpp"
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

/// The streams that a verb writes to and the form of its output.
struct World {
  std::ostream& out;
  std::ostream& err;
  bool terminal = false;  // err is a terminal: show progress
  bool json = false;
  bool colour = false;  // out gets escape sequences (cli/colour.hpp)
};

/// How a program is intercepted.
struct InterceptArguments {
  bool stats = false, verify = false;  // EFS_INTERCEPT; neither: as in the environment
  std::string skip;                    // EFS_INTERCEPT_SKIP; "": as in the environment
};

/// The arguments common to start, run, plan and check.
struct JobArguments {
  std::string job_file;
  // the text of the job file if efs read it from a pipe; job_file is then "-"
  std::optional<std::string> text = std::nullopt;
  config::Overrides overrides;
  std::string options;  // -o
  std::string user;
  std::string node;          // NUMBER/NODES of a job on several nodes
  std::string interleaving;  // directory of the queue; wins over the job file
  bool debug = false;
  // check and plan: efs runs before the job exists and perhaps on a different kind of node
  bool at_submission = false;
  // check: the file to write for the nodes of the job; "": none. Requires at_submission
  std::string snapshot;
  // plan: leave the list of files out of the JSON document, because its length grows with their
  // number
  bool brief = false;
  bool foreground = false;
  bool show = false;
  bool keys = false;  // check: list the keys of job files; no job file is read
  // memory of the batch job on one node; "": as in the environment, if the environment states a
  // size
  std::string memory;
  std::string node_memory;  // check and plan: memory of the largest node; "": unknown
  std::string memory_source = "--mem";
  bool intercepts = false;       // run
  InterceptArguments intercept;  // run, with `intercepts`
};

/// The arguments common to the verbs that act on files.
struct FileArguments {
  std::string instance;            // "": the instance that contains the paths, or the only one
  std::vector<std::string> paths;  // or task ids
  std::string file_class;          // efs set
  bool wait = false;
  bool no_wait = false;                 // fetch, move
  bool inputs = false;                  // wait
  std::optional<double> timeout;        // wait --inputs: seconds
  bool replace = false, force = false;  // load
  bool as_is = false, remove = false;   // unload
  std::string to;                       // move: id of a backend
  bool instances = false;               // ls
  std::uint64_t offset = 0, size = 0;   // of a single file
};

// Verbs. Each reports its results and errors and returns the exit code.
int check(World& world, const JobArguments& arguments);
int plan(World& world, const JobArguments& arguments);
int start(World& world, const JobArguments& arguments);
int run(World& world, const JobArguments& arguments, const std::vector<std::string>& command);

/// Replaces this process by the program, with libefs-intercept preloaded. Returns only on failure.
int intercept(World& world, const InterceptArguments& arguments,
              const std::vector<std::string>& command);
/// Returns the path of libefs-intercept. Fails with ENOENT if it is not installed.
Result<std::string> find_interception();
/// Prepares the environment of this process, which is about to execute the program. Warns if the
/// program cannot be intercepted.
void prepare_interception(World& world, const InterceptArguments& arguments,
                          const std::string& library, const std::string& program);

struct RecordArguments {
  std::string output = "job.yaml";  // the job file to write
  std::string pfs;                  // root-dir; "": the working directory
  bool force = false;               // replace an existing job file
};

/// Runs a program on the PFS as it is, and writes the job file that it needs. Returns the exit code
/// of the program; 125 if it succeeded and the job file was not written.
int record_program(World& world, const RecordArguments& arguments,
                   const std::vector<std::string>& command);
int status(World& world, const std::string& which);
/// Shows status() each `interval` seconds until a key or a signal ends it.
int watch_status(World& world, const std::string& which, double interval);
int list_all(World& world);  // includes stores without an instance
/// Prints the records that the nodes of a batch job wrote. If there are none, prints the state of
/// the job from slurmctld. `job` is a job number or ARRAY_TASK. `shared` is the shared directory of
/// the site; "": the one in plugstack.conf.
int job_status(World& world, const std::string& job, const std::string& shared);
/// `directory`: of the queue; "": the one in plugstack.conf.
int queue(World& world, const std::string& directory);
/// Reports problems of this node with efs, and problems with the stores of `job_file`, which may be
/// "".
int doctor(World& world, const std::string& job_file, const std::string& memory);
/// Shows the persistent memory of this node, and the commands that make a backend of it.
int doctor_pmem(World& world);

struct StopArguments {
  std::string which;
  bool stage_out = true;
  bool keep = false;
  double deadline = 0;  // seconds; 0: none
  bool cut_off = false;
  bool merge = false;
  // the supervisor of the instance to stop, even if another instance has its name by now; 0: the
  // instance that has the name
  pid_t supervisor = 0;
  // a connection to the same instance that sent "wait-end". stop() closes the connection as soon as
  // it is no longer needed: otherwise the daemon would wait for a client that does not read
  std::optional<control::Client>* end = nullptr;
  // leave the receipt out of the JSON document, because its length grows with the number of files
  bool brief = false;
};

int stop(World& world, const StopArguments& arguments);

struct SalvageArguments {
  std::string which, to;
  bool all = false, list = false, lost = false;
};

int salvage(World& world, const SalvageArguments& arguments);
/// salvage() with `lost` set.
int salvage_orphans(World& world, const SalvageArguments& arguments);

struct ReportArguments {
  std::string which;  // an instance, a job file or a receipt; "": the only receipt here
  std::string html;   // the page to write; "": text to standard output
};

int report_job(World& world, const ReportArguments& arguments);

struct ReceiptArguments {
  std::string which;              // as for find_receipt()
  std::string verify;             // a receipt to compare with the PFS
  std::vector<std::string> diff;  // two receipts
  bool failed = false, dropped = false, replaced = false;
};

/// Shows a receipt, compares it with the PFS or with another one. Returns 3 if they differ.
int show_receipt(World& world, const ReceiptArguments& arguments);
/// Returns 0 if the PFS has every file that the receipt lists with a checksum, else 3.
int verify_receipt(World& world, const std::string& receipt);

struct MetricsArguments {
  std::string which;     // "": all instances
  std::string textfile;  // for node_exporter; "": OpenMetrics to standard output
  std::string listen;    // serve them at this address; "": print them once
  bool changed = false;  // count the files that a stop would export
};

int metrics(World& world, const MetricsArguments& arguments);
int check_image(World& world, const std::string& which, bool repair);

struct CleanArguments {
  std::vector<std::string> which;  // names; empty: all dead instances
  bool force = false;
  bool kept = false;  // without names: remove also the instances that were kept on purpose
};

int clean(World& world, const CleanArguments& arguments);
/// Removes a dead instance: its mount, its store and its directory. Fails with ENOTEMPTY if results
/// would be lost, unless `force`. Fails with EBUSY if the instance was used after the listing. Root
/// uses the rights of the owner for all paths that come from the owner's files. Returns "" or a
/// text about unsaved contents that were already gone.
Result<std::string> clean_instance(const control::Instance& instance, bool force);

struct CacheArguments {
  std::string action;              // ls or clean
  std::vector<std::string> paths;  // on the PFS
  std::string directory, user;     // "": the configured directory, the caller
  bool all = false;
};

int cache(World& world, const CacheArguments& arguments);

struct TopArguments {
  std::string which;
  std::optional<double> interval{};  // seconds
  bool once = false;
};

int top(World& world, const TopArguments& arguments);
int load(World& world, const FileArguments& arguments);
int unload(World& world, const FileArguments& arguments);
int fetch(World& world, const FileArguments& arguments);
int move(World& world, const FileArguments& arguments);
int wait(World& world, const FileArguments& arguments);
/// efs wait --inputs
int wait_for_inputs(World& world, const FileArguments& arguments);
int cancel(World& world, const FileArguments& arguments);
int ls(World& world, const FileArguments& arguments);
int explain(World& world, const FileArguments& arguments);
int set(World& world, const FileArguments& arguments);
int pin(World& world, const FileArguments& arguments);
int unpin(World& world, const FileArguments& arguments);
/// Shows the limits of a mount, or changes those that `paths` name: read=500MB/s, ops=none.
int limit(World& world, const FileArguments& arguments);

// Shared functions
/// Returns the name of the instance of a batch job on this node. `job` is a job number or
/// ARRAY_TASK. Sets EFS_RUNTIME_DIR if the site keeps its instances in another directory. Fails
/// with ENOENT if the job has no instance on this node.
Result<std::string> instance_of_job(const std::string& job);
/// Sets EFS_RUNTIME_DIR to the runtime directory of the site's Slurm plugin. Returns false if
/// EFS_RUNTIME_DIR is already set, or if the directory is unknown on this machine.
bool use_runtime_directory_of_plugin();
/// Returns the memory of the batch job on this node in bytes, from --memory or from Slurm's
/// environment.
std::optional<std::uint64_t> job_memory_of(const JobArguments& arguments);
/// Loads the job file. Reports all its problems and returns the exit code if it has any.
std::expected<config::JobConfig, int> load_job(World& world, const JobArguments& arguments);
/// Returns the error in an answer of the daemon.
Error error_in(const Json& answer);
/// Forks a child that permanently becomes `user` and runs `work` with only the rights of `user`.
/// Returns the exit code of the child. The caller must be root.
int as_user(World& world, const User& user, const std::function<int()>& work);
/// Runs `work` as the user of -u, or as the caller if -u is not given. Reports an error if this
/// user does not exist or the caller may not become this user.
int as_job_user(World& world, const JobArguments& arguments, const std::function<int()>& work);
/// Returns the JSON document for an error, as --json prints it.
Json error_document(const Error& error, int code = exit_failure);
/// Prints a JSON document. A command with --json prints exactly one.
void print_document(World& world, const Json& document);
/// Prints the values of a job file and their sources, as `--show` does.
void show_values(World& world, const config::JobConfig& config);
Json values_of(const config::JobConfig& config);
/// Reports an error as text or as JSON, as the World requires. Returns `code`.
int report(World& world, const Error& error, int code = exit_failure);
/// Which instances find_instance() prefers if an argument matches both living and dead ones.
enum class Meant : std::uint8_t { living, dead };
/// Finds an instance by its job file, mount point or name. With "", returns the only living or the
/// only dead instance, as `meant` says; Meant::living falls back to the only instance of all. Fails
/// with EINVAL and a list of names if several instances match, and with ENOENT if none does.
Result<control::Instance> find_instance(const std::string& which, Meant meant = Meant::living);

/// A mounted instance whose directory, with the control socket in it, was removed.
struct UnreachableInstance {
  std::string name, directory, mount, job_file, results_dir;
  std::vector<pid_t> processes;
};

/// Returns the unreachable instances of the caller that match `which`: a name, a mount point, a job
/// file or a store. "" matches all instances in the caller's runtime directory.
std::vector<UnreachableInstance> unreachable_instances(const std::string& which);
/// Returns the text that every verb prints for such an instance: its state, and the commands to
/// use.
std::string text_of(const UnreachableInstance& instance);
/// Fails with EHOSTUNREACH and text_of() if `which` matches an unreachable instance.
Status refuse_unreachable(const std::string& which);
/// Reads the manifest from the directory of a dead instance. Fails with ENOENT if there is none.
Result<image::Manifest> manifest_of(const control::Instance& instance);
using OwnersWork = std::function<Result<std::string>()>;
/// Runs `work` with only the rights of `owner` and returns its result. If the caller is root,
/// `work` runs in a child process.
Result<std::string> as_owner(uid_t owner, const OwnersWork& work);
/// Removes the dead mount of a dead instance that the caller has locked. Succeeds if nothing is
/// mounted. Fails with EBUSY if something else is mounted there.
Status drop_mount(const image::Manifest& manifest, const control::Instance& instance);
/// A mount can outlive its daemon (daemon/death_pipe.hpp); it then blocks programs and keeps the
/// store locked. Aborts the connection of such a mount of a dead instance. Waits until the rest of
/// the daemon has exited, and up to some seconds for an answer of the mount.
void end_silent_mount(const control::Instance& instance);
/// True if both paths name one file. False if that cannot be determined.
bool is_same_path(const std::string& a, const std::string& b);
/// Returns the path of a store that is not in the directory of its instance.
std::string store_path(const config::JobConfig& config, uid_t owner);
/// Sets the name of a job without a given name: the stem of the job file. If another job has that
/// name here, a suffix follows that depends only on the path of the job file. An instance or a
/// store with that suffix is the job's own. Returns the job file of the other job, for a message;
/// "": no other job has the name.
std::string choose_default_name(config::JobConfig& config, uid_t owner);
/// Returns the path of the store that a job file implies. Use this if the instance left no
/// directory: a restart of the machine empties /run.
std::optional<std::string> store_of_job(const std::string& job_file);
/// Finds the existing store for a directory or for such a job file. Finds also a store whose
/// removal has begun.
std::optional<std::string> store_of(const std::string& which);
/// Returns the instance of this store, if the instance still exists.
std::optional<control::Instance> instance_of_store(const std::string& path);

/// A store without an instance: /run was emptied, or the instance is in another machine's /run.
struct LostStore {
  std::string path;
  // for a backend that is not the first of its store: the path of the first backend, which had the
  // journal and is gone as well
  std::string first;
};

/// Returns the lost stores in this directory that are not in use. Root gets the stores of all
/// users, other callers get their own.
std::vector<LostStore> stores_without_instance(const std::string& directory);
/// Returns the lost stores in all backend directories of the site file. Skips directories that do
/// not answer.
std::vector<LostStore> stores_of_site_without_instance();
/// For status_of(): the seconds after which an instance counts as silent. A display and a
/// monitoring system do not wait long, because the next look follows soon.
inline constexpr int patient = 30, soon = 3;
/// Returns the status of an instance: the line of a replies::Status, or of a replies::Remains if it
/// does not answer. `changed`:
/// with the changes that a stop would export. `silence`: the daemon of another user may never
/// answer.
Json status_of(const control::Instance& instance, bool changed = false, int silence = patient);
/// Returns the commands that a user can apply to a dead instance.
std::string ways_on_from(const control::replies::Remains& remains);
/// Returns the command that continues a dead instance.
std::string start_command(const control::replies::Remains& remains);

/// Returns a text ("; ...") about inputs that the start did not import again because the job had
/// removed them; "" if there are none.
std::string text_of_away(const control::replies::StagedIn& in);
/// Finds the instance by name. Without a name: the instance whose mount or root-dir contains the
/// first path, else the instance of EFS_MOUNT, else the only running one.
Result<control::Instance> find_instance_for(const FileArguments& arguments);
/// Sends a request to the instance. An answer that reports a failure becomes an Error.
Result<Json> ask(const control::Instance& instance, const Json& request,
                 const std::function<void(const Json&)>& progress = {});
/// Sends a request that may take long and shows its progress; see control/asking.hpp.
Result<Json> ask_until_answered(World& world, const control::Instance& instance,
                                const Json& request);
/// Converts texts to task numbers. Fails with EINVAL if a text is not a number.
Result<std::vector<std::uint64_t>> task_numbers(const std::vector<std::string>& texts);
/// Sends the request of efs load or efs unload. Prints only the number of the task, so that a
/// script can store it; with --wait the outcome. Returns the exit code.
int start_task(World& world, const FileArguments& arguments, const Json& request);
/// The same from the answer to such a request on. `waits`: prints the outcome.
int follow_task(World& world, const control::Instance& instance, const Json& answer, bool waits);
/// Waits for a task and prints its progress and its outcome. Returns the exit code.
int finish_task(World& world, const control::Instance& instance, std::uint64_t task);
/// Starts efsd for a job and waits until the inputs are imported. Returns the status of the
/// instance.
std::expected<Json, int> launch(World& world, const JobArguments& arguments,
                                const config::JobConfig& config);

struct Stopped {
  int code = exit_good;
  Json document;  // with --json: the daemon's answer or the error; the caller prints it
};

/// Stops an instance and reports the outcome. With --json the caller reports the outcome.
Stopped stop_instance(World& world, const control::Instance& instance,
                      const StopArguments& arguments);
/// Prints one line of a listing. `item` comes from stage::inventory_entry(). `with_backend`: also
/// the backend of a file.
void print_item(std::ostream& out, const Json& item, bool with_backend);
/// Reads from `fd` until its end or the first error. Stops after `most` bytes; the result can
/// exceed `most` by one buffer.
std::string read_all(int fd, std::size_t most = std::size_t{1} << 20);
/// Waits until the child exits, and returns its status; -1: any child.
int await_exit(pid_t child);
/// Draws a progress line (bytes, rate, remaining time) over the previous line.
void show_progress(World& world, const Json& progress);
void end_progress(World& world);

}  // namespace efs::cli
