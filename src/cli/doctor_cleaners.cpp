// SPDX-License-Identifier: BSD-3-Clause
// Finds programs that remove files from a store: systemd-tmpfiles(8) by its rules, and
// systemd-logind(8) at a logout.
#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string_view>

#include "cli/doctor.hpp"

namespace efs::cli {
namespace {

namespace files = std::filesystem;

// Returns the files in the order of their names. A file replaces one of the same name in a later
// directory.
std::vector<files::path> configuration(const std::vector<files::path>& directories) {
  std::map<std::string, files::path> found;
  for (const auto& directory : directories) {
    std::error_code problem;
    for (files::directory_iterator it(directory, problem), end; !problem && it != end;
         it.increment(problem)) {
      if (it->path().extension() == ".conf") {
        found.try_emplace(it->path().filename(), it->path());
      }
    }
  }
  std::vector<files::path> paths;
  for (const auto& [name, path] : found) {
    paths.push_back(path);
  }
  return paths;
}

std::string text_of(const files::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Does the pattern match the directory or one of its parents?
bool covers(const std::string& pattern, const files::path& directory) {
  for (files::path at = directory;; at = at.parent_path()) {
    if (::fnmatch(pattern.c_str(), at.c_str(), FNM_PATHNAME) == 0) {
      return true;
    }
    if (!at.has_relative_path()) {
      return false;
    }
  }
}

bool is_excluded(const std::vector<CleaningRule>& rules, const files::path& directory) {
  const files::path store = directory / "efs-0-job";
  return std::ranges::any_of(rules, [&](const CleaningRule& rule) {
    return rule.type == 'x' && covers(rule.path, store);
  });
}

}  // namespace

std::vector<CleaningRule> parse_cleaning(const std::string& text) {
  std::vector<CleaningRule> rules;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string type, path, mode, user, group, age;
    if (!(words >> type >> path) || type.front() == '#') {
      continue;
    }
    words >> mode >> user >> group >> age;
    while (path.size() > 1 && path.ends_with('/')) {
      path.pop_back();
    }
    rules.push_back({.type = type.front(), .path = path, .age = age == "-" ? "" : age});
  }
  return rules;
}

Findings judge_cleaning(const std::string& what, const std::string& directory,
                        const std::vector<CleaningRule>& rules) {
  constexpr std::string_view cleaning = "dDevqQ";
  if (is_excluded(rules, directory)) {
    return {};
  }
  for (const auto& rule : rules) {
    if (rule.age.empty() || !cleaning.contains(rule.type) || !covers(rule.path, directory)) {
      continue;
    }
    return {{Level::warning, what,
             "systemd-tmpfiles removes files older than " + rule.age + " from " + rule.path +
                 ": it skips the locked store of a running instance, and removes that of a dead "
                 "instance before its export",
             "exclude the stores in /etc/tmpfiles.d/efs.conf: x " + directory + "/efs-*"}};
  }
  return {};
}

Findings judge_logout(const std::string& settings, bool is_in_shared_memory) {
  std::map<std::string, std::string> values{{"RemoveIPC", "yes"}, {"KillUserProcesses", "no"}};
  std::istringstream lines(settings);
  for (std::string line; std::getline(lines, line);) {
    if (const auto sign = line.find('=');
        sign != std::string::npos && values.contains(line.substr(0, sign))) {
      values[line.substr(0, sign)] = line.substr(sign + 1);
    }
  }
  const auto is_on = [&](const char* key) {
    return values[key] == "yes" || values[key] == "true" || values[key] == "1" ||
           values[key] == "on";
  };
  Findings found;
  if (is_in_shared_memory && is_on("RemoveIPC")) {
    found.push_back(
        {Level::warning, "logind, RemoveIPC",
         "when the last session of a user ends, systemd-logind removes all files of this user "
         "below /dev/shm, and with them the stores of instances that the user has started",
         "set RemoveIPC=no in /etc/systemd/logind.conf, let root start the instances (a store in "
         "memory is then a tmpfs of its own), or run loginctl enable-linger for the user"});
  }
  if (is_on("KillUserProcesses")) {
    found.push_back({Level::warning, "logind, KillUserProcesses",
                     "when a session ends, systemd-logind kills its processes, and with them the "
                     "instances that were started in it",
                     "set KillUserProcesses=no in /etc/systemd/logind.conf, or start instances by "
                     "systemd-run --user --scope with loginctl enable-linger"});
  }
  return found;
}

Findings examine_cleaning(const std::string& what, const std::string& directory) {
  std::vector<CleaningRule> rules;
  for (const auto& path :
       configuration({"/etc/tmpfiles.d", "/run/tmpfiles.d", "/usr/lib/tmpfiles.d"})) {
    std::ranges::move(parse_cleaning(text_of(path)), std::back_inserter(rules));
  }
  return judge_cleaning(what, directory, rules);
}

Findings examine_logout(bool is_in_shared_memory) {
  std::error_code problem;
  if (!files::is_directory("/run/systemd/seats", problem)) {
    return {};  // logind does not run
  }
  std::string settings = text_of("/etc/systemd/logind.conf");
  for (const auto& path : configuration({"/etc/systemd/logind.conf.d", "/run/systemd/logind.conf.d",
                                         "/usr/lib/systemd/logind.conf.d"})) {
    settings += "\n" + text_of(path);
  }
  return judge_logout(settings, is_in_shared_memory);
}

}  // namespace efs::cli
