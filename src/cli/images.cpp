// Which image is meant, where no instance leads to it.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/user.hpp"
#include "base/mounts.hpp"
#include "cli/cli.hpp"
#include "cli/doctor.hpp"
#include "config/site.hpp"
#include "image/removal.hpp"

namespace efs::cli {

Result<image::Manifest> manifest_of(const control::Instance& instance) {
  const UniqueFd directory(::open(instance.directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  return directory ? image::read_manifest(directory.get()) : Result<image::Manifest>(fail(ENOENT));
}

std::optional<std::string> store_of_job(const std::string& job_file) {
  std::error_code problem;
  if (!std::filesystem::is_regular_file(job_file, problem)) return std::nullopt;
  const auto user = find_user(std::to_string(::geteuid()));
  if (!user) return std::nullopt;
  const auto config = config::load_for_user(job_file, {}, *user);
  if (!config) return std::nullopt;
  const auto& backend = config->backends.front();
  // The first holds the journal, which leads to the others.
  const std::string parent = backend.type == config::BackendType::dram ? "/dev/shm" : backend.daxfs;
  return parent + "/efs-" + std::to_string(::geteuid()) + "-" + config->name;
}

std::optional<std::string> store_of(const std::string& which) {
  const auto path = which.find('/') != which.npos && std::filesystem::is_directory(which) ? std::optional(which) : store_of_job(which);
  const auto store = path ? image::find_removable(std::filesystem::absolute(*path).lexically_normal().string()) : Result<image::Directories>(fail(ENOENT));
  return store ? std::optional(store->path) : std::nullopt;
}

std::optional<control::Instance> instance_of_store(const std::string& path) {
  const auto is_of = [&](const control::Instance& instance) {
    std::error_code problem;
    const auto manifest = manifest_of(instance);
    return manifest && std::filesystem::equivalent(manifest->store, path, problem) && !problem;
  };
  const auto instances = control::list_instances();
  const auto found = std::ranges::find_if(instances, is_of);
  return found == instances.end() ? std::nullopt : std::optional(*found);
}

std::vector<std::string> stores_without_instance(const std::string& directory) {
  std::vector<std::string> found;
  std::error_code problem;
  for (std::filesystem::directory_iterator it(directory, problem), end; !problem && it != end; it.increment(problem)) {
    const std::string path = it->path();
    struct stat st {};
    if (::lstat(path.c_str(), &st) != 0 || !S_ISDIR(st.st_mode) || (::geteuid() != 0 && st.st_uid != ::geteuid())) continue;
    if (!it->path().filename().string().starts_with("efs-" + std::to_string(st.st_uid) + "-")) continue;  // anybody may give a name like ours
    const UniqueFd lock(::open((path + "/meta/lock").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!lock || ::flock(lock.get(), LOCK_SH | LOCK_NB) != 0 || instance_of_store(path)) continue;  // none of ours, in use, or told of already
    found.push_back(path);
  }
  return found;
}

std::vector<std::string> stores_of_site_without_instance() {
  std::vector<std::string> found;
  const auto user = find_user(std::to_string(::geteuid()));
  auto surroundings = config::surroundings_of_process(user.value_or(User{}));
  const auto site = config::load_site(surroundings);
  if (!site || !*site || (*site)->backends.empty()) return found;
  surroundings.site = *site;
  const auto job = config::parse(silent_job, "job.yaml", {}, surroundings);
  if (!job) return found;
  for (const auto& backend : job->backends)
    if (backend.type != config::BackendType::dram && answers(backend.daxfs, patience))
      for (auto& store : stores_without_instance(backend.daxfs)) found.push_back(std::move(store));
  return found;
}

}  // namespace efs::cli
