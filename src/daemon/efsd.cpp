// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/efsd.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/door_memory.hpp"
#include "base/log.hpp"
#include "base/memory.hpp"
#include "base/mounts.hpp"
#include "base/open_files.hpp"
#include "base/text.hpp"
#include "base/user.hpp"
#include "config/load.hpp"
#include "config/mount_options.hpp"
#include "config/read_file.hpp"
#include "config/start_command.hpp"
#include "daemon/as_root.hpp"
#include "daemon/config_memfds.hpp"
#include "daemon/death_pipe.hpp"
#include "daemon/instance.hpp"
#include "daemon/instance_directory.hpp"
#include "daemon/kept_figures.hpp"
#include "daemon/restart_policy.hpp"
#include "daemon/signal_watch.hpp"
#include "daemon/slot_keeper.hpp"
#include "daemon/starter.hpp"
#include "daemon/supervisor.hpp"
#include "fs/open_table.hpp"
#include "image/manifest.hpp"

namespace efs::daemon {
namespace {

// `efs` starts efsd after it has parsed and checked everything. The arguments of efsd are therefore
// few and simple.
struct Arguments {
  std::string job_file, name, runtime_directory, user, root_dir, mount_dir, results_dir, log_file,
      options, interleaving, node, memory;
  std::vector<std::pair<std::string, std::string>> settings;
  std::vector<std::string> start_options;
  std::string directory;  // the starter's working directory, see leave_starter()
  int ready_fd = -1;
  bool debug = false;
};

struct TextOption {
  std::string_view word;
  std::string Arguments::* text;
};

constexpr std::array<TextOption, 12> text_options{{{"--config", &Arguments::job_file},
                                                   {"--name", &Arguments::name},
                                                   {"--runtime-dir", &Arguments::runtime_directory},
                                                   {"--user", &Arguments::user},
                                                   {"--root-dir", &Arguments::root_dir},
                                                   {"--mount-dir", &Arguments::mount_dir},
                                                   {"--results-dir", &Arguments::results_dir},
                                                   {"--log-file", &Arguments::log_file},
                                                   {"--options", &Arguments::options},
                                                   {"--interleaving", &Arguments::interleaving},
                                                   {"--node", &Arguments::node},
                                                   {"--memory", &Arguments::memory}}};

// Takes KEY=VALUE for a key of the job file.
Status take_setting(Arguments& arguments, const std::string& pair) {
  const auto equals = pair.find('=');
  if (equals == std::string::npos) {
    return fail(EINVAL, "--set " + pair + ": KEY=VALUE is needed");
  }
  arguments.settings.emplace_back(pair.substr(0, equals), pair.substr(equals + 1));
  return {};
}

// The argument holds only the name of the variable: every user can read the arguments of a process,
// but not its environment.
void take_start_variable(Arguments& arguments, const char* name) {
  const char* value = std::getenv(name);
  if (value != nullptr) {
    arguments.start_options.push_back(std::string(name) + "=" + value);
  }
}

Status take_option(Arguments& arguments, std::string_view word, const char* value) {
  if (word == "--ready-fd") {
    arguments.ready_fd = std::atoi(value);
    return {};
  }
  if (word == "--start-option") {
    arguments.start_options.emplace_back(value);
    return {};
  }
  if (word == "--start-variable") {
    take_start_variable(arguments, value);
    return {};
  }
  if (word == "--set") {
    return take_setting(arguments, value);
  }
  const auto* text = std::ranges::find(text_options, word, &TextOption::word);
  if (text == text_options.end()) {
    return fail(EINVAL, "unknown option " + std::string(word) + "; efsd is started by efs(1)");
  }
  arguments.*text->text = value;
  return {};
}

Result<Arguments> parse_arguments(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--debug") {
      arguments.debug = true;
      continue;
    }
    if (i + 1 == argc) {
      return fail(EINVAL, std::string(word) + " needs a value");
    }
    EFS_TRY(take_option(arguments, word, argv[++i]));
  }
  if (arguments.job_file.empty() || arguments.name.empty() || arguments.runtime_directory.empty()) {
    return fail(EINVAL, "--config, --name and --runtime-dir are needed; efsd is started by efs(1)");
  }
  if (arguments.name.find('/') != std::string::npos || arguments.name[0] == '.') {
    return fail(EINVAL, "bad name " + arguments.name);
  }
  return arguments;
}

// efs makes most paths absolute, but not those of another user's job.
void leave_starters_directory(Arguments& arguments) {
  arguments.directory = leave_starter();
  for (auto* path : {&arguments.job_file, &arguments.runtime_directory, &arguments.log_file}) {
    if (*path != config::standard_input && !arguments.directory.empty() && !path->empty() &&
        !path->starts_with('/')) {
      *path = arguments.directory + "/" + *path;
    }
  }
}

// The starter reads this line: "ready" or an error.
void tell(int ready_fd, const std::string& line) {
  if (ready_fd < 0) {
    return;
  }
  const std::string text = line + "\n";
  (void)!::write(ready_fd, text.data(), text.size());
}

// Standard error may be the starter's pipe. The starter does not read the pipe after the daemon is
// ready.
void leave_starters_output(int ready_fd) {
  struct stat ready{}, error{};
  if (ready_fd < 0 || ::fstat(ready_fd, &ready) != 0 || ::fstat(STDERR_FILENO, &error) != 0) {
    return;
  }
  if (ready.st_dev != error.st_dev || ready.st_ino != error.st_ino) {
    return;
  }
  const UniqueFd nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (nowhere) {
    (void)::dup2(nowhere.get(), STDERR_FILENO);
  } else {
    ::close(STDERR_FILENO);
  }
}

// Reads the job file and the site file. A successor uses the texts that the first worker read, even
// if the files have changed. If memory for these texts was not available, a successor reads the
// copy of the job file and the current site file.
Result<config::ReadFiles> read_files(const Arguments& a, const ConfigMemfds& kept,
                                     const std::string& copy, bool successor) {
  if (auto then = successor ? kept.read() : std::nullopt) {
    return *std::move(then);
  }
  std::optional<std::string> text;
  if (!successor && a.job_file == config::standard_input) {
    auto given = config::read_stream(0, "the job file");
    if (!given) {
      return std::unexpected(given.error());
    }
    text = std::move(*given);
  }
  auto read = config::read_files(successor ? copy : a.job_file, text);
  if (read) {
    return *std::move(read);
  }
  return fail(EINVAL, to_string(read.error().front(), a.job_file));
}

Result<config::JobConfig> parse_job(const config::ReadFiles& read, const Arguments& a,
                                    const User& user) {
  const auto given = [](const std::string& text) {
    return text.empty() ? std::nullopt : std::optional(text);
  };
  auto config = config::parse_for_user(read, a.job_file,
                                       {.name = a.name,
                                        .root_dir = given(a.root_dir),
                                        .mount_dir = given(a.mount_dir),
                                        .results_dir = given(a.results_dir),
                                        .log_file = given(a.log_file),
                                        .settings = a.settings},
                                       user, {.before_job = false, .directory = a.directory});
  if (config) {
    config->start_options = a.start_options;
    config->job_memory = config::parse_size(a.memory);
    // NUMBER/NODES, checked by `efs`
    config->of_batch_job = !a.node.empty();
    if (config->of_batch_job) {
      (void)std::sscanf(a.node.c_str(), "%u/%u", &config->node, &config->nodes);
    }
    if (config->nodes > 1 && config::sends_some_versions(*config)) {
      return fail(EINVAL, a.job_file +
                              ": 'to-pfs' does not go with a job on several nodes: each node would "
                              "choose other versions. Leave it out: all versions go home");
    }
    return *config;
  }
  std::string text;
  for (const auto& problem : config.error()) {
    text += (text.empty() ? "" : "; ") + to_string(problem, a.job_file);
  }
  return fail(EINVAL, text);
}

// The resources that every worker of an instance inherits.
struct Kept {
  ConfigMemfds files;
  KeptFiguresPtr figures;
  std::unique_ptr<DoorMemory> door;  // null: the mount has no door
  std::unique_ptr<fs::OpenTable> opens;
};

// Without a door programs cannot intercept.
std::unique_ptr<DoorMemory> make_door() {
  auto made = DoorMemory::make();
  return made ? std::make_unique<DoorMemory>(*std::move(made)) : nullptr;
}

// The supervisor's information for a new worker about the dead ones.
struct Predecessors {
  unsigned count = 0;
  std::string last;  // how the last dead worker ended
  bool stop_is_unusual = false;
};

// The facts about an instance that the supervisor and all its workers share.
struct Facts {
  Arguments arguments;
  User user;
  bool privileged = false;  // the supervisor is root
  config::MountOptions mount;
  Kept kept;

  /// The instance's directory.
  std::string directory() const { return arguments.runtime_directory + "/" + arguments.name; }
};

// Keeps the job file as read at the start: in memory for successors, and in the instance's
// directory for people.
Status keep_files(const config::ReadFiles& read, const ConfigMemfds& kept,
                  const std::string& copy) {
  if (const Status done = kept.keep(read); !done) {
    log::warn(
        "event=job_file_not_kept reason=\"{}\" note=\"a successor reads the copy, and the site "
        "file as it is then\"",
        describe(done.error()));
  }
  UniqueFd fd(::open(copy.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd || ::fchmod(fd.get(), 0600) != 0) {
    return fail_errno(copy);
  }
  for (std::string_view rest = read.job; !rest.empty();) {
    const ssize_t n = ::write(fd.get(), rest.data(), rest.size());
    if (n > 0) {
      rest.remove_prefix(static_cast<std::size_t>(n));
    } else if (n == 0 || errno != EINTR) {
      return fail_errno(copy);
    }
  }
  return ::close(fd.release()) == 0 ? Status{} : fail_errno(copy);
}

// Starts the keeper of turns if turns are configured. Without a keeper the job runs, too; the log
// and `efs status` show the reason.
SlotClient keep_turns(const Arguments& arguments, const User& user) {
  if (arguments.interleaving.empty()) {
    return {};
  }
  const char* node = std::getenv("SLURMD_NODENAME");
  std::array<char, 256> host{};
  (void)::gethostname(host.data(), host.size() - 1);
  auto keeper = start_keeper({.directory = arguments.interleaving,
                              .job = arguments.name,
                              .node = node != nullptr ? node : host.data()},
                             user);
  return keeper ? SlotClient(std::move(*keeper), "") : SlotClient({}, describe(keeper.error()));
}

// `file` "": the log in the instance's directory.
Status set_up_log(const std::string& file, const std::string& directory, const std::string& level) {
  return log::setup(file.empty() ? directory + "/efsd.log" : file, level);
}

// For a successor and the supervisor. Programs wait for them, so they fall back to another log or
// to none.
void set_up_any_log(const std::string& file, const std::string& directory,
                    const std::string& level) {
  const std::string own = directory + "/efsd.log";
  const Status done = log::setup(file.empty() ? own : file, level, std::chrono::seconds(1));
  if (done) {
    return;
  }
  if (!file.empty()) {
    (void)log::setup(own, level, std::chrono::seconds(1));
  }
  log::warn("event=log_file_unusable file={} reason=\"{}\"", file, describe(done.error()));
}

/// Call this while the process has one thread: with several threads the kernel needs milliseconds
/// for each growth of the table.
void widen_descriptor_table() {
  constexpr int many = 2048;  // for open containers and the descriptors of threads
  const int far = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, many);
  if (far >= 0) {
    ::close(far);
  }
}

std::string source_of(const Arguments& arguments, const config::MountOptions& mount) {
  return mount.source.empty() ? usual_source(arguments.name) : mount.source;
}

// Gives the signals that end an instance their usual effect. Returns them. SignalWatch blocks them.
sigset_t restore_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    sigaddset(&signals, signal);
    ::signal(signal, SIG_DFL);
  }
  ::pthread_sigmask(SIG_SETMASK, &signals, nullptr);  // only the supervisor blocks SIGCHLD
  return signals;
}

struct LoadedJob {
  config::ReadFiles files;
  config::JobConfig config;
};

Result<LoadedJob> load_job(const Facts& facts, bool successor) {
  auto read =
      read_files(facts.arguments, facts.kept.files, facts.directory() + "/job.yaml", successor);
  EFS_TRY(read);
  auto config = parse_job(*read, facts.arguments, facts.user);
  EFS_TRY(config);
  return LoadedJob{.files = *std::move(read), .config = *std::move(config)};
}

// Begins the log of the instance. The first worker also keeps the files that it has read.
Status begin_log(const Facts& facts, const LoadedJob& job, bool successor) {
  const std::string level = facts.arguments.debug ? "debug" : job.config.log_level;
  if (successor) {
    log::set_level(level);
    return {};
  }
  if (const Status logging = set_up_log(job.config.log_file, facts.directory(), level); !logging) {
    return fail(logging.error().code, "log-file " + describe(logging.error()));
  }
  return keep_files(job.files, facts.kept.files, facts.directory() + "/job.yaml");
}

void warn_of_missing_life_line(const Error& error) {
  log::warn(
      "event=no_life_line reason=\"{}\" note=\"the successor of a worker that is killed in the "
      "kernel waits for its end\"",
      describe(error));
}

void warn_of_cpu_limit() {
  if (const auto seconds = cpu_limit()) {
    log::warn(
        "event=cpu_limited seconds={} note=\"the starter's hard limit on CPU time ends the daemon: "
        "ulimit -Ht\"",
        *seconds);
  }
}

InstanceOptions instance_options(const Facts& facts, const config::JobConfig& config,
                                 const Predecessors& predecessors) {
  return {.config = config,
          .directory = facts.directory(),
          .owner = facts.user.uid,
          .root_mode = facts.mount.mode,
          .mount = {.privileged = facts.privileged,
                    .daemon_io = facts.mount.daemon_io,
                    .writeback = facts.mount.writeback,
                    .flags = facts.mount.flags,
                    .spin = std::chrono::microseconds(facts.mount.spin),
                    .join_callers = facts.mount.join_callers,
                    .source = source_of(facts.arguments, facts.mount),
                    .successor = predecessors.count > 0,
                    .figures = facts.kept.figures.get(),
                    .door = facts.kept.door.get()},
          .supervisor = ::getppid(),
          .takeovers = predecessors.count,
          .predecessor = predecessors.last,
          .stop_is_unusual = predecessors.stop_is_unusual,
          .opens = facts.kept.opens.get()};
}

// Tells the starter the reason of a failure. Returns the exit code of the worker.
int refuse(const Arguments& arguments, const Error& error, int code = 1) {
  tell(arguments.ready_fd, describe(error));
  return code;
}

// Tells the starter when the instance can be reached. Returns when the instance has ended.
int run_instance(const Arguments& arguments, Instance& instance, const sigset_t& signals) {
  if (const Status listening = instance.listen(); !listening) {
    return refuse(arguments, listening.error());
  }
  const auto watch = SignalWatch::start(signals, [&] { instance.request_stop({}); });
  if (!watch) {
    return refuse(arguments, watch.error());
  }
  leave_starters_output(arguments.ready_fd);
  tell(arguments.ready_fd, "ready");
  ::close(arguments.ready_fd);
  return instance.run();
}

// The worker runs as the job's user from here on.
int worker(const Facts& facts, UniqueFd channel, UniqueFd life, const Predecessors& predecessors) {
  const Arguments& arguments = facts.arguments;
  const bool successor = predecessors.count > 0;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // without the supervisor no process could unmount
  const sigset_t signals = restore_signals();
  // The soft limit of a login exists for programs that use select(2).
  const Status enough_files = raise_open_files();
  if (!enough_files && !successor) {
    return refuse(arguments, enough_files.error());
  }
  widen_descriptor_table();
  keep_little_of_freed();
  ::signal(SIGXFSZ, SIG_IGN);  // a file that exceeds the size limit is an ordinary error
  // a thread may open a container for writing at the moment in which another thread has a lease on
  // it (backends/fsdax.cpp)
  ::signal(SIGIO, SIG_IGN);
  // the supervisor that forks a successor has the user's file rights
  if (facts.privileged) {
    (void)!::seteuid(0);
  }
  SlotClient turns = keep_turns(arguments, facts.user);
  if (const Status done = become(facts.user, true); !done) {
    return refuse(arguments, done.error());
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a change of user clears it
  const Status seen = hold_death_pipe(std::move(life));
  // at the fork another thread may have held the lock of the inherited log
  if (successor) {
    set_up_any_log(arguments.log_file, facts.directory(), "info");
  }
  const auto job = load_job(facts, successor);
  if (!job && successor) {
    log::error("event=takeover_failed reason=\"{}\"", describe(job.error()));
  }
  if (!job) {
    return refuse(arguments, job.error(), 2);
  }
  if (const Status begun = begin_log(facts, *job, successor); !begun) {
    return refuse(arguments, begun.error());
  }
  if (!seen) {
    warn_of_missing_life_line(seen.error());
  }
  (void)!::chdir("/");
  warn_of_cpu_limit();
  SupervisorClient supervisor(std::move(channel));
  Instance instance(instance_options(facts, job->config, predecessors), supervisor, turns);
  return run_instance(arguments, instance, signals);
}

// Handles an exception before the instance runs, for want of memory: the start fails, or the
// supervisor tries another successor.
int guarded_worker(const Facts& facts, UniqueFd channel, UniqueFd life,
                   const Predecessors& predecessors) {
  try {
    return worker(facts, std::move(channel), std::move(life), predecessors);
  } catch (const std::exception& problem) {
    tell(facts.arguments.ready_fd, problem.what());
    return 1;
  }
}

struct Child {
  pid_t pid = -1;
  UniqueFd channel;
  UniqueFd life;  // closes when the worker dies
};

// `ours` and the descriptors of `supervisor` must not stay open in the worker.
Result<Child> fork_worker(const Facts& facts, InstanceDirectory& ours, Supervisor* supervisor,
                          const Predecessors& predecessors) {
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) != 0) {
    return fail_errno("socketpair");
  }
  Child child{.pid = -1, .channel = UniqueFd(pair[0]), .life = {}};
  UniqueFd theirs(pair[1]);
  std::array<int, 2> line{};
  if (::pipe2(line.data(), O_CLOEXEC) != 0) {
    return fail_errno("pipe");
  }
  child.life.reset(line[0]);
  UniqueFd their_life(line[1]);
  child.pid = ::fork();
  if (child.pid < 0) {
    return fail_errno("fork");
  }
  if (child.pid == 0) {
    child.channel.reset();
    child.life.reset();
    ours.lock.reset();
    ours.directory_lock.reset();
    if (supervisor != nullptr) {
      supervisor->close_descriptors();
    }
    std::exit(guarded_worker(facts, std::move(theirs), std::move(their_life), predecessors));
  }
  return child;
}

std::string how_ended(pid_t pid, std::optional<int> status) {
  const std::string worker = "worker " + std::to_string(pid);
  if (!status) {
    return worker + " was killed, and the kernel has not ended it yet";
  }
  return worker + (WIFSIGNALED(*status)
                       ? " was killed by signal " + std::to_string(WTERMSIG(*status))
                       : " ended with " + std::to_string(WEXITSTATUS(*status)));
}

// Retries a failed fork, because programs wait for the successor.
Result<Child> fork_successor(const Facts& facts, InstanceDirectory& ours, Supervisor& supervisor,
                             const Predecessors& predecessors) {
  constexpr int most_tries = 300;  // 30 s
  for (int tries = 1;; ++tries) {
    auto child = fork_worker(facts, ours, &supervisor, predecessors);
    if (child || tries == most_tries) {
      return child;
    }
    if (tries == 1) {
      log::warn("event=no_worker reason=\"{}\" note=\"efsd retries for 30 s\"",
                describe(child.error()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

// Keeps the store and the path to it, because the store may hold the only copy of the results. The
// removal succeeds only if no store is mounted.
void give_up(const Arguments& arguments, InstanceDirectory& made, const std::string& reason) {
  struct stat st{};
  const bool no_store =
      ::fstatat(made.directory.get(), image::manifest_name, &st, AT_SYMLINK_NOFOLLOW) != 0 &&
      ::unlinkat(made.directory.get(), "store", AT_REMOVEDIR) == 0;
  if (no_store) {
    remove_instance_directory(made, arguments.name);
  }
  const std::string advice =
      no_store ? "its buffer was empty: start it again"
               : config::start_command(arguments.job_file, arguments.start_options) +
                     " continues with its buffer; efs salvage " + arguments.name +
                     " exports the results; efs clean " + arguments.name + " removes it";
  log::error("event=given_up reason=\"{}\" directory=\"{}/{}\" store={} advice=\"{}\"", reason,
             arguments.runtime_directory, arguments.name, no_store ? "none here" : "kept", advice);
}

Supervisor supervisor_of(const Facts& facts, InstanceDirectory& made) {
  return Supervisor(
      {.uid = facts.user.uid,
       .gid = facts.user.gid,
       .instance = UniqueFd(::dup(made.directory.get())),
       .store = std::move(made.store),
       .fuse_device = UniqueFd(facts.privileged ? ::open("/dev/fuse", O_RDWR | O_CLOEXEC) : -1),
       .source = source_of(facts.arguments, facts.mount),
       .privileged = facts.privileged,
       .keep_store = made.was_there,
       .door = facts.kept.door ? facts.kept.door->descriptor() : -1});
}

// Serves the worker until it is gone. Returns its status; nullopt: it was killed and is not gone
// yet.
std::optional<int> serve_worker(Supervisor& supervisor, Child& child) {
  WorkerWatch watch(child.pid, child.life.get());
  (void)supervisor.serve(child.channel.get(), &watch);
  child.channel.reset();
  const std::optional<int> status = watch.reap();
  if (!status) {
    log::warn(
        "event=worker_not_gone pid={} note=\"it was killed, and the kernel has not ended it yet; a "
        "successor does not wait\"",
        child.pid);
  }
  return status;
}

// The end of the last worker.
struct LastWorker {
  std::optional<int> status;
  // the worker exited by itself, with or without success; false: it died and no successor runs
  bool ended = false;
};

// Serves the worker and its successors. On return `child` is the last of them.
LastWorker serve_workers(const Facts& facts, InstanceDirectory& made, Supervisor& supervisor,
                         Child& child) {
  RestartPolicy policy;
  Predecessors predecessors;
  while (true) {
    const std::optional<int> status = serve_worker(supervisor, child);
    const auto left = supervisor.left();
    // Exit code of the first worker: also a failed start has cleaned up, mounted or not. A
    // successor exits with a nonzero code if it could not take over.
    const bool ended =
        status && WIFEXITED(*status) && (WEXITSTATUS(*status) == 0 || predecessors.count == 0);
    const LastWorker last{.status = status, .ended = ended};
    if (ended || left == Supervisor::ShutdownState::nothing) {
      return last;
    }
    predecessors = {.count = predecessors.count + 1,
                    .last = how_ended(child.pid, status),
                    .stop_is_unusual = supervisor.stop_is_unusual()};
    const auto pause = policy.died(supervisor.take_progress(), RestartPolicy::Clock::now());
    if (!pause) {
      return last;
    }
    std::this_thread::sleep_for(*pause);
    auto next = fork_successor(facts, made, supervisor, predecessors);
    if (!next) {
      return last;
    }
    child = std::move(*next);
  }
}

int supervise(Facts& facts, InstanceDirectory made, Child child) {
  Arguments& arguments = facts.arguments;
  // the worker handles these signals
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    ::signal(signal, SIG_IGN);
  }
  leave_starters_output(arguments.ready_fd);
  if (arguments.ready_fd >= 0) {
    ::close(std::exchange(arguments.ready_fd, -1));
  }
  Supervisor supervisor = supervisor_of(facts, made);
  if (const Status dropped = drop_privilege(facts.user); !dropped) {
    log::error("event=supervisor_failed reason=\"{}\"", describe(dropped.error()));
    // a supervisor with too many rights does not answer requests, so the worker gives up
    child.channel.reset();
  }
  // The log is opened with the user's file rights, because the directory belongs to the user. The
  // worker reports errors to the starter.
  set_up_any_log(arguments.log_file, facts.directory(), "info");
  const LastWorker last = serve_workers(facts, made, supervisor, child);
  supervisor.clean_up();
  supervisor.let_go_of_stores();
  if (facts.privileged) {
    AsRoot::become(0);
  }
  if (!last.ended) {
    give_up(arguments, made, how_ended(child.pid, last.status));
    return 1;
  }
  if (supervisor.keeps_store()) {
    leave_instance_directory(made);
  } else {
    remove_instance_directory(made, arguments.name);
  }
  return WEXITSTATUS(*last.status);
}

// `only`: --version or --help.
int print_about(std::string_view only) {
  std::puts(
      only == "--version"
          ? "efsd " EFS_VERSION
          : "efsd serves an instance of efs. `efs start` and `efs run` start it. See efsd(8).");
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) {
    return 0;
  }
  std::perror("efsd: cannot write to standard output");
  return 1;
}

Status check_rights(const Arguments& arguments, bool privileged) {
  if (!privileged && !arguments.user.empty()) {
    return fail(EPERM,
                "--user " + arguments.user + ": only root may start an instance for another user");
  }
  if (privileged && !may_mount()) {
    return fail(EPERM,
                "root has no CAP_SYS_ADMIN here and cannot mount; start the container with that "
                "capability, or start efs as an ordinary user");
  }
  return {};
}

Result<User> find_job_user(const Arguments& arguments, bool privileged) {
  return find_user(privileged && !arguments.user.empty() ? arguments.user
                                                         : std::to_string(::geteuid()));
}

// Tells the starter the reason of a failure; without a starter, standard error. Returns the exit
// code.
int refuse_aloud(const Arguments& arguments, const Error& error) {
  if (arguments.ready_fd < 0) {
    std::fprintf(stderr, "efsd: %s\n", printable(describe(error)).c_str());
  }
  return refuse(arguments, error);
}

}  // namespace

int efsd(int argc, char** argv) {
  if (const std::string_view only = argc == 2 ? argv[1] : "";
      only == "--version" || only == "--help") {
    return print_about(only);
  }
  auto arguments = parse_arguments(argc, argv);
  if (!arguments) {
    std::fprintf(stderr, "efsd: %s\n", printable(describe(arguments.error())).c_str());
    return 2;
  }
  (void)log::setup("", arguments->debug ? "debug" : "warn");
  auto mount = config::parse_mount_options(arguments->options);
  if (!mount) {
    return refuse_aloud(*arguments, mount.error());
  }
  leave_starters_directory(*arguments);
  const bool privileged = ::geteuid() == 0;
  if (const Status allowed = check_rights(*arguments, privileged); !allowed) {
    return refuse_aloud(*arguments, allowed.error());
  }
  auto user = find_job_user(*arguments, privileged);
  if (!user) {
    return refuse_aloud(*arguments, user.error());
  }
  auto opens = fs::OpenTable::make();
  if (!opens) {
    return refuse_aloud(*arguments, opens.error());
  }
  auto made = make_instance_directory(arguments->runtime_directory, arguments->name, *user);
  if (!made) {
    return refuse_aloud(*arguments, made.error());
  }
  // the worker reports an error if the files could not be created
  Facts facts{.arguments = std::move(*arguments),
              .user = std::move(*user),
              .privileged = privileged,
              .mount = std::move(*mount),
              .kept = {.files = ConfigMemfds::make().value_or(ConfigMemfds{}),
                       .figures = make_kept_figures(),
                       .door = make_door(),
                       .opens = std::move(*opens)}};
  auto child = fork_worker(facts, *made, nullptr, {});
  if (!child) {
    return refuse_aloud(facts.arguments, child.error());
  }
  return supervise(facts, std::move(*made), std::move(*child));
}

}  // namespace efs::daemon
