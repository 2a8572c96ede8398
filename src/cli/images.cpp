// SPDX-License-Identifier: BSD-3-Clause
// Finds an offline store that no instance leads to.
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/mounts.hpp"
#include "base/user.hpp"
#include "cli/cli.hpp"
#include "cli/doctor.hpp"
#include "config/site.hpp"
#include "image/removal.hpp"

namespace efs::cli {

Result<image::Manifest> manifest_of(const control::Instance& instance) {
  const UniqueFd directory(
      ::open(instance.directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  return directory ? image::recover_manifest(directory.get())
                   : Result<image::Manifest>(fail(ENOENT));
}

std::optional<std::string> store_of_job(const std::string& job_file) {
  std::error_code problem;
  if (!std::filesystem::is_regular_file(job_file, problem)) {
    return std::nullopt;
  }
  const auto user = find_user(std::to_string(::geteuid()));
  if (!user) {
    return std::nullopt;
  }
  auto config = config::load_for_user(job_file, {}, *user);
  if (!config) {
    return std::nullopt;
  }
  choose_default_name(*config, user->uid);
  return store_path(*config, user->uid);
}

std::optional<std::string> store_of(const std::string& which) {
  const auto path = which.find('/') != which.npos && std::filesystem::is_directory(which)
                        ? std::optional(which)
                        : store_of_job(which);
  const auto store =
      path ? image::find_removable(std::filesystem::absolute(*path).lexically_normal().string())
           : Result<image::Directories>(fail(ENOENT));
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

namespace {

// Opens a path without following links or leaving the file system: the owner of the store may have
// mounted or linked a directory that hangs.
UniqueFd open_within(int at, const char* path, std::uint64_t flags) {
  const open_how how{
      .flags = flags | O_CLOEXEC, .mode = 0, .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV};
  return UniqueFd(static_cast<int>(::syscall(SYS_openat2, at, path, &how, sizeof how)));
}

// True if the store is not in use and belongs to the caller; root accepts the stores of all users.
// Releases its lock at once, so that a start can use the store.
bool is_free_store(LostStore& found) {
  const std::filesystem::path whole(found.path);
  const UniqueFd parent(::open(whole.parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const UniqueFd store = open_within(parent.get(), whole.filename().c_str(), O_PATH | O_DIRECTORY);
  struct stat st{};
  if (!store || ::fstat(store.get(), &st) != 0 || (::geteuid() != 0 && st.st_uid != ::geteuid())) {
    return false;
  }
  // any user can create a directory with a name of this form
  if (!whole.filename().string().starts_with("efs-" + std::to_string(st.st_uid) + "-")) {
    return false;
  }
  UniqueFd lock = open_within(store.get(), "meta/lock", O_RDONLY | O_NONBLOCK);
  if (!lock) {
    lock = open_within(store.get(), "lock", O_RDONLY | O_NONBLOCK);
    const UniqueFd root =
        open_within(parent.get(), whole.filename().c_str(), O_RDONLY | O_DIRECTORY);
    const auto manifest =
        lock && root ? image::read_manifest(root.get()) : Result<image::Manifest>(fail(ENOENT));
    if (!manifest || manifest->place == 0) {
      return false;
    }
    found.first = manifest->store;
  }
  return lock && ::flock(lock.get(), LOCK_SH | LOCK_NB) == 0;
}

// Does the store belong to an instance or, as a further backend, to another store?
bool leads_somewhere(const LostStore& store) {
  std::error_code problem;
  if (!store.first.empty() && std::filesystem::exists(store.first + "/meta/journal", problem)) {
    return true;
  }
  return instance_of_store(store.first.empty() ? store.path : store.first).has_value();
}

}  // namespace

std::vector<LostStore> stores_without_instance(const std::string& directory) {
  std::vector<LostStore> found;
  std::error_code problem;
  for (std::filesystem::directory_iterator it(directory, problem), end; !problem && it != end;
       it.increment(problem)) {
    LostStore store{.path = it->path(), .first = {}};
    if (is_free_store(store) && !leads_somewhere(store)) {
      found.push_back(std::move(store));
    }
  }
  return found;
}

std::vector<LostStore> stores_of_site_without_instance() {
  std::vector<LostStore> found;
  const auto user = find_user(std::to_string(::geteuid()));
  auto surroundings = config::surroundings_of_process(user.value_or(User{}));
  const auto site = config::load_site(surroundings);
  if (!site || !*site || (*site)->backends.empty()) {
    return found;
  }
  surroundings.site = *site;
  const auto job = config::parse(silent_job, "job.yaml", {}, surroundings);
  if (!job) {
    return found;
  }
  for (const auto& backend : job->backends) {
    if (backend.type != config::BackendType::dram && answers(backend.daxfs, patience)) {
      for (auto& store : stores_without_instance(backend.daxfs)) {
        found.push_back(std::move(store));
      }
    }
  }
  return found;
}

}  // namespace efs::cli
