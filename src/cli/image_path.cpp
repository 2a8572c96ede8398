// SPDX-License-Identifier: BSD-3-Clause
#include "cli/image_path.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <vector>

#include "base/user.hpp"
#include "cli/cli.hpp"
#include "image/image.hpp"

namespace efs::cli {
namespace {

// Fails if the instance lives. A daemon that does not answer any more ends.
Status end_dead(const control::Instance& instance) {
  if (instance.alive) {
    return fail(EBUSY, instance.name + " is running; stop it first: efs stop " + instance.name);
  }
  end_silent_mount(instance);
  return {};
}

bool is_a_directory(const std::string& path) {
  struct stat st{};
  return ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

// Returns false if the directory holds no store.
Result<bool> holds_store(const std::string& directory) {
  const auto store = image::find_store(directory);
  // Check the instance because the store is unlocked while a worker is replaced.
  if (const auto owner = store ? instance_of_store(store->path) : std::nullopt) {
    EFS_TRY(end_dead(*owner));
  } else {
    EFS_TRY(refuse_unreachable(directory));
  }
  if (!store && store.error().code == EPERM) {
    return std::unexpected(store.error());
  }
  return store.has_value();
}

// Returns the store that a job without an instance has left.
Result<std::string> store_left_of_job(const std::string& job_file) {
  const auto store = store_of_job(job_file);
  if (!store) {
    return fail(ENOENT, job_file +
                            ": no instance of this name, mount point or job file is left, and no "
                            "image of efs is there");
  }
  struct stat st{};
  if (::stat(store->c_str(), &st) == 0) {
    return *store;
  }
  return fail(ENOENT, "nothing is left of the job " + job_file +
                          ": there is no instance of its name and no store " + *store +
                          "; a store in memory does not survive a restart of the machine");
}

// `which`: a directory, an instance or a job file; "": the only dead instance. Fails while the
// instance lives.
Result<std::string> image_path(const std::string& which) {
  if (which.find('/') != std::string::npos && is_a_directory(which)) {
    const auto found = holds_store(which);
    if (!found) {
      return std::unexpected(found.error());
    }
    if (*found) {
      return which;
    }
  }
  const auto instance = find_instance(which, Meant::dead);
  if (instance) {
    EFS_TRY(end_dead(*instance));
    return instance->directory;
  }
  if (instance.error().code != ENOENT || which.empty()) {
    return std::unexpected(instance.error());
  }
  return store_left_of_job(which);
}

// Root works with the rights of the owner on the owner's files, so no file of the owner can mislead
// root.
Status become_owner(const std::string& path) {
  auto store = image::find_store(path);
  if (!store) {
    return std::unexpected(store.error());
  }
  if (::geteuid() != 0 || store->owner == 0) {
    return {};
  }
  auto user = find_user(std::to_string(store->owner));
  if (!user) {
    return std::unexpected(user.error());
  }
  return become(*user, true);
}

}  // namespace

bool is_same_directory(const std::string& a, const std::string& b) {
  struct stat one{}, other{};
  return !b.empty() && ::stat(a.c_str(), &one) == 0 && ::stat(b.c_str(), &other) == 0 &&
         one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

namespace {

bool is_within(const std::string& path, const std::string& directory) {
  std::error_code unreadable;  // then compare the lexical path
  auto at = std::filesystem::weakly_canonical(path, unreadable);
  if (unreadable) {
    at = std::filesystem::absolute(path).lexically_normal();
  }
  for (; at.has_relative_path(); at = at.parent_path()) {
    if (is_same_directory(at, directory)) {
      return true;
    }
  }
  return false;
}

}  // namespace

Status refuse_own_places(const image::HeldStore& held, const std::string& to) {
  std::vector<std::string> own{held.directories.path};
  for (const auto& member : held.manifest.members) {
    own.push_back(member.path);
  }
  if (const auto instance = instance_of_store(held.directories.path)) {
    own.push_back(instance->directory);
  }
  if (std::ranges::none_of(own, [&](const std::string& place) { return is_within(to, place); })) {
    return {};
  }
  return fail(
      EINVAL,
      "--to " + to +
          " is in the image to export, and would be removed with it; name another directory");
}

Result<std::string> image_path_as_owner(const std::string& which) {
  auto path = image_path(which);
  if (!path) {
    return path;
  }
  EFS_TRY(become_owner(*path));
  return path;
}

}  // namespace efs::cli
