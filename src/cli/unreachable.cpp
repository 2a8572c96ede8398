// SPDX-License-Identifier: BSD-3-Clause
// Finds mounted instances whose directory or control socket was removed: a logout removes
// $XDG_RUNTIME_DIR. No verb can connect to them, so efs finds them by the command lines of their
// daemons. A daemon without a mount does not count, because it may be starting or ending.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ranges>
#include <sstream>

#include "base/mounts.hpp"
#include "base/text.hpp"
#include "cli/cli.hpp"

namespace efs::cli {
namespace {

std::vector<std::string> command_line_of(const std::filesystem::path& process) {
  std::ifstream file(process / "cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) {
    words.push_back(word);
  }
  return words;
}

// Any caller can choose a command line, even that of a set-user-ID program, whose effective uid is
// root's. The executable and the real uid cannot be forged.
bool is_daemon_of_caller(const std::filesystem::path& process) {
  std::error_code problem;
  const std::string program =
      std::filesystem::read_symlink(process / "exe", problem).filename().string();
  if (problem || (program != "efsd" && program != "efsd (deleted)")) {
    return false;
  }
  std::ifstream status(process / "status");
  for (std::string line; std::getline(status, line);) {
    unsigned real = 0, effective = 0;
    if (std::sscanf(line.c_str(), "Uid: %u %u", &real, &effective) == 2) {
      return real == ::geteuid() && effective == ::geteuid();
    }
  }
  return false;
}

// Returns the value of an option that launch() passes; "": absent.
std::string value_of(const std::vector<std::string>& words, std::string_view option) {
  const auto at = std::ranges::find(words, option);
  return at == words.end() || std::next(at) == words.end() ? "" : *std::next(at);
}

// Waits a moment, because a successor of a worker recreates the socket.
bool has_lost_its_socket(const std::string& directory) {
  constexpr int tries = 20;
  struct stat st{};
  for (int i = 0; i < tries; ++i) {
    if (::lstat((directory + "/control.sock").c_str(), &st) == 0 ||
        (errno != ENOENT && errno != ENOTDIR)) {
      return false;
    }
    if (!control::is_alive(directory)) {
      return true;
    }
    ::usleep(50'000);
  }
  return true;
}

bool is_mount_of_efs(const std::string& point) {
  const auto mounts = efs_mounts();
  return std::ranges::find(mounts, point, &EfsMount::point) != mounts.end();
}

void note(std::vector<UnreachableInstance>& found, const std::vector<std::string>& words,
          pid_t pid) {
  const std::string directory = value_of(words, "--runtime-dir") + "/" + value_of(words, "--name");
  const auto known = std::ranges::find(found, directory, &UnreachableInstance::directory);
  if (known != found.end()) {
    return known->processes.push_back(pid);
  }
  const std::string mount = value_of(words, "--mount-dir");
  if (!is_mount_of_efs(mount) || !has_lost_its_socket(directory)) {
    return;
  }
  found.push_back({.name = value_of(words, "--name"),
                   .directory = directory,
                   .mount = mount,
                   .job_file = value_of(words, "--config"),
                   .results_dir = value_of(words, "--results-dir"),
                   .processes = {pid}});
}

bool is_meant(const UnreachableInstance& instance, const std::string& which) {
  const bool is_found_by_name = std::filesystem::path(instance.directory).parent_path() ==
                                control::runtime_directory(::geteuid());
  if (which == instance.name || which.empty()) {
    return is_found_by_name;
  }
  std::error_code problem;
  const auto path = std::filesystem::absolute(which, problem).lexically_normal();
  if (problem) {
    return false;
  }
  // Compares the mount point as text, because an access would reach the daemon. The name of a
  // user's store contains the uid and the instance's name.
  const std::string store = "efs-" + std::to_string(::geteuid()) + "-" + instance.name;
  return path == instance.mount ||
         (path.has_filename() ? path.filename() : path.parent_path().filename()) == store ||
         std::filesystem::equivalent(path, instance.job_file, problem);
}

}  // namespace

std::vector<UnreachableInstance> unreachable_instances(const std::string& which) {
  std::vector<UnreachableInstance> found;
  std::error_code problem;
  for (std::filesystem::directory_iterator it("/proc", problem), end; !problem && it != end;
       it.increment(problem)) {
    const pid_t pid = std::atoi(it->path().filename().c_str());
    if (pid <= 0 || !is_daemon_of_caller(it->path())) {
      continue;
    }
    const auto words = command_line_of(it->path());
    if (value_of(words, "--name").empty()) {
      continue;
    }
    note(found, words, pid);
  }
  std::erase_if(found,
                [&](const UnreachableInstance& instance) { return !is_meant(instance, which); });
  return found;
}

std::string text_of(const UnreachableInstance& instance) {
  struct stat st{};
  const bool is_there = ::lstat(instance.directory.c_str(), &st) == 0;
  std::string text =
      instance.name + " runs, and efs cannot reach it: " +
      (is_there ? "its socket " + instance.directory + "/control.sock has been removed"
                : "its directory " + instance.directory +
                      " has been removed, as a logout removes $XDG_RUNTIME_DIR") +
      ". Unmount it: ";
  text += std::string(::geteuid() == 0 ? "umount " : "fusermount3 -u ") + as_word(instance.mount) +
          " ends it as efs stop does";
  if (instance.results_dir.empty()) {
    return text;
  }
  text += ", and exports its results to " + instance.results_dir +
          ". The receipt there, efs-receipt-" + instance.name +
          ".json, lists the results that are not exported; to try again: kill -TERM";
  for (const pid_t pid : instance.processes) {
    text += " " + std::to_string(pid);
  }
  return text;
}

Status refuse_unreachable(const std::string& which) {
  const auto found = unreachable_instances(which);
  return found.empty() ? Status{} : fail(EHOSTUNREACH, text_of(found.front()));
}

}  // namespace efs::cli
