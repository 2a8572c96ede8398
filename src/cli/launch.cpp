// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <ranges>
#include <thread>

#include "base/text.hpp"
#include "cli/cli.hpp"
#include "cli/daemon_program.hpp"
#include "config/mount_options.hpp"
#include "config/read_file.hpp"
#include "config/start_command.hpp"
#include "control/asking.hpp"
#include "control/end_watch.hpp"

extern char** environ;

namespace efs::cli {

namespace replies = control::replies;

namespace {

// Root takes no path from another user's job file: only the site file may name the queue for it.
std::string trusted_queue(const JobArguments& a, const config::JobConfig& config) {
  const bool own = ::geteuid() != 0 || a.user.empty();
  const bool of_site = std::ranges::any_of(config.effective, [](const config::EffectiveValue& v) {
    return v.key == "interleaving" && v.source == config::Source::site;
  });
  return own || of_site ? config.interleaving : "";
}

constexpr int ready_fd = 3;  // the descriptor of the daemon for its ready message

// Returns the path that validation made absolute, or `value`.
std::string path_or(const config::JobConfig& config, const std::string& key,
                    const std::string& value) {
  const auto is_it = [&](const config::EffectiveValue& v) {
    return v.section == "global-settings" && v.key == key && v.value.starts_with("/");
  };
  const auto effective = std::ranges::find_if(config.effective, is_it);
  return effective != config.effective.end() ? effective->value : value;
}

// Returns the options of the command line that a user must repeat to continue with the instance
// elsewhere or later. Paths are absolute because they are validated.
std::vector<std::string> start_options(const JobArguments& a, const config::JobConfig& config) {
  std::vector<std::string> words;
  const auto add = [&](const char* option, bool is_given, const std::string& value) {
    if (is_given && !value.empty()) {
      words.insert(words.end(), {option, value});
    }
  };
  const auto& given = a.overrides;
  add("-u", true, a.user);
  add("-n", given.name.has_value(), config.name);
  add("-r", given.root_dir.has_value(), config.root_dir);
  add("-m", given.mount_dir.has_value(), config.mount_dir);
  add("--results-dir", given.results_dir.has_value(), config.results_dir);
  add("-l", given.log_file.has_value(), config.log_file);
  add("--trace", given.trace.has_value(), config.trace);
  for (const auto& [key, value] : given.settings) {
    add("--set", true, key + "=" + path_or(config, key, value));
  }
  add("-o", true, a.options);
  add("--node", true, a.node);
  const char* everywhere = std::getenv("EFS_INTERLEAVING");
  if (!a.interleaving.empty() && (everywhere == nullptr || a.interleaving != everywhere)) {
    add("--interleaving", true, std::filesystem::absolute(a.interleaving).string());
  }
  return words;
}

// Returns the path under which another process can open the job file; "-": there is no such path.
std::string job_file_of(const JobArguments& a) {
  return a.text ? config::standard_input : std::filesystem::absolute(a.job_file).string();
}

// Creates a file in memory with the text of a job file that cannot be read twice.
Result<UniqueFd> file_of(const std::string& text) {
  UniqueFd fd(::memfd_create("efs-job-file", MFD_CLOEXEC));
  if (!fd) {
    return fail_errno("memory file");
  }
  for (std::size_t done = 0; done < text.size();) {
    const auto n =
        ::pwrite(fd.get(), text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno != EINTR) {
      return fail_errno("memory file");
    }
    if (n > 0) {
      done += static_cast<std::size_t>(n);
    }
  }
  return fd;
}

std::vector<std::string> daemon_command(const JobArguments& a, const config::JobConfig& config) {
  std::vector<std::string> words{daemon_program(),
                                 "--config",
                                 job_file_of(a),
                                 "--name",
                                 config.name,
                                 "--runtime-dir",
                                 control::runtime_directory(::geteuid()),
                                 "--ready-fd",
                                 std::to_string(ready_fd)};
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) {
      words.insert(words.end(), {option, value});
    }
  };
  // These paths are absolute because they are validated. The daemon leaves the working directory.
  add("--root-dir", config.root_dir);
  add("--mount-dir", config.mount_dir);
  add("--results-dir", config.results_dir);
  add("--log-file", config.log_file);
  add("--options", a.options);
  add("--user", a.user);
  add("--node", a.node);
  if (const auto memory = job_memory_of(a)) {
    add("--memory", std::to_string(*memory));
  }
  add("--interleaving", a.interleaving.empty()
                            ? trusted_queue(a, config)
                            : std::filesystem::absolute(a.interleaving).string());
  for (const auto& [key, value] : a.overrides.settings) {
    words.insert(words.end(), {"--set", key + "=" + value});
  }
  if (a.overrides.trace) {
    words.insert(words.end(), {"--set", "trace=" + config.trace});
  }
  if (a.debug) {
    words.push_back("--debug");
  }
  for (const auto& [name, value] : config.circumstances.variables) {
    words.insert(words.end(), {"--start-variable", name});
  }
  for (auto& word : start_options(a, config)) {
    words.insert(words.end(), {"--start-option", std::move(word)});
  }
  return words;
}

// Starts the daemon in its own session, so that a signal to the starter's process group does not
// end the instance. The daemon inherits only `told`, as ready_fd: otherwise a lock or a pipe of a
// script would stay open until the job ends. Until the daemon is ready `told` is also its standard
// error, because the loader may print why the daemon cannot start. `input`: the daemon's standard
// input; -1: none.
Result<pid_t> spawn(const std::vector<std::string>& words, bool foreground, int told, int input) {
  std::vector<char*> argv;
  for (const auto& word : words) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  if (!foreground) {
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  }
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  if (input < 0) {
    ::posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  } else {
    ::posix_spawn_file_actions_adddup2(&files, input, 0);
  }
  if (!foreground) {
    // The caller's pipe must not stay open until the daemon ends.
    ::posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    ::posix_spawn_file_actions_adddup2(&files, told, STDERR_FILENO);
  }
  ::posix_spawn_file_actions_adddup2(&files, told, ready_fd);
  ::posix_spawn_file_actions_addclosefrom_np(&files, ready_fd + 1);
  pid_t pid = 0;
  const int problem = ::posix_spawnp(&pid, argv[0], &files, &attributes, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
  if (problem != 0) {
    return std::unexpected(cannot_start(words[0], problem));
  }
  return pid;
}

// A store in memory of an earlier instance may grow but never shrinks (daemon/memory_stores.hpp).
// Returns a warning if its size differs from the job file's, else "".
std::string text_of_capacity(const config::JobConfig& config, const replies::Status& status) {
  constexpr std::uint64_t rounding = 1u << 20;  // bytes: a store consists of whole pages
  std::uint64_t declared = 0;
  for (const auto& backend : config.backends) {
    if (!backend.capacity) {
      return "";
    }
    declared += *backend.capacity;
  }
  const auto has = status.store ? status.store->capacity : 0;
  if (declared == 0 || has <= declared + rounding) {
    return "";
  }
  return "its store was left with a capacity of " + format_bytes(has) +
         " and does not get smaller: that of the job file, " + format_bytes(declared) +
         ", has no effect";
}

// Prints the resources that were not imported although they exist or existed. With --json the
// document contains them.
void tell_skipped(World& world, const std::string& name, const replies::StagedIn& in) {
  constexpr std::size_t most = 20;
  if (world.json || in.skipped == 0) {
    return;
  }
  for (const auto& skip : in.skipped_first | std::views::take(most)) {
    world.err << "efs: " << escaped(name) << ": skipped " << escaped(skip.path) << " ("
              << printable(skip.reason) << ")\n";
  }
  if (in.skipped > most) {
    world.err << "efs: " << escaped(name) << ": skipped " << in.skipped
              << " names in all; the receipt will have them\n";
  }
}

// The daemon died without a message. Returns the state of the instance and the commands that
// continue.
Error lost_daemon(const JobArguments& arguments, const config::JobConfig& config,
                  const control::Instance& instance, int status) {
  std::vector<std::string> words = start_options(arguments, config);
  for (const auto& [name, value] : config.circumstances.variables) {
    words.insert(words.begin(), name + "=" + value);
  }
  const std::string again = config::start_command(job_file_of(arguments), words),
                    log = config.log_file.empty() ? instance.directory + "/efsd.log"
                                                  : config.log_file;
  const auto manifest = manifest_of(instance);
  if (config::is_of_batch_job(config.name)) {
    return {EIO,
            config.name + ": its daemon died while it staged in; submit the job again" +
                (::access(log.c_str(), F_OK) == 0 ? ". How it died is in its log, " + log : "")};
  }
  const std::string left = manifest ? "Its buffer is not lost (" + manifest->store +
                                          "). Continue: " + again + "; or remove it: efs clean " +
                                          config.name
                                    : "Its buffer was empty. Start it again: " + again;
  return {EIO, config.name + ": its daemon died while it staged in: efsd " + how_ended(status) +
                   ". " + left +
                   (::access(log.c_str(), F_OK) == 0 ? ". How it died is in its log, " + log : "")};
}

// Returns the daemon's own message unchanged. Adds the exit status to a message of the loader or of
// a library.
Error why_not_ready(const std::string& said, int status) {
  constexpr int by_loader = 127;
  const bool has_told = WIFEXITED(status) && WEXITSTATUS(status) != by_loader;
  const std::string text = has_told ? said : "efsd " + how_ended(status) + ": " + said;
  return {EIO, text, text.contains('\n')};
}

// An interrupted start keeps its name until its daemon has noticed the interruption and has cleaned
// up.
void await_given_up_start(const config::JobConfig& config) {
  constexpr std::chrono::milliseconds to_notice{600}, between_looks{50};
  constexpr std::chrono::seconds longest_end{15};
  using Clock = std::chrono::steady_clock;
  control::Instance instance{
      .name = config.name, .directory = {}, .owner = ::geteuid(), .alive = true};
  instance.directory = control::runtime_directory(::geteuid()) + "/" + config.name;
  const auto end = Clock::now() + to_notice;
  while (control::is_alive(instance.directory) && Clock::now() < end) {
    struct stat st{};
    if (::stat(instance.directory.c_str(), &st) == 0) {
      instance.owner = st.st_uid;
    }
    const auto status = replies::from_json<replies::Status>(status_of(instance));
    const std::string& state = status.progress.state;
    if (state == "failed" || status.given_up) {
      const control::EndWatch ending(instance.directory, status.job.supervisor_pid);
      (void)ending.wait(longest_end);
      return;
    }
    if (state != "planning" && state != "staging-in") {
      return;
    }
    std::this_thread::sleep_for(between_looks);
  }
}

// Reports why the job may not start here, and returns the exit code.
std::optional<int> refuse_start(World& world, const JobArguments& arguments,
                                const config::JobConfig& config) {
  const auto options = config::parse_mount_options(arguments.options);
  if (!options) {
    return report(world, options.error(), exit_usage);
  }
  if (const Status fits = config::check_mount_options(*options, config); !fits) {
    return report(world, fits.error(), exit_usage);
  }
  if (!arguments.user.empty() && ::geteuid() != 0) {
    return report(world, {EPERM, "--user " + arguments.user +
                                     ": only root may start an instance for another user"});
  }
  for (const auto& place : {config.name, config.mount_dir}) {
    if (const Status reachable = refuse_unreachable(place); !reachable) {
      return report(world, reachable.error());
    }
  }
  return std::nullopt;
}

// A daemon that has reported that it is ready, or has failed.
struct StartedDaemon {
  UniqueFd ready, input;  // open until launch() returns
  pid_t pid = 0;
  std::string said;
};

Result<StartedDaemon> start_daemon(const JobArguments& arguments, const config::JobConfig& config) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return fail(errno, "pipe");
  }
  StartedDaemon daemon{.ready = UniqueFd(ends[0])};
  UniqueFd told(ends[1]);
  auto input = arguments.text ? file_of(*arguments.text) : Result<UniqueFd>(UniqueFd());
  if (!input) {
    return std::unexpected(input.error());
  }
  daemon.input = std::move(*input);
  const auto pid = spawn(daemon_command(arguments, config), arguments.foreground, told.get(),
                         daemon.input.get());
  told.reset();
  if (!pid) {
    return std::unexpected(pid.error());
  }
  daemon.pid = *pid;
  daemon.said = read_all(daemon.ready.get());
  while (daemon.said.ends_with('\n')) {
    daemon.said.pop_back();
  }
  return daemon;
}

bool is_ready(const std::string& said) {
  return said == "ready" || said.ends_with("\nready");
}

// Prints the losses of an earlier instance, the inputs that are missing, and a capacity that has no
// effect.
void tell_start(World& world, const config::JobConfig& config, const replies::Status& status) {
  if (status.lost_before) {
    world.err << "efs: " << escaped(config.name) << ": " << printable(*status.lost_before) << "\n";
  }
  tell_skipped(world, config.name, status.staged_in.value_or(replies::StagedIn{}));
  if (const std::string text = text_of_capacity(config, status); !text.empty()) {
    world.err << "efs: warning: " << escaped(config.name) << ": " << text << "\n";
  }
}

}  // namespace

std::expected<Json, int> launch(World& world, const JobArguments& arguments,
                                const config::JobConfig& config) {
  if (const auto code = refuse_start(world, arguments, config)) {
    return std::unexpected(*code);
  }
  await_given_up_start(config);
  auto daemon = start_daemon(arguments, config);
  if (!daemon) {
    return std::unexpected(report(world, daemon.error()));
  }
  std::string& said = daemon->said;
  control::Instance instance{
      .name = config.name,
      .directory = control::runtime_directory(::geteuid()) + "/" + config.name,
      .owner = ::geteuid()};
  if (!is_ready(said)) {
    const int status = await_exit(daemon->pid);
    return std::unexpected(report(world, said.empty()
                                             ? lost_daemon(arguments, config, instance, status)
                                             : why_not_ready(said, status)));
  }
  said.resize(said.size() - std::strlen("ready"));
  world.err << printable(said, true);
  // With --user the socket belongs to that user. Only root can read the directory.
  struct stat st{};
  if (::stat(instance.directory.c_str(), &st) == 0) {
    instance.owner = st.st_uid;
  }
  Result<Json> result =
      ask_until_answered(world, instance, to_json(control::requests::Wait{.starter = true}));
  if (result && replies::is_success(*result)) {
    tell_start(world, config, replies::from_json<replies::Status>(*result));
    return *result;
  }
  // The daemon has cleaned up when it has exited. If it could not be asked, it exits because the
  // connection of its starter closed.
  const int status = await_exit(daemon->pid);
  if (result) {
    return std::unexpected(report(world, error_in(*result)));
  }
  return std::unexpected(report(world, control::is_lost(result.error().code)
                                           ? lost_daemon(arguments, config, instance, status)
                                           : result.error()));
}

}  // namespace efs::cli
