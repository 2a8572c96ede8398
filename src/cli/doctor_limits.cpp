// SPDX-License-Identifier: BSD-3-Clause
// Checks limits of processes, memory, and remains of dead instances.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/memory_bound.hpp"
#include "base/mounts.hpp"
#include "base/open_files.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "cli/cli.hpp"
#include "cli/doctor.hpp"
#include "image/manifest.hpp"

namespace efs::cli {
namespace {

// for 512 open containers, files that programs have open, connections and files of imports and
// exports
constexpr rlim_t few_files = 4096;
// for 64 serving threads and as many for imports and exports, beside the job's own processes
constexpr rlim_t few_processes = 256;

std::string of_limit(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : std::to_string(limit);
}

Finding judge_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const std::string text =
      "hard limit " + of_limit(limit.rlim_max) + " (efsd raises its soft limit to it)";
  const char* remedy =
      "at least 4096: LimitNOFILE= of slurmd's unit, or nofile in /etc/security/limits.conf";
  if (limit.rlim_max < fewest_open_files) {
    return {Level::problem, "open files", text + ": no instance starts", remedy};
  }
  if (limit.rlim_max < few_files) {
    return {Level::warning, "open files", text + ": many files open at a time give EMFILE", remedy};
  }
  return {Level::ok, "open files", text, ""};
}

// Returns the smallest pids.max of this cgroup and its ancestors; 0: no limit.
std::uint64_t most_pids() {
  std::uint64_t least = 0, here = 0;
  for (const auto& group : control_groups("pids")) {
    if (std::ifstream(group.directory + "/pids.max") >> here) {
      least = least == 0 ? here : std::min(least, here);
    }
  }
  return least;
}

Finding judge_processes() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NPROC, &limit);
  const std::uint64_t group = most_pids();
  const std::string text = "limit " + of_limit(limit.rlim_max) +
                           (group == 0 ? "" : ", of the cgroup " + std::to_string(group));
  const bool few = limit.rlim_max < few_processes || (group != 0 && group < few_processes);
  if (few) {
    return {Level::warning, "processes and threads",
            text + ": efsd takes up to 64 threads, and more while it stages",
            "at least 256 beside what jobs need: TasksMax= of the unit, or nproc in "
            "/etc/security/limits.conf"};
  }
  return {Level::ok, "processes and threads", text, ""};
}

Finding judge_locked_memory() {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  return {Level::ok, "locked memory",
          "limit " +
              (limit.rlim_max == RLIM_INFINITY ? "unlimited" : format_bytes(limit.rlim_max)) +
              "; efs locks none",
          ""};
}

Finding judge_runtime_directory() {
  const std::string path = control::runtime_directory(::geteuid());
  struct stat st{};
  if (::lstat(path.c_str(), &st) != 0) {
    const std::string parent = std::filesystem::path(path).parent_path();
    if (::access(parent.c_str(), W_OK) == 0 || ::geteuid() == 0) {
      return {Level::ok, "runtime directory", path + ": made by the first start", ""};
    }
    return {Level::problem, "runtime directory",
            path + " is not there, and cannot be made in " + parent,
            "make it, or name another with EFS_RUNTIME_DIR"};
  }
  if (!S_ISDIR(st.st_mode)) {
    return {Level::problem, "runtime directory", path + " is not a directory",
            "remove it, or name another with EFS_RUNTIME_DIR"};
  }
  if (st.st_uid != ::geteuid()) {
    return {Level::problem, "runtime directory",
            path + " belongs to uid " + std::to_string(st.st_uid),
            "name one of your own with EFS_RUNTIME_DIR"};
  }
  if ((st.st_mode & 022) != 0) {
    return {Level::problem, "runtime directory", path + " can be changed by others",
            "chmod go-w " + path};
  }
  return {Level::ok, "runtime directory", path, ""};
}

Finding judge_instance(const control::Instance& instance) {
  const auto remains = control::replies::from_json<control::replies::Remains>(status_of(instance));
  const std::string what = "instance " + instance.name;
  if (remains.state == "kept") {
    return {Level::ok, what, "was kept for another start; it holds memory or space", ""};
  }
  return {Level::warning, what, "does not run: " + remains.error.value_or(""),
          ways_on_from(remains)};
}

// Finds efs mounts without a daemon or with a hanging one. Root checks the mounts of all users,
// other callers their own.
Findings dead_mounts() {
  Findings found;
  for (const auto& [point, owner] : efs_mounts()) {
    if (!answers(point, patience)) {
      found.push_back(silent("mount " + as_word(point), point));
    } else if (is_dead_mount(point, owner)) {
      found.push_back({Level::warning, "mount " + as_word(point),
                       "no process serves it: programs get \"Transport endpoint is not connected\"",
                       "efs clean, where its instance is listed; else umount " + as_word(point)});
    }
  }
  return found;
}

}  // namespace

std::string without_journal(const std::string& first) {
  return "a backend of the store " + as_word(first) +
         ", which is gone with the journal: its containers are unknown";
}

Findings lost_stores(const std::string& directory) {
  Findings found;
  for (const auto& [path, first] : stores_without_instance(directory)) {
    struct stat st{};
    const std::string name = as_word(path),
                      whose = ::lstat(path.c_str(), &st) != 0 || st.st_uid == ::geteuid()
                                  ? ""
                                  : "; it is of uid " + std::to_string(st.st_uid);
    if (first.empty()) {
      found.push_back({Level::warning, "store " + name, "no instance leads to it" + whose,
                       "export its contents: efs salvage --to DIRECTORY " + name +
                           "; or remove it: efs clean " + name});
    } else {
      found.push_back(
          {Level::warning, "store " + name, without_journal(first) + whose, "rm -r " + name});
    }
  }
  return found;
}

Findings examine_limits() {
  return {judge_files(), judge_processes(), judge_locked_memory(), judge_runtime_directory()};
}

Findings examine_leftovers() {
  Findings found;
  const auto instances = control::list_instances();
  for (const auto& instance : instances) {
    if (!instance.alive) {
      found.push_back(judge_instance(instance));
    }
  }
  for (const auto& instance : unreachable_instances("")) {
    found.push_back({Level::warning, "instance " + instance.name, text_of(instance), ""});
  }
  add_findings(found, lost_stores("/dev/shm"));
  add_findings(found, dead_mounts());
  if (found.empty()) {
    found.push_back({Level::ok, "leftovers", "no dead instance, no dead mount", ""});
  }
  return found;
}

}  // namespace efs::cli
