// SPDX-License-Identifier: BSD-3-Clause
// Finds the file system of a batch job on this node, for verbs with --job.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/text.hpp"
#include "cli/cli.hpp"
#include "cli/slurm_site.hpp"
#include "config/start_command.hpp"

namespace efs::cli {
namespace {

namespace stdfs = std::filesystem;
constexpr const char* usual_state = "/run/efs-slurm";  // as in slurm-plugin/site.c

// Returns the names of the instances that the plugin created for this job. Each run of a job has
// its own instance.
std::vector<std::string> named_for(const std::string& job) {
  std::vector<std::string> names;
  for (const auto& instance : control::list_instances()) {
    if (config::instance_argument(instance.name) == "--job " + job) {
      names.push_back(instance.name);
    }
  }
  return names;
}

Result<std::string> only_run(const std::string& job, const std::vector<std::string>& names) {
  if (names.size() == 1) {
    return names.front();
  }
  std::string text = "several runs of job " + job + " have a file system here. Name one:";
  for (const auto& name : names) {
    text += " " + as_word(name);
  }
  return fail(EINVAL, text);
}

// Returns another job that has attached to this instance and still runs; "": none.
std::string other_user_of(const std::string& instance, const std::string& job,
                          const std::string& state) {
  std::error_code problem;
  for (stdfs::directory_iterator it(state, problem), end; !problem && it != end;
       it.increment(problem)) {
    const std::string run = it->path().filename().string();
    std::string name;
    const bool is_other = !run.starts_with(job + ".") &&
                          std::ifstream(it->path() / "instance") >> name && name == instance;
    if (is_other && !stdfs::exists(it->path() / "result", problem)) {
      return run.substr(0, run.find('.'));
    }
  }
  return {};
}

// An instance that outlives its job (--efs-keep) has its own name. The plugin records this name.
std::string noted_for(const std::string& job, const std::string& state) {
  std::error_code problem;
  for (stdfs::directory_iterator it(state, problem), end; !problem && it != end;
       it.increment(problem)) {
    std::string name;
    if (it->path().filename().string().starts_with(job + ".") &&
        std::ifstream(it->path() / "instance") >> name) {
      return name;
    }
  }
  return {};
}

std::string host_name() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return host.data();
}

}  // namespace

bool use_runtime_directory_of_plugin() {
  if (std::getenv("EFS_RUNTIME_DIR") != nullptr) {
    return false;  // in the job it is set
  }
  const std::string run = site_argument("run");
  return !run.empty() && ::setenv("EFS_RUNTIME_DIR", run.c_str(), 1) == 0;
}

Result<std::string> instance_of_job(const std::string& job) {
  std::string number = job;
  if (job.contains('_')) {
    const auto known = ask_slurm(job);
    if (!known) {
      return fail(ENOENT,
                  "slurmctld does not know the task " + job +
                      " (any more): name it by its own number, which is SLURM_JOB_ID in the task");
    }
    number = std::to_string(known->id);
  }
  auto names = named_for(number);
  if (names.empty() && use_runtime_directory_of_plugin()) {
    names = named_for(number);
  }
  if (!names.empty()) {
    return only_run(number, names);
  }
  const std::string given = site_argument("state"), state = given.empty() ? usual_state : given;
  if (const std::string name = noted_for(number, state); !name.empty()) {
    const std::string other = other_user_of(name, number, state);
    if (other.empty()) {
      return name;
    }
    return fail(EBUSY, "the file system of job " + number + ", " + as_word(name) +
                           ", is in use by job " + other);
  }
  return fail(ENOENT, "no file system of job " + job + " is on this node, " + host_name() +
                          ", or it is another user's. efs status --job " + job +
                          " says on which nodes it has one: run this there");
}

}  // namespace efs::cli
