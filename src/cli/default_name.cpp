// SPDX-License-Identifier: BSD-3-Clause
// The name of an instance whose job file does not say one.
#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/checksum.hpp"
#include "cli/cli.hpp"
#include "config/read_file.hpp"
#include "image/image.hpp"

namespace efs::cli {
namespace {

constexpr std::size_t longest_stem = 55;  // of 64: "-" and eight digits follow

std::string store_path(const config::JobConfig& config, uid_t owner, const std::string& name) {
  const auto& backend = config.backends.front();
  // The first holds the journal, which leads to the others.
  const std::string parent = backend.type == config::BackendType::dram ? "/dev/shm" : backend.daxfs;
  return parent + "/efs-" + std::to_string(owner) + "-" + name;
}

// An instance, or the store of one, that has the name.
struct Holder {
  Result<image::Manifest> manifest;  // an error: it says nothing of itself, or not yet
  bool is_alive = false;
};

// Returns the store of this name in the first backend of the job, if there is one.
std::optional<Holder> store_of(const config::JobConfig& config, uid_t owner,
                               const std::string& name) {
  const std::string path = store_path(config, owner, name);
  std::error_code problem;
  if (!std::filesystem::is_directory(path, problem)) {
    return std::nullopt;
  }
  const auto store = image::find_store(path);
  return Holder{.manifest = store ? image::read_manifest(store->metadata.get())
                                  : Result<image::Manifest>(std::unexpected(store.error()))};
}

std::optional<Holder> holder_of(const config::JobConfig& config, uid_t owner,
                                const std::string& name) {
  const auto instances = control::list_instances();
  const auto found = std::ranges::find(instances, name, &control::Instance::name);
  if (found != instances.end()) {
    const UniqueFd directory(
        ::open(found->directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    return Holder{.manifest = directory ? image::read_manifest(directory.get())
                                        : Result<image::Manifest>(fail(ENOENT)),
                  .is_alive = found->alive};
  }
  return store_of(config, owner, name);
}

// True if a store of the job file's name holds what this job left, whatever instance has the name
// now. With another name a start would not find it.
bool has_own_store(const config::JobConfig& config, uid_t owner) {
  const auto left = store_of(config, owner, config.name);
  return left && left->manifest && is_same_path(left->manifest->job_file, config.source);
}

// The instance is another job's, and a start under its name would be refused. A job file that was
// moved or copied goes on with what it left, as long as the directories are the same.
bool is_of_another_job(const Holder& holder, const config::JobConfig& config) {
  if (!holder.manifest || is_same_path(holder.manifest->job_file, config.source)) {
    return false;
  }
  const auto& other = *holder.manifest;
  return other.root_dir != config.root_dir || other.results_dir != config.results_dir ||
         (holder.is_alive && other.mount_dir != config.mount_dir);
}

// "job-1a2b3c4d": always the same for one path.
std::string name_of_path(const config::JobConfig& config) {
  std::error_code problem;
  const std::string path = std::filesystem::weakly_canonical(config.source, problem).string();
  const auto sum = checksum(std::as_bytes(std::span(path)));
  char digits[16];
  std::snprintf(digits, sizeof digits, "-%08x", static_cast<unsigned>(sum));
  return config.name.substr(0, longest_stem) + digits;
}

}  // namespace

std::string store_path(const config::JobConfig& config, uid_t owner) {
  return store_path(config, owner, config.name);
}

std::string choose_default_name(config::JobConfig& config, uid_t owner) {
  const auto shown = std::ranges::find_if(config.effective, [](const config::EffectiveValue& v) {
    return v.section == "global-settings" && v.key == "name";
  });
  // A job file from a pipe has no path.
  if (shown == config.effective.end() || shown->source != config::Source::built_in ||
      config.source == config::standard_input) {
    return "";
  }
  const std::string own = name_of_path(config);
  const auto holder = holder_of(config, owner, config.name);
  const bool is_taken =
      holder && is_of_another_job(*holder, config) && !has_own_store(config, owner);
  if (!is_taken && !holder_of(config, owner, own)) {
    return "";
  }
  config.name = own;
  shown->value = own;
  return is_taken ? holder->manifest->job_file : "";
}

}  // namespace efs::cli
