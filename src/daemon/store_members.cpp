// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/store_members.hpp"
#include "daemon/instance_directory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>

#include "backends/virtual_device.hpp"
#include "base/file_lock.hpp"
#include "base/log.hpp"
#include "image/image.hpp"

namespace efs::daemon {
namespace {

std::string listed(const std::vector<std::string>& ids) {
  std::string text;
  for (const auto& id : ids) {
    text += (text.empty() ? "" : ", ") + id;
  }
  return text;
}

// The order of the backends matters: efs searches all backends for a container, but only the first
// contains the journal.
Status same_backends(const Store& store, const config::JobConfig& config) {
  std::vector<std::string> now, then;
  for (const auto& backend : config.backends) {
    now.push_back(backend.id);
  }
  for (const auto& member : store.manifest.members) {
    then.push_back(member.id);
  }
  if (then == now || (then.empty() && now.size() == 1)) {
    return {};
  }
  return fail(
      EEXIST,
      "an earlier instance left its store in " + store.path + ", with " +
          (then.empty() ? "one backend" : "the backends " + listed(then)) +
          ", and this job file has " + listed(now) +
          "; start with the same backends in the same order, export the data (efs salvage " +
          config.name + "), or remove it (efs clean " + store.path + ")");
}

// True if the earlier instance's store, with this backend, was being removed.
bool was_being_removed(const SetUp& how, const Store& store, const image::Manifest& own) {
  return own.store == store.path &&
         ((store.was_removed && !own.instance.contradicts(store.removed)) ||
          was_over(how.instance, own));
}

// True if the journal was in memory and the machine was restarted: the names of the containers are
// lost forever.
bool has_lost_its_journal(const image::Manifest& own) {
  return own.boot_id != image::boot_id() && !own.members.empty() &&
         own.members.front().kind == "dram";
}

// Checks the containers in a backend of a store whose journal is new. Uses a separate Backend
// object: the one that serves the instance must not know foreign containers.
Status look_at_orphans(const SetUp& how, const Ground& ground, const Store& store,
                       const std::string& id) {
  FsdaxOptions options;
  options.directory.reset(::fcntl(ground.options.directory.get(), F_DUPFD_CLOEXEC, 0));
  const auto backend = make_fsdax(std::move(options));
  if (!backend) {
    return std::unexpected(backend.error());
  }
  std::vector<std::uint64_t> orphans;
  EFS_TRY((*backend)->for_each([&](std::uint64_t container) { orphans.push_back(container); }));
  if (orphans.empty()) {
    return {};
  }
  const auto manifest = image::read_manifest(ground.root.get());
  const bool went = manifest && was_being_removed(how, store, *manifest);
  const bool hopeless = manifest && has_lost_its_journal(*manifest);
  if (!hopeless && !went) {
    return fail(EEXIST, "backend " + id + ": " + ground.path +
                            " holds the data of an earlier instance, whose journal" +
                            (manifest ? ", in " + manifest->store + "," : "") +
                            " is missing; restore it, or remove the directory to discard the data");
  }
  for (const auto container : orphans) {
    (*backend)->remove(container);
  }
  log::warn("event=orphans_removed backend={} directory={} containers={} reason=\"{}\"", id,
            ground.path, orphans.size(),
            went ? "they were being removed"
                 : "their names were in memory, and the machine was restarted");
  return {};
}

// Succeeds if the instance that left the first backend also left this one.
Status belongs_to(const Ground& ground, unsigned number, const Store& store,
                  const std::string& id) {
  const auto manifest = image::recover_manifest(ground.root.get());
  if (manifest && manifest->place == number && manifest->store == store.path &&
      manifest->name == store.manifest.name && !manifest->instance.contradicts(store.instance)) {
    return {};
  }
  return fail(ENOENT, "backend " + id + ": " + ground.path + " is not of the instance that left " +
                          store.path + (manifest ? "" : " (" + describe(manifest.error()) + ")") +
                          "; see which files it had (efs salvage --list " + store.path +
                          "), or remove all (efs clean " + store.path + ")");
}

Result<std::unique_ptr<Backend>> open_member(const SetUp& how, unsigned number, Ground& ground,
                                             Store& store, StoreMember& member) {
  const int root = ground.root.get();
  struct stat st{};
  if (::fstatat(root, "meta", &st, AT_SYMLINK_NOFOLLOW) == 0) {
    return fail(EEXIST, "backend " + member.id + ": " + ground.path +
                            " is the store of another instance; choose another --name, or remove "
                            "that one (efs clean " +
                            ground.path + ")");
  }
  if (::mkdirat(root, "data", 0700) != 0 && errno != EEXIST) {
    return fail_errno(ground.path + "/data");
  }
  ground.options.directory.reset(
      ::openat(root, "data", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!ground.options.directory) {
    return fail_errno(ground.path + "/data");
  }
  auto lock = lock_of_store(how.supervisor, root, ground.path, "another instance");
  if (!lock) {
    return std::unexpected(lock.error());
  }
  member.lock = std::move(*lock);
  member.kept_from_cleaners = keep_cleaners_out(how.supervisor, root, ground.path);
  if (store.left) {
    EFS_TRY(belongs_to(ground, number, store, member.id));
    EFS_TRY(image::refuse_other_containers(ground.options.directory.get(), store.instance,
                                           ground.path + "/data"));
  }
  if (!store.left) {
    EFS_TRY(look_at_orphans(how, ground, store, member.id));
    EFS_TRY(image::mark_containers(ground.options.directory.get(), store.instance));
  }
  settle_capacity(how, number, store, ground);
  member.kind = ground.options.kind;
  auto backend = open_backend(how, number, ground);
  if (!backend) {
    return std::unexpected(backend.error());
  }
  if (how.privileged) {
    EFS_TRY(how.supervisor.store_at(member.lock.get()));
  }
  return backend;
}

Result<std::unique_ptr<Backend>> add_member(const SetUp& how, unsigned number, Store& store) {
  const std::string& id = how.config.backends[number].id;
  auto ground = find_ground(how, number, store.left);
  if (!ground && store.left) {
    const std::string where = number < store.manifest.members.size()
                                  ? " (" + store.manifest.members[number].path + ")"
                                  : "";
    return fail(ground.error().code,
                "backend " + id + where + " of the instance that left " + store.path +
                    " is gone: " + describe(ground.error()) +
                    (store.manifest.boot_id != image::boot_id()
                         ? "; the machine was restarted, and memory does not survive that"
                         : "") +
                    "; export what is left (efs salvage " + how.config.name +
                    "), then remove it (efs clean " + how.config.name + ")");
  }
  if (!ground) {
    return std::unexpected(ground.error());
  }
  StoreMember member{.id = id,
                     .path = ground->path,
                     .kind = {},
                     .directory = ground->directory,
                     .root = {},
                     .lock = {},
                     .kept_from_cleaners = {}};
  auto backend = open_member(how, number, *ground, store, member);
  if (!backend) {
    if (member.lock && !ground->left) {
      remove_store(ground->directory);
    }
    return backend;
  }
  member.root = std::move(ground->root);
  store.others.push_back(std::move(member));
  return backend;
}

}  // namespace

Result<std::unique_ptr<Backend>> open_backend(const SetUp& how, unsigned number, Ground& ground) {
  auto backend = make_fsdax(std::move(ground.options));
  const auto& wanted = how.config.backends[number];
  if (!backend || !wanted.require_dax || how.takeover ||
      (*backend)->durability() == Durability::cache_line) {
    return backend;
  }
  return fail(EOPNOTSUPP, "backend " + wanted.id + " has 'require-dax: true', and " + wanted.daxfs +
                              " is not persistent memory: its file system grants no mapping with "
                              "MAP_SYNC; mount it with -o dax, name another daxfs, or remove "
                              "require-dax");
}

bool was_over(const std::string& instance, const image::Manifest& own) {
  const UniqueFd directory(
      ::open(instance.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const auto manifest =
      directory ? image::read_manifest(directory.get()) : std::unexpected(Error{errno});
  return manifest && image::was_over(*manifest, own);
}

Status add_members(const SetUp& how, Store& store) {
  const config::JobConfig& config = how.config;
  if (store.left) {
    EFS_TRY(same_backends(store, config));
  }
  if (config.backends.size() < 2) {
    return {};
  }
  if (how.privileged) {
    EFS_TRY(how.supervisor.store_at(store.lock.get()));
  }
  VirtualDeviceOptions options{.members = {},
                               .new_containers = static_cast<unsigned>(config.new_files),
                               .spill = config.on_full == config::OnFull::spill};
  options.members.push_back(
      {.id = config.backends.front().id, .backend = std::move(store.backend)});
  for (unsigned number = 1; number < config.backends.size(); ++number) {
    auto backend = add_member(how, number, store);
    if (!backend) {
      if (!store.left) {
        for (const auto& member : store.others) {
          remove_store(member.directory);
        }
      }
      return std::unexpected(backend.error());
    }
    options.members.push_back({.id = config.backends[number].id, .backend = std::move(*backend)});
  }
  auto device = make_virtual_device(std::move(options));
  if (!device) {
    return fail(device.error().code, store.path + ": " + describe(device.error()));
  }
  store.backend = std::move(*device);
  return {};
}

std::vector<image::Member> manifests_of(const Store& store, const config::JobConfig& config) {
  std::vector<image::Member> members;
  if (store.others.empty()) {
    return members;
  }
  members.push_back({.id = config.backends.front().id, .path = store.path, .kind = store.kind});
  for (const auto& other : store.others) {
    members.push_back({.id = other.id, .path = other.path, .kind = other.kind});
  }
  return members;
}

}  // namespace efs::daemon
