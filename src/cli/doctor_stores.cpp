// SPDX-License-Identifier: BSD-3-Clause
// Checks the site file and the stores that it or a job file names.
#include <sys/quota.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <fcntl.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/memory_bound.hpp"
#include "base/mount_table.hpp"
#include "base/mounts.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "cli/backend_durability.hpp"
#include "cli/doctor.hpp"
#include "config/load.hpp"
#include "config/site.hpp"

namespace efs::cli {
namespace {

using config::Backend;

// Returns the remaining bytes in the caller's quota; nullopt if there is no quota or it is unknown.
std::optional<std::uint64_t> room_in_quota(const std::string& path) {
  const UniqueFd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  dqblk quota{};
  if (!directory || ::syscall(SYS_quotactl_fd, directory.get(), QCMD(Q_GETQUOTA, USRQUOTA),
                              ::geteuid(), &quota) != 0) {
    return std::nullopt;
  }
  if (quota.dqb_bhardlimit == 0) {
    return std::nullopt;
  }
  const std::uint64_t limit = quota.dqb_bhardlimit * 1024;
  return limit > quota.dqb_curspace ? limit - quota.dqb_curspace : 0;
}

Finding judge_space(const std::string& what, const Backend& backend) {
  struct statvfs fs{};
  if (::statvfs(backend.daxfs.c_str(), &fs) != 0) {
    return {Level::problem, what, backend.daxfs + ": " + std::strerror(errno), ""};
  }
  return judge_room(what, backend.daxfs, static_cast<std::uint64_t>(fs.f_bavail) * fs.f_frsize,
                    room_in_quota(backend.daxfs), backend.capacity);
}

// Names the job's memory if it is less than the memory of the node.
std::string text_of_bound(const config::JobConfig& job, const MemoryBound& bound) {
  if (job.job_memory && *job.job_memory < bound.bytes) {
    return format_bytes(*job.job_memory) + " that the job has";
  }
  return format_bytes(bound.bytes) + " available (" + bound.source + ")";
}

Findings examine_memory_store(const std::string& what, const config::JobConfig& job,
                              const Backend& backend) {
  const MemoryBound bound = memory_bound(unpromised_memory());
  const std::uint64_t memory = std::min(bound.bytes, job.job_memory.value_or(bound.bytes)),
                      wanted = config::capacity_of(job, backend, memory).value_or(0);
  const std::string text = durability_text(Durability::volatile_memory) + "; " +
                           format_bytes(wanted) + " of " + text_of_bound(job, bound);
  if (wanted > memory) {
    return {{Level::problem, what, text + ": a job that fills it uses up the node's memory",
             "lower the capacity"}};
  }
  Findings found{{Level::ok, what, text, ""}};
  add_findings(found, examine_cleaning(what, "/dev/shm"));
  return found;
}

// Returns why the user cannot make a store in the directory `path`, whose attributes go to `st`.
std::optional<Finding> refused_directory(const std::string& what, const std::string& path,
                                         struct stat& st) {
  if (!answers(path, patience)) {
    return silent(what, path);
  }
  if (::stat(path.c_str(), &st) != 0) {
    return Finding{Level::problem, what, path + ": " + std::strerror(errno),
                   errno == EACCES
                       ? "you may not look there; ask for the rights, or run efs doctor as root"
                       : "make the directory, or mount its file system"};
  }
  if (!S_ISDIR(st.st_mode)) {
    return Finding{Level::problem, what, path + " is not a directory", "name a directory as daxfs"};
  }
  if (::access(path.c_str(), W_OK | X_OK) != 0) {
    return Finding{Level::problem, what, path + ": you may not write there",
                   "stores are made with the rights of the job's user: mode 1777, as of /tmp"};
  }
  return std::nullopt;
}

Findings examine_backend(const config::JobConfig& job, const Backend& backend) {
  const std::string what = "store " + backend.id;
  if (backend.type == config::BackendType::dram) {
    return examine_memory_store(what, job, backend);
  }
  struct stat st{};
  if (const auto refused = refused_directory(what, backend.daxfs, st)) {
    return {*refused};
  }
  Findings found{judge_medium(what, backend.daxfs, mount_of(backend.daxfs), probe_backend(backend),
                              backend.require_dax),
                 judge_space(what, backend)};
  if (::geteuid() == 0 && (st.st_mode & 01777) != 01777) {
    found.push_back({Level::warning, what,
                     backend.daxfs + ": not every user may make a store there",
                     "mode 1777, as of /tmp, where it is for all"});
  }
  add_findings(found, examine_cleaning(what, backend.daxfs));
  add_findings(found, lost_stores(backend.daxfs));
  return found;
}

Finding of_problem(const std::string& what, const config::Problem& problem,
                   const std::string& file) {
  return {Level::problem, what,
          config::to_string({problem.line, problem.column, problem.text, "", problem.origin}, file),
          problem.suggestion.empty() ? "see efs-site(5) and efs-job(5)" : problem.suggestion};
}

Findings of_problems(const std::string& what, const config::Problems& problems,
                     const std::string& file) {
  Findings found;
  for (const auto& problem : problems) {
    found.push_back(of_problem(what, problem, file));
  }
  return found;
}

}  // namespace

MountOf mount_of(const std::string& path) {
  struct stat st{};
  if (::stat(path.c_str(), &st) != 0) {
    return {};
  }
  std::ostringstream device;
  device << major(st.st_dev) << ":" << minor(st.st_dev);
  std::ifstream mounts("/proc/self/mountinfo");
  MountOf found;
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string id, parent, number, root, point, options, word, type, source, super;
    words >> id >> parent >> number >> root >> point >> options;
    while (words >> word && word != "-") {
    }
    words >> type >> source >> super;
    if (number == device.str()) {
      found = {point, type, options + "," + super};
    }
  }
  return found;
}

Finding judge_medium(const std::string& what, const std::string& path, const MountOf& mount,
                     const DurabilityProbe& probe, bool require_dax) {
  const Durability durability = probe.durability();
  const bool is_persistent = durability == Durability::cache_line;
  const std::string text = path + " is on " + (mount.type.empty() ? "?" : mount.type) + " (" +
                           mount.point + "), " + durability_text(probe);
  if (require_dax && !is_persistent) {
    return {Level::problem, what, text + "; with 'require-dax: true' no job starts",
            "mount persistent memory with -o dax, or remove require-dax; see efs doctor --pmem"};
  }
  if (durability == Durability::volatile_memory) {
    return {Level::warning, what, text,
            "right where that is meant; else a directory on persistent memory or a disk"};
  }
  if (is_persistent) {
    return {Level::ok, what, text, ""};
  }
  if (probe.problem != 0) {
    return {Level::warning, what, text, "give the job's user a directory for files"};
  }
  if (has_option(mount.options, "dax") || has_option(mount.options, "dax=always")) {
    return {Level::warning, what, text + ". It is mounted with dax, and grants no MAP_SYNC",
            "the device below must be a namespace in mode fsdax; see efs doctor --pmem"};
  }
  return {Level::warning, what, text,
          "on persistent memory: mount -o dax (ext4, XFS); on a disk this is how it is"};
}

Finding judge_room(const std::string& what, const std::string& path, std::uint64_t free,
                   std::optional<std::uint64_t> quota, std::optional<std::uint64_t> capacity) {
  const bool by_quota = quota && *quota < free;
  const std::uint64_t room = by_quota ? *quota : free;
  const std::string text = format_bytes(room) + (by_quota ? " left by your quota" : " free") +
                           " in " + path,
                    way_out =
                        by_quota ? "ask for more of it, or free space there" : "free space there";
  if (capacity && room < *capacity) {
    return {Level::problem, what, text + ", and the capacity is " + format_bytes(*capacity),
            way_out + ", or lower the capacity"};
  }
  if (room < config::smallest_capacity) {
    return {Level::problem, what,
            text + ", less than the least (" + format_bytes(config::smallest_capacity) + ")",
            way_out};
  }
  return {Level::ok, what, text, ""};
}

namespace {

// Returns the configuration with only the site's values. examine_stores() reports errors in the
// site file.
config::JobConfig job_of_site() {
  auto surroundings = config::surroundings_of_process({});
  const auto site = config::load_site(surroundings);
  if (site) {
    surroundings.site = *site;
  }
  config::JobConfig built_in;
  built_in.backends.push_back({.id = "dram"});
  return config::parse(silent_job, "job.yaml", {}, surroundings).value_or(built_in);
}

std::uint64_t default_in(const config::JobConfig& site, std::uint64_t memory) {
  return config::capacity_of(
             site, {.id = "dram", .most_capacity = site.backends.front().most_capacity}, memory)
      .value_or(0);
}

}  // namespace

Findings examine_memory(std::optional<std::uint64_t> memory) {
  const MemoryBound bound = memory_bound(unpromised_memory());
  const config::JobConfig site = job_of_site();
  const std::uint64_t capacity = default_in(site, bound.bytes);
  Findings found{{Level::ok, "memory",
                  format_bytes(bound.bytes) + " available (" + bound.source +
                      "): a DRAM store without a capacity has " + format_bytes(capacity),
                  ""}};
  if (capacity < config::smallest_capacity) {
    found.front() = {Level::problem, "memory",
                     found.front().text + ", less than the least (" +
                         format_bytes(config::smallest_capacity) + ")",
                     "free memory, or raise the cgroup's limit"};
  }
  if (memory) {
    found.push_back(judge_job_memory(*memory, bound, site));
  }
  return found;
}

Finding judge_job_memory(std::uint64_t memory, const MemoryBound& bound,
                         const config::JobConfig& site) {
  const std::uint64_t has = std::min(memory, bound.bytes), capacity = default_in(site, has);
  const std::string what = "a job of " + format_bytes(memory);
  const std::string text =
      "a DRAM store without a capacity has " + format_bytes(capacity) + ": " +
      std::to_string(site.memory_share) + "% of " +
      (has < memory
           ? format_bytes(has) + ", which is all that this node has for it (" + bound.source + ")"
           : "its memory") +
      "; the rest is for its programs";
  if (capacity < config::smallest_capacity) {
    return {Level::problem, what,
            text + ". A store needs at least " + format_bytes(config::smallest_capacity),
            "ask for more memory (--mem), or store on a disk"};
  }
  if (has < memory) {
    return {Level::warning, what, text, "free memory, or declare a capacity in the job file"};
  }
  return {Level::ok, what, text, ""};
}

namespace {

// Checks all stores of the job, and what a logout removes from them.
Findings examine_backends(const config::JobConfig& job) {
  Findings found;
  for (const auto& backend : job.backends) {
    add_findings(found, examine_backend(job, backend));
  }
  const auto is_in_shared_memory = [](const Backend& backend) {
    return backend.type == config::BackendType::dram ||
           (backend.daxfs + "/").starts_with("/dev/shm/");
  };
  add_findings(found, examine_logout(std::ranges::any_of(job.backends, is_in_shared_memory)));
  return found;
}

// `site`: null without a site file.
Finding state_of_site_file(const config::Site* site) {
  return {Level::ok, "site file",
          site != nullptr
              ? site->file
              : std::string(config::default_site_file) + " is not there: built-in values count",
          ""};
}

}  // namespace

Findings examine_stores(const std::string& job_file, std::optional<std::uint64_t> memory) {
  const auto user = find_user(std::to_string(::geteuid()));
  auto surroundings = config::surroundings_of_process(user.value_or(User{}));
  const auto site = config::load_site(surroundings);
  if (!site) {
    return of_problems("site file", site.error(), config::default_site_file);
  }
  Findings found{state_of_site_file(site->get())};
  surroundings.site = *site;
  if (job_file.empty() && (!*site || (*site)->backends.empty())) {
    return found;
  }
  if (!job_file.empty() && !answers(job_file, patience)) {
    found.push_back(silent("job file", job_file));
    return found;
  }
  auto job = job_file.empty() ? config::parse(silent_job, "job.yaml", {}, surroundings)
                              : config::load(job_file, {}, surroundings);
  if (!job) {
    add_findings(found,
                 of_problems(job_file.empty() ? "site file" : "job file", job.error(), job_file));
    return found;
  }
  job->job_memory = memory;
  add_findings(found, examine_backends(*job));
  return found;
}

}  // namespace efs::cli
