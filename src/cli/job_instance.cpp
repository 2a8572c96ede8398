// The file system of a batch job on this node: what --job means to the verbs that act on an instance.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/cli.hpp"
#include "cli/slurm_site.hpp"
#include "config/start_command.hpp"

namespace efs::cli {
namespace {

namespace stdfs = std::filesystem;
constexpr const char* usual_state = "/run/efs-slurm";  // as in slurm-plugin/site.c

// Of those that the plugin has named for this job, that of the last run; "": none.
std::string named_for(const std::string& job) {
  const std::string argument = "--job " + job, begin = "slurm-" + job + ".";
  std::string best;
  long best_restart = -1;
  for (const auto& instance : control::list_instances()) {
    if (config::instance_argument(instance.name) != argument) continue;
    const long restart = std::strtol(instance.name.c_str() + begin.size(), nullptr, 10);
    if (restart > best_restart) best = instance.name, best_restart = restart;
  }
  return best;
}

// What outlives a job (--efs-keep) has a name of its own, which the plugin has noted.
std::string noted_for(const std::string& job, const std::string& state) {
  std::error_code problem;
  for (stdfs::directory_iterator it(state, problem), end; !problem && it != end; it.increment(problem)) {
    std::string name;
    if (it->path().filename().string().starts_with(job + ".") && std::ifstream(it->path() / "instance") >> name) return name;
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
  if (std::getenv("EFS_RUNTIME_DIR") != nullptr) return false;  // in the job it is set
  const std::string run = site_argument("run");
  return !run.empty() && ::setenv("EFS_RUNTIME_DIR", run.c_str(), 1) == 0;
}

Result<std::string> instance_of_job(const std::string& job) {
  std::string number = job;
  if (job.contains('_')) {
    const auto known = ask_slurm(job);
    if (!known) return fail(ENOENT, "slurmctld does not know the task " + job + " (any more): name it by its own number, which is SLURM_JOB_ID in the task");
    number = std::to_string(known->id);
  }
  if (const std::string name = named_for(number); !name.empty()) return name;
  if (use_runtime_directory_of_plugin())
    if (const std::string name = named_for(number); !name.empty()) return name;
  const std::string state = site_argument("state");
  if (const std::string name = noted_for(number, state.empty() ? usual_state : state); !name.empty()) return name;
  return fail(ENOENT, "no file system of job " + job + " is on this node, " + host_name() + ", or it is another user's. efs status --job " + job + " says on which nodes it has one: run this there");
}

}  // namespace efs::cli
