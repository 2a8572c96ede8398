// Which image is meant, where no instance leads to it.
#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/user.hpp"
#include "cli/cli.hpp"
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

}  // namespace efs::cli
