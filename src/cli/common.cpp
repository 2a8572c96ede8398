// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "base/json_text.hpp"
#include "base/text.hpp"
#include "base/user.hpp"
#include "cli/cli.hpp"
#include "cli/output.hpp"
#include "cli/slurm_site.hpp"
#include "config/start_command.hpp"
#include "control/asking.hpp"

namespace efs::cli {

Json error_document(const Error& error, int code) {
  Json document{{"ok", false}, {"code", error.code}, {"error", describe(error)}, {"exit", code}};
  if (error.lines) {
    document["lines"] = true;
  }
  return document;
}

void print_document(World& world, const Json& document) {
  world.out << json_to_text(document) << "\n" << std::flush;
}

int report(World& world, const Error& error, int code) {
  if (world.json) {
    print_document(world, error_document(error, code));
  } else {
    world.err << "efs: " << printable(describe(error), error.lines) << "\n";
  }
  return code;
}

std::optional<std::uint64_t> job_memory_of(const JobArguments& arguments) {
  const auto given = config::parse_size(arguments.memory);
  return given ? given : config::memory_of_batch_job(config::surroundings_of_process({}));
}

namespace {

// Returns the mount-dir of every batch job, independent of its job file, as Slurm's plugin passes
// it to check and plan.
std::string mount_dir_of_site() {
  const std::string mount = site_argument("mount");
  return (mount.empty() ? "/run/efs-jobs" : mount) + "/job";
}

// Reports the problems of a job file as text or as JSON, as the World requires.
void report_problems(World& world, const std::string& file, const config::Problems& problems) {
  if (!world.json) {
    for (const auto& p : problems) {
      world.err << printable(to_string(p, file)) << "\n";
    }
    return;
  }
  Json listed = Json::array();
  for (const auto& p : problems) {
    listed.push_back(
        {{"line", p.line}, {"column", p.column}, {"text", p.text}, {"suggestion", p.suggestion}});
    if (!p.origin.empty()) {
      listed.back()["origin"] = p.origin;
    }
  }
  print_document(world,
                 {{"ok", false}, {"file", file}, {"problems", listed}, {"exit", exit_usage}});
}

}  // namespace

std::expected<config::JobConfig, int> load_job(World& world, const JobArguments& arguments) {
  const auto user =
      find_user(arguments.user.empty() ? std::to_string(::geteuid()) : arguments.user);
  if (!user) {
    return std::unexpected(report(world, user.error()));
  }
  config::Overrides overrides = arguments.overrides;
  if (arguments.at_submission && !overrides.mount_dir) {
    overrides.mount_dir = mount_dir_of_site();
  }
  const auto read = config::read_files(arguments.job_file, arguments.text);
  auto config =
      read ? config::parse_for_user(*read, arguments.job_file, overrides, *user,
                                    {.before_job = arguments.at_submission, .directory = {}})
           : std::unexpected(read.error());
  if (!config) {
    report_problems(world, arguments.job_file, config.error());
    return std::unexpected(exit_usage);
  }
  if (arguments.at_submission) {
    return *config;
  }
  config->job_memory = job_memory_of(arguments);
  const std::string other = choose_default_name(*config, user->uid);
  if (!other.empty() && !world.json) {
    world.err << "efs: another job has the name of this job file (" << escaped(other)
              << "): the instance is called " << escaped(config->name) << "\n";
  }
  return *config;
}

int as_user(World& world, const User& user, const std::function<int()>& work) {
  world.out.flush();
  world.err.flush();
  const pid_t child = ::fork();
  if (child < 0) {
    return report(world, {errno, "fork"});
  }
  if (child == 0) {
    (void)::close_range(3, ~0U, 0);
    int code = exit_failure;
    if (const Status done = become(user, true); done) {
      code = work();
    } else {
      report(world, done.error());
    }
    code = finish_output(world, code);
    world.err.flush();
    ::_exit(code);
  }
  const int status = await_exit(child);
  return WIFEXITED(status)
             ? WEXITSTATUS(status)
             : report(world, {EIO, "the process with the rights of " + user.name + " died"});
}

int as_job_user(World& world, const JobArguments& arguments, const std::function<int()>& work) {
  if (arguments.user.empty()) {
    return work();
  }
  const auto user = find_user(arguments.user);
  if (!user) {
    return report(world, user.error());
  }
  if (user->uid == ::geteuid()) {
    return work();
  }
  if (::geteuid() != 0) {
    return report(world, {EPERM, "--user " + arguments.user +
                                     ": only root may use the rights of another user"});
  }
  return as_user(world, *user, work);
}

bool is_same_path(const std::string& a, const std::string& b) {
  std::error_code problem;
  return std::filesystem::weakly_canonical(a, problem) ==
             std::filesystem::weakly_canonical(b, problem) &&
         !problem;
}

namespace {

// seconds for each instance: the daemon of another user may not answer
constexpr int status_patience = 5;

Result<control::replies::Identity> ask_identity(const control::Instance& instance) {
  const auto answer =
      control::ask_until_answered(instance, to_json(control::requests::Status{}), status_patience,
                                  {}, std::chrono::seconds(status_patience));
  if (!answer) {
    return std::unexpected(answer.error());
  }
  return control::replies::from_json<control::replies::Identity>(*answer);
}

Result<std::string> resolved(const std::string& path) {
  std::error_code problem;
  const auto whole = std::filesystem::weakly_canonical(path, problem);
  if (problem) {
    return fail(problem.value(), path);
  }
  return whole.string();
}

// `theirs` is what the instance says of itself. Another user's word is looked at with the rights of
// that user, and for a bounded time: it may lead to what only root can see, or hang.
bool names_same_file(const control::Instance& instance, const std::string& theirs,
                     const std::string& which) {
  constexpr unsigned longest = 5;  // seconds
  if (theirs.empty()) {
    return false;
  }
  std::error_code problem;
  if (theirs == std::filesystem::absolute(which, problem).lexically_normal()) {
    return true;
  }
  const pid_t caller = ::getpid();
  const auto whole = as_owner(instance.owner, [&]() -> Result<std::string> {
    if (::getpid() != caller) {
      ::alarm(longest);
    }
    return resolved(theirs);
  });
  const auto wanted = whole ? resolved(which) : std::unexpected(whole.error());
  return wanted && *whole == *wanted;
}

bool has_path(const control::Instance& instance, const std::string& which) {
  if (!instance.alive) {
    const auto manifest = manifest_of(instance);
    // Do not access the mount point itself: it may be a dead mount.
    return manifest &&
           (manifest->mount_dir == which || names_same_file(instance, manifest->job_file, which));
  }
  const auto said = ask_identity(instance);
  if (!said) {
    return false;
  }
  // efs run uses this name if the job file came from a pipe
  if (names_same_file(instance, instance.directory + "/job.yaml", which)) {
    return true;
  }
  return names_same_file(instance, said->mount, which) ||
         names_same_file(instance, said->job_file, which);
}

std::string names_of(const std::vector<control::Instance>& instances) {
  std::string text;
  for (const auto& instance : instances) {
    text += (text.empty() ? "" : ", ") + instance.name;
  }
  return text;
}

std::string states_of(const std::vector<control::Instance>& instances) {
  std::vector<control::Instance> alive, others;
  for (const auto& instance : instances) {
    (instance.alive ? alive : others).push_back(instance);
  }
  return (alive.empty() ? "none is running" : "running: " + names_of(alive)) +
         (others.empty() ? "" : "; not running: " + names_of(others));
}

// Chooses an instance if the user named none.
Result<control::Instance> only_one_there(const std::vector<control::Instance>& instances,
                                         Meant meant) {
  std::vector<control::Instance> found;
  std::ranges::copy_if(instances, std::back_inserter(found),
                       [&](const control::Instance& instance) {
                         return instance.alive == (meant == Meant::living);
                       });
  if (found.size() == 1) {
    return found.front();
  }
  if (meant == Meant::living && instances.size() == 1) {
    return instances.front();
  }
  if (meant == Meant::dead && found.empty()) {
    return fail(ENOENT, "no dead instance is there (" + states_of(instances) +
                            "); name a job file, or the directory of a store");
  }
  if (instances.empty()) {
    return fail(ENOENT, "no instance is running; start one with: efs start JOB.yaml");
  }
  return fail(EINVAL, "several instances are there, name one; " + states_of(instances));
}

// Chooses an instance if several match `which`: first among those that `meant` prefers, then among
// the others. Fails if more than one remains, because an action on the wrong instance may do harm.
Result<control::Instance> only_one_of(std::vector<control::Instance> found,
                                      const std::string& which, Meant meant) {
  const auto others = std::ranges::partition(found, [&](const control::Instance& instance) {
    return instance.alive == (meant == Meant::living);
  });
  if (others.begin() != found.begin()) {
    found.erase(others.begin(), others.end());
  }
  if (found.size() == 1) {
    return found.front();
  }
  if (found.front().name == which) {
    return fail(EINVAL, "several instances have the name " + which + ", in " + found[0].directory +
                            " and " + found[1].directory + "; name one by its mount point");
  }
  return fail(EINVAL, which + " means several instances; name one: " + names_of(found));
}

// Returns the instances that have the name `which`; if there is none, those that have the path.
// Match names first: only the owner of the runtime directory can choose the name of a directory in
// it. Then match paths that instances report, but only for existing paths: a user can make an
// instance report anything.
std::vector<control::Instance> instances_matching(const std::vector<control::Instance>& instances,
                                                  const std::string& which) {
  std::vector<control::Instance> found;
  const auto collect = [&](const auto& is_it) {
    std::ranges::copy_if(instances, std::back_inserter(found), is_it);
  };
  collect([&](const control::Instance& instance) { return instance.name == which; });
  struct stat st{};
  // true also for a dead mount
  const bool is_path =
      which.find('/') != which.npos || ::lstat(which.c_str(), &st) == 0 || errno != ENOENT;
  if (found.empty() && is_path) {
    collect([&](const control::Instance& instance) { return has_path(instance, which); });
  }
  return found;
}

}  // namespace

Result<control::Instance> find_instance(const std::string& which, Meant meant) {
  const auto instances = control::list_instances();
  if (which.empty() && std::ranges::none_of(instances, &control::Instance::alive)) {
    EFS_TRY(refuse_unreachable(which));
  }
  if (which.empty()) {
    return only_one_there(instances, meant);
  }
  auto found = instances_matching(instances, which);
  if (found.empty() && config::is_of_batch_job(which) && use_runtime_directory_of_plugin()) {
    return find_instance(which, meant);
  }
  if (std::ranges::none_of(found, &control::Instance::alive)) {
    EFS_TRY(refuse_unreachable(which));
  }
  if (found.empty()) {
    return fail(ENOENT, "no instance has the name, mount point or job file " + which + "; " +
                            states_of(instances));
  }
  auto instance = only_one_of(std::move(found), which, meant);
  struct stat st{};
  if (instance && instance->alive && ::lstat(instance->socket().c_str(), &st) != 0) {
    EFS_TRY(refuse_unreachable(instance->name));
  }
  return instance;
}

namespace {

// The instance whose mount contains a path, else those whose root-dir contains it.
struct Containing {
  std::optional<control::Instance> mounted;
  std::vector<control::Instance> below_root;
};

Containing instances_with(const std::string& path) {
  const auto is_below = [&](const std::string& top) {
    return !top.empty() && (path == top || path.starts_with(top == "/" ? top : top + "/"));
  };
  Containing found;
  for (const auto& instance : control::list_instances()) {
    const auto said = instance.alive ? ask_identity(instance) : fail(ESRCH);
    if (!said) {
      continue;
    }
    if (is_below(said->mount)) {
      found.mounted = instance;
      return found;
    }
    if (is_below(said->root_dir)) {
      found.below_root.push_back(instance);
    }
  }
  return found;
}

}  // namespace

Result<control::Instance> find_instance_for(const FileArguments& arguments) {
  // A program inside `efs run` uses the instance that it runs in.
  const char* mount = std::getenv("EFS_MOUNT");
  const std::string own =
      arguments.instance.empty() && mount != nullptr ? mount : arguments.instance;
  if (!arguments.instance.empty() || arguments.paths.empty() || arguments.paths.front()[0] != '/') {
    return find_instance(own);
  }
  const std::string& path = arguments.paths.front();
  const auto [mounted, below_root] = instances_with(path);
  if (mounted) {
    return *mounted;
  }
  if (below_root.size() == 1) {
    return below_root.front();
  }
  if (below_root.empty() || !own.empty()) {
    return find_instance(own);
  }
  return fail(EINVAL, path + " lies below the root-dir of several instances: " +
                          names_of(below_root) + "; name one with -i");
}

Error error_in(const Json& answer) {
  return control::replies::from_json<control::replies::Failure>(answer).as_error();
}

Result<Json> ask(const control::Instance& instance, const Json& request,
                 const std::function<void(const Json&)>& progress) {
  if (!instance.alive) {
    return fail(ESRCH, "the daemon of " + instance.name + " is gone");
  }
  auto client = control::connect_soon(instance, 0);
  if (!client) {
    return std::unexpected(client.error());
  }
  auto answer = client->ask(request, progress);
  if (!answer) {
    return answer;
  }
  if (!control::replies::is_success(*answer)) {
    return std::unexpected(error_in(*answer));
  }
  answer->erase("event");
  return answer;
}

int start_task(World& world, const FileArguments& arguments, const Json& request) {
  const auto instance = find_instance_for(arguments);
  if (!instance) {
    return report(world, instance.error());
  }
  const auto answer = ask(*instance, request);
  if (!answer) {
    return report(world, answer.error());
  }
  return follow_task(world, *instance, *answer, arguments.wait);
}

int follow_task(World& world, const control::Instance& instance, const Json& answer, bool waits) {
  const auto task = control::replies::from_json<control::replies::TaskStarted>(answer).task;
  if (waits) {
    return finish_task(world, instance, task);
  }
  if (world.json) {
    print_document(world, answer);
  } else {
    world.out << task << "\n";
  }
  return exit_good;
}

// The daemon reports progress several times a second. A daemon that is silent for so long hangs or
// is not an efsd.
Result<Json> ask_until_answered(World& world, const control::Instance& instance,
                                const Json& request) {
  constexpr int patience = 60;
  auto answer = control::ask_until_answered(
      instance, request, patience, [&](const Json& progress) { show_progress(world, progress); });
  end_progress(world);
  return answer;
}

std::string start_command(const control::replies::Remains& remains) {
  const auto left = remains.left_store.value_or(control::replies::LeftStore{});
  return config::start_command(left.job_file, left.start_options);
}

int await_exit(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

std::string read_all(int fd, std::size_t most) {
  std::string text;
  std::array<char, 4096> buffer{};
  while (text.size() < most) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      break;
    }
    text.append(buffer.data(), static_cast<std::size_t>(n));
  }
  return text;
}

namespace {

std::string text_of_waiting_turn(const control::replies::Turn& turn) {
  return ": waits for its turn at the PFS, " + std::to_string(turn.ahead) + " ahead" +
         (turn.wait_seconds ? ", about " + format_seconds(*turn.wait_seconds) : "");
}

// `seconds`: since the start of the staging.
std::string text_of_moved(double done, double total, double seconds) {
  if (total <= 0 || seconds <= 0) {
    return {};
  }
  const double rate = done / seconds;
  const std::string text = ": " + format_bytes(static_cast<std::uint64_t>(done)) + " (" +
                           std::to_string(static_cast<int>(100 * done / total)) + "%) in " +
                           format_seconds(seconds) + " (" +
                           format_bytes(static_cast<std::uint64_t>(rate)) + "/s)";
  return rate > 0 ? text + " " + format_seconds((total - done) / rate) + " left" : text;
}

}  // namespace

void show_progress(World& world, const Json& progress) {
  if (!world.terminal || world.json) {
    return;
  }
  const auto shown = control::replies::from_json<control::replies::Progress>(progress);
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const double seconds = shown.started > 0 ? now - shown.started : 0;
  world.err << "\r\033[K" << printable(shown.state);
  if (shown.turn && shown.turn->standing == "waiting") {
    world.err << text_of_waiting_turn(*shown.turn) << std::flush;
    return;
  }
  if (shown.note) {
    world.err << ": " << printable(*shown.note);
  }
  world.err << text_of_moved(static_cast<double>(shown.bytes_done),
                             static_cast<double>(shown.bytes_total), seconds)
            << std::flush;
}

void end_progress(World& world) {
  if (world.terminal && !world.json) {
    world.err << "\r\033[K" << std::flush;
  }
}

}  // namespace efs::cli
