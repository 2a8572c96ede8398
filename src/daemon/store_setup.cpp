// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/store_setup.hpp"
#include "daemon/instance_directory.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <filesystem>

#include "backends/fsdax.hpp"
#include "base/file_lock.hpp"
#include "base/log.hpp"
#include "base/memory_bound.hpp"
#include "base/text.hpp"
#include "control/instances.hpp"
#include "daemon/store_members.hpp"
#include "image/image.hpp"
#include "image/removal.hpp"

namespace efs::daemon {
namespace {

struct PrivateDirectory {
  UniqueFd fd;
  bool left = false;
};

// Creates a directory, or opens one that an earlier instance or a predecessor left.
Result<PrivateDirectory> private_directory(const std::string& path, bool must_be_there) {
  PrivateDirectory made{.fd = {}, .left = must_be_there};
  if (!must_be_there && ::mkdir(path.c_str(), 0700) != 0) {
    if (errno != EEXIST) {
      return fail_errno("cannot make the store " + path);
    }
    made.left = true;
  }
  made.fd.reset(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat st{};
  if (!made.fd || ::fstat(made.fd.get(), &st) != 0) {
    return fail_errno("store " + path);
  }
  if (st.st_uid != ::geteuid() || (st.st_mode & 077) != 0) {
    return fail(EPERM, "store " + path + " belongs to another user, or is open to others");
  }
  return made;
}

bool is_memory(const std::string& directory) {
  struct statfs fs{};
  return ::statfs(directory.c_str(), &fs) == 0 &&
         (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}

// Checks the data that an earlier instance of this name left. Only the same job may continue with
// them.
Status look_at_left(Store& store, const config::JobConfig& config) {
  struct stat st{};
  // that instance died before it created a journal
  if (::fstatat(store.metadata.get(), "journal", &st, AT_SYMLINK_NOFOLLOW) != 0) {
    return {};
  }
  store.left = true;
  const std::string way_out = "; export its data (efs salvage " + store.path +
                              "), remove it (efs clean " + store.path +
                              "), or choose another --name";
  auto manifest = image::read_manifest(store.metadata.get());
  if (!manifest) {
    return fail(EEXIST, "an earlier instance left its store in " + store.path +
                            ", and its manifest cannot be used (" + describe(manifest.error()) +
                            "); export its data (efs salvage --to DIRECTORY " + store.path +
                            "), remove it (efs clean " + store.path +
                            "), or choose another --name");
  }
  store.manifest = std::move(*manifest);
  const auto& m = store.manifest;
  if (m.root_dir != config.root_dir || m.results_dir != config.results_dir) {
    return fail(EEXIST, "another job of the name " + config.name + " left its store in " +
                            store.path + " (root-dir " + m.root_dir + ", results-dir " +
                            m.results_dir + ")" + way_out);
  }
  return {};
}

// The journal is created before the first container and is removed before the containers, so
// containers without a journal are an error.
Status refuse_containers(int data, const std::string& path) {
  FsdaxOptions options;
  options.directory.reset(::fcntl(data, F_DUPFD_CLOEXEC, 0));
  options.read_only = true;
  const auto backend = make_fsdax(std::move(options));
  if (!backend) {
    return std::unexpected(backend.error());
  }
  std::uint64_t containers = 0;
  EFS_TRY((*backend)->for_each([&](std::uint64_t) { ++containers; }));
  if (containers == 0) {
    return {};
  }
  return fail(EEXIST,
              "the store " + path + " holds " + std::to_string(containers) +
                  " containers of an earlier instance, but its journal (meta/journal) is missing; "
                  "nothing was removed. Restore the journal, or remove the directory");
}

// Marks a new store as this instance's. A store that was left must belong to the instance in its
// manifest.
Status settle_whose(Store& store, int data) {
  const auto life = store::draw_instance_id();
  if (!life) {
    return std::unexpected(life.error());
  }
  store.life = *life;
  if (store.left) {
    store.instance = store.manifest.instance;
    return image::refuse_other_containers(data, store.instance, store.path + "/data");
  }
  const auto drawn = store::draw_instance_id();
  if (!drawn) {
    return std::unexpected(drawn.error());
  }
  store.instance = *drawn;
  return image::mark_containers(data, store.instance);
}

// Opens a directory in the store, or creates it and sets `made`.
Result<UniqueFd> part(int root, const char* name, bool& made) {
  if (::mkdirat(root, name, 0700) == 0) {
    made = true;
  } else if (errno != EEXIST) {
    return fail_errno(std::string("store/") + name);
  }
  UniqueFd directory(::openat(root, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!directory) {
    return fail_errno(std::string("store/") + name);
  }
  return directory;
}

// The journal syncs itself and its directory. This function syncs the names above them.
Status sync_names(int root) {
  const UniqueFd above(::openat(root, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (::fsync(root) != 0) {
    return fail_errno("store");
  }
  // The parent may be closed to this user, or its file system may not sync directories. The site is
  // then responsible for its names.
  return !above || ::fsync(above.get()) == 0 || errno == EINVAL || errno == EROFS
             ? Status()
             : fail_errno("the directory of the store");
}

// Completes an earlier removal of the store. The results are exported or dropped, but the process
// died before it removed the store.
Status complete_removal(const SetUp& how, int root, Store& store) {
  if (const auto manifest = image::read_manifest(store.metadata.get());
      manifest && was_over(how.instance, *manifest)) {
    EFS_TRY(image::begin_removal(store.metadata.get()));
  }
  store.was_removed = image::is_being_removed(store.metadata.get());
  if (const auto manifest = image::read_manifest(store.metadata.get());
      manifest && store.was_removed) {
    store.removed = manifest->instance;
  }
  return store.was_removed ? image::finish_removal(root, store.path) : Status();
}

// Completes a store whose root holds the directories of the journal and of the containers. If it
// fails after it has taken the lock, `store.lock` is held.
Status finish(Ground ground, const SetUp& how, Store& store) {
  store.directory = ground.directory;
  store.path = ground.path;
  const int root = ground.root.get();
  if (struct stat st{}; ::fstatat(root, "lock", &st, AT_SYMLINK_NOFOLLOW) == 0) {
    return fail(EEXIST, "the store " + store.path +
                            " is a backend of another instance; choose another --name");
  }
  bool made = false;
  auto metadata = part(root, "meta", made);
  if (!metadata) {
    return std::unexpected(metadata.error());
  }
  store.metadata = std::move(*metadata);
  auto lock = lock_of_store(how.supervisor, store.metadata.get(), store.path,
                            "another instance or a running efs salvage");
  if (!lock) {
    return std::unexpected(lock.error());
  }
  store.lock = std::move(*lock);
  // after the lock: its previous holder may have been removing the store
  auto contents = part(root, "data", made);
  if (!contents) {
    return std::unexpected(contents.error());
  }
  ground.options.directory = std::move(*contents);
  store.kept_from_cleaners = keep_cleaners_out(how.supervisor, root, store.path);
  if (made) {
    EFS_TRY(sync_names(root));
  }
  EFS_TRY(complete_removal(how, root, store));
  EFS_TRY(look_at_left(store, how.config));
  settle_capacity(how, 0, store, ground);
  store.kind = ground.options.kind;
  const int data = ground.options.directory.get();
  if (ground.left && !store.left && !store.was_removed) {
    EFS_TRY(refuse_containers(data, store.path));
  }
  EFS_TRY(settle_whose(store, data));
  auto backend = open_backend(how, 0, ground);
  if (!backend) {
    return std::unexpected(backend.error());
  }
  store.backend = std::move(*backend);
  return {};
}

bool gets_default(const config::Backend& backend) {
  return backend.type == config::BackendType::dram && !backend.capacity;
}

// Returns the declared capacity, or the share of the memory that this job can use. A successor
// requests the minimum, because the store exists.
Result<std::optional<std::uint64_t>> choose_capacity(const SetUp& how,
                                                     const config::Backend& backend) {
  if (!gets_default(backend)) {
    return backend.capacity;
  }
  if (how.takeover) {
    return config::smallest_capacity;
  }
  const auto unpromised = how.supervisor.unpromised_memory();
  if (!unpromised) {
    return std::unexpected(unpromised.error());
  }
  const MemoryBound bound = memory_bound(*unpromised);
  const auto capacity = config::capacity_of(how.config, backend, bound.bytes);
  log::info(
      "event=default_capacity backend={} capacity={} available={} bound=\"{}\" job_memory={} "
      "share={}%",
      backend.id, *capacity, bound.bytes, bound.source, how.config.job_memory.value_or(0),
      how.config.memory_share);
  if (*capacity >= config::smallest_capacity) {
    return capacity;
  }
  const bool by_job = how.config.job_memory && *how.config.job_memory < bound.bytes;
  return fail(ENOMEM, "backend " + backend.id + ": the job can have " +
                          format_bytes(by_job ? *how.config.job_memory : bound.bytes) +
                          " of memory here (" +
                          (by_job ? "given by the batch system" : bound.source) +
                          "), and a store in memory needs at least " +
                          format_bytes(config::smallest_capacity) +
                          ". Ask for more memory, or store on a disk (type: NVRAM-NVML)");
}

Result<Ground> find_memory(const SetUp& how, unsigned number, Ground ground, bool must_be_there) {
  auto memory =
      how.supervisor.memory_store({.number = number,
                                   .bytes = *ground.options.capacity,
                                   .access_times = how.access_times,
                                   .huge_pages = how.config.backends.at(number).huge_pages,
                                   .must_be_there = must_be_there});
  if (!memory) {
    return std::unexpected(memory.error());
  }
  if (memory->left) {
    how.supervisor.keep_store(true);  // an error after this line must not remove an existing store
    struct statvfs fs{};
    const std::uint64_t declared = *ground.options.capacity;
    if (::fstatvfs(memory->root.get(), &fs) == 0) {
      ground.options.capacity = fs.f_blocks * fs.f_frsize;
    }
    if (how.config.backends.at(number).capacity &&
        *ground.options.capacity > declared + (1u << 20)) {
      log::warn(
          "event=capacity_not_lowered backend={} declared={} capacity={} note=\"an existing store "
          "can only grow\"",
          how.config.backends.at(number).id, declared, *ground.options.capacity);
    }
  }
  ground.options.kernel_holds_capacity = true;
  ground.path = how.instance + "/" + control::store_name(number);
  ground.root = std::move(memory->root);
  ground.left = memory->left;
  return ground;
}

}  // namespace

Result<UniqueFd> lock_of_store(SupervisorClient& supervisor, int directory, const std::string& path,
                               const std::string& others) {
  constexpr int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  UniqueFd opened(::openat(directory, "lock", O_RDWR | O_CREAT | flags, 0600));
  // a successor on a file system that has become read-only
  if (!opened && errno == EROFS) {
    opened.reset(::openat(directory, "lock", O_RDONLY | flags));
  }
  if (!opened) {
    return fail_errno("the lock of the store " + path);
  }
  auto held = supervisor.hold_store(opened);
  if (!held) {
    return fail(held.error().code, "the lock of the store " + path + ": " + describe(held.error()));
  }
  UniqueFd lock = std::move(*held);
  if (!lock_soon(lock)) {
    return fail(EBUSY, "the store " + path + " is in use by " + others);
  }
  // The previous holder may have removed the lock with the store.
  struct stat ours{}, now{};
  if (::fstat(lock.get(), &ours) != 0 ||
      ::fstatat(directory, "lock", &now, AT_SYMLINK_NOFOLLOW) != 0 || ours.st_ino != now.st_ino ||
      ours.st_dev != now.st_dev) {
    return fail(EAGAIN, "the store " + path + " has just been removed; try again");
  }
  return lock;
}

void settle_capacity(const SetUp& how, unsigned number, Store& store, Ground& ground) {
  if (!gets_default(how.config.backends.at(number))) {
    return;
  }
  auto& capacity = ground.options.capacity;
  if (store.left && !ground.options.kernel_holds_capacity) {
    capacity = std::max(capacity, std::optional(store.manifest.memory_capacity));
  }
  store.memory_capacity = *capacity;
}

std::vector<UniqueFd> keep_cleaners_out(SupervisorClient& supervisor, int root,
                                        const std::string& path) {
  std::vector<UniqueFd> locks;
  for (const char* name : {".", "data", "meta"}) {
    const UniqueFd opened(::openat(root, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    if (!opened && errno == ENOENT) {
      continue;  // other backends have no meta
    }
    Result<UniqueFd> held = fail_errno();
    if (opened) {
      held = supervisor.hold_store(opened);
    }
    if (held && ::flock(held->get(), LOCK_SH | LOCK_NB) != 0) {
      held = fail_errno();
    }
    if (held) {
      locks.push_back(std::move(*held));
    } else {
      log::warn(
          "event=store_not_locked directory={}/{} reason=\"{}\" note=\"systemd-tmpfiles may clean "
          "it\"",
          path, name, describe(held.error()));
    }
  }
  return locks;
}

// Completes a ground that is an ordinary directory of the user's in `parent`.
Result<Ground> find_directory(const SetUp& how, unsigned number, const std::string& parent,
                              Ground ground, bool must_be_there) {
  const std::string name = parent + "/efs-" + std::to_string(::geteuid()) + "-" + how.config.name;
  ground.path = number == 0 ? name : name + "." + std::to_string(number);
  auto root = private_directory(ground.path, must_be_there);
  if (!root) {
    return std::unexpected(root.error());
  }
  ground.root = std::move(root->fd);
  ground.left = root->left;
  ground.directory = ground.path;
  // A store in memory without a limit could exhaust the machine, so the daemon counts every byte.
  const config::Backend& backend = how.config.backends.at(number);
  ground.options.strict =
      ground.options.capacity && (is_memory(parent) || backend.enforce == config::Enforce::strict);
  return ground;
}

Result<Ground> find_ground(const SetUp& how, unsigned number, bool must_be_there) {
  const config::Backend& backend = how.config.backends.at(number);
  const bool dram = backend.type == config::BackendType::dram;
  const std::string parent = dram ? "/dev/shm" : backend.daxfs;
  Ground ground;
  ground.options.kind = dram ? "dram" : "fsdax";
  auto given = choose_capacity(how, backend);
  if (!given) {
    return std::unexpected(given.error());
  }
  ground.options.capacity = *given;
  const auto capacity = ground.options.capacity;
  if (!dram && !std::filesystem::is_directory(parent)) {
    return fail(ENOENT, "backend " + backend.id + ": daxfs " + parent + " is not a directory");
  }
  if (capacity && how.privileged && (dram || is_memory(parent))) {
    return find_memory(how, number, std::move(ground), must_be_there);
  }
  return find_directory(how, number, parent, std::move(ground), must_be_there);
}

// On failure removes nothing unless it holds the lock: the store may belong to another start by
// now.
Result<Store> set_up_store(const SetUp& how) {
  auto ground = find_ground(how, 0, false);
  if (!ground) {
    return std::unexpected(ground.error());
  }
  const std::string made = ground->left ? "" : ground->directory;
  Store store;
  Status done = finish(std::move(*ground), how, store);
  if (done) {
    done = add_members(how, store);
  }
  if (!done) {
    store.backend.reset();
    if (store.lock && !store.left) {
      remove_store(made);
    }
    return std::unexpected(done.error());
  }
  if (store.was_removed) {
    EFS_TRY(image::forget_removal(store.metadata.get(), store.path));
  }
  return store;
}

Status write_manifests(const Store& store, const config::JobConfig& config,
                       const std::string& instance, const Standing& standing) {
  image::Manifest manifest{.name = config.name,
                           .uid = ::geteuid(),
                           .root_dir = config.root_dir,
                           .mount_dir = config.mount_dir,
                           .results_dir = config.results_dir,
                           .log_file = config.log_file,
                           .job_file = config.source,
                           .start_options = config.start_options,
                           .store = store.path,
                           .kind = store.kind,
                           .instance = store.instance,
                           .life = store.life,
                           .boot_id = image::boot_id(),
                           .left = standing.left,
                           .journal_to = standing.journal_to,
                           .contents = standing.contents,
                           .node = config.node,
                           .nodes = config.nodes,
                           .merge_since = config.merge_since,
                           .merges = config.merges,
                           .results_mount = config.results_mount,
                           .mounts_below = config.mounts_below,
                           .made_mount_dir = standing.made_mount_dir,
                           .members = manifests_of(store, config),
                           .memory_capacity = store.memory_capacity,
                           .circumstances = config.circumstances};
  // Write the other backends' manifests first: once the first backend has a manifest, each other
  // backend can be checked against it.
  for (std::size_t i = 0; i < store.others.size(); ++i) {
    manifest.place = static_cast<unsigned>(i + 1);
    EFS_TRY(image::write_manifest(store.others[i].root.get(), manifest));
  }
  manifest.place = 0;
  if (standing.left == image::ShutdownState::in_use) {
    EFS_TRY(image::write_job_file(store.metadata.get(), config.text));
  }
  EFS_TRY(image::write_manifest(store.metadata.get(), manifest));
  const UniqueFd directory(
      ::open(instance.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory) {
    return fail_errno(instance);
  }
  return image::write_manifest(directory.get(), manifest);
}

void remove_store(const std::string& directory) {
  if (directory.empty()) {
    return;
  }
  const UniqueFd root(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  Status removed = root ? image::remove_content(root.get(), directory) : fail_errno();
  if (removed && ::rmdir(directory.c_str()) != 0) {
    removed = fail_errno();
  }
  if (!removed) {
    log::warn("event=store_not_removed directory={} reason=\"{}\"", directory,
              describe(removed.error()));
  }
}

void remove_store(const Store& store) {
  const UniqueFd metadata(
      ::open((store.path + "/meta").c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (const Status begun = metadata ? image::begin_removal(metadata.get()) : Status(); !begun) {
    log::warn("event=store_not_removed directory={} reason=\"{}\"", store.path,
              describe(begun.error()));
  }
  for (const auto& member : store.others) {
    remove_store(member.directory);
  }
  remove_store(store.directory);
}

}  // namespace efs::daemon
