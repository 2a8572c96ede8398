// SPDX-License-Identifier: BSD-3-Clause
#include "image/image.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "backends/fsdax.hpp"
#include "backends/virtual_device.hpp"
#include "image/contents.hpp"

namespace efs::image {
namespace {

UniqueFd open_directory(int at, const char* name) {
  return UniqueFd(::openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

bool is_of(uid_t owner, const UniqueFd& fd) {
  struct stat st{};
  return ::fstat(fd.get(), &st) == 0 && st.st_uid == owner;
}

// The owner of the directory determines whose rights are used. All files in the store must belong
// to that user.
Result<Directories> open_store(UniqueFd root, const std::string& path) {
  Directories store{.path = path, .root = std::move(root), .metadata = {}, .data = {}, .owner = 0};
  store.metadata = open_directory(store.root.get(), "meta");
  struct stat top{}, journal{};
  if (!store.metadata ||
      ::fstatat(store.metadata.get(), "journal", &journal, AT_SYMLINK_NOFOLLOW) != 0) {
    return fail(ENOENT, path + ": no image of efs is there");
  }
  store.data = open_directory(store.root.get(), "data");
  if (!store.data) {
    return fail(EPROTO, path + ": an image without containers (no directory data)");
  }
  if (::fstat(store.root.get(), &top) != 0) {
    return fail_errno(path);
  }
  store.owner = top.st_uid;
  if (journal.st_uid != store.owner || !is_of(store.owner, store.metadata) ||
      !is_of(store.owner, store.data)) {
    return fail(EPERM, path + ": its contents do not belong to its owner");
  }
  return store;
}

// Opens the store that the manifest in the instance's directory `root` names.
Result<Directories> open_named_store(const UniqueFd& root, const std::string& path) {
  const auto manifest = recover_manifest(root.get());
  if (!manifest) {
    return fail(ENOENT, path + ": no image of efs is there");
  }
  UniqueFd elsewhere(
      ::open(manifest->store.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!elsewhere) {
    return fail(ENOENT, manifest->store + ", where the buffer of " + manifest->name +
                            " was, is gone" +
                            (manifest->boot_id != boot_id()
                                 ? ": the machine was restarted, and memory does not survive that"
                                 : ""));
  }
  struct stat instance{}, st{};
  if (::fstat(root.get(), &instance) != 0 || ::fstat(elsewhere.get(), &st) != 0 ||
      st.st_uid != instance.st_uid) {
    return fail(EPERM, manifest->store + " does not belong to the owner of " + path);
  }
  return open_store(std::move(elsewhere), manifest->store);
}

}  // namespace

Result<Directories> find_store(const std::string& path) {
  UniqueFd root(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root) {
    return fail_errno(path);
  }
  struct stat st{};
  if (::fstatat(root.get(), "meta/journal", &st, AT_SYMLINK_NOFOLLOW) == 0) {
    return open_store(std::move(root), path);
  }
  if (auto below = open_directory(root.get(), "store");
      below && ::fstatat(below.get(), "meta/journal", &st, AT_SYMLINK_NOFOLLOW) == 0) {
    if (::fstat(root.get(), &st) != 0 || !is_of(st.st_uid, below)) {
      return fail(EPERM, path + "/store does not belong to the owner of " + path);
    }
    return open_store(std::move(below), path + "/store");
  }
  return open_named_store(root, path);
}

namespace {

Result<std::unique_ptr<Backend>> open_one(UniqueFd data, const std::string& kind, bool read_only) {
  FsdaxOptions options;
  options.directory = std::move(data);
  options.read_only = read_only;
  options.kind = kind;
  return make_fsdax(std::move(options));
}

// Returns an error unless the directory `root` belongs to this instance's backend of this index.
Status refuse_other_member(const UniqueFd& root, const Manifest& manifest, unsigned place) {
  const auto own = recover_manifest(root.get());
  if (!own) {
    return fail(own.error().code, "its manifest cannot be used (" + describe(own.error()) + ")");
  }
  if (own->name != manifest.name || own->store != manifest.store || own->place != place ||
      own->instance.contradicts(manifest.instance)) {
    return fail(EPROTO, "it belongs to another instance");
  }
  return {};
}

// Opens the data of a later backend. ENOENT if it is missing; EPERM if it is not the expected one.
Result<UniqueFd> data_of(const Directories& store, const Manifest& manifest, unsigned place) {
  const UniqueFd root(::open(manifest.members[place].path.c_str(),
                             O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!root) {
    return fail(errno,
                manifest.boot_id != boot_id()
                    ? "it is gone; the machine was restarted, and memory does not survive that"
                    : "it is gone");
  }
  struct stat st{};
  if (::fstat(root.get(), &st) != 0) {
    return fail_errno("it");
  }
  if (st.st_uid != store.owner) {
    return fail(EPERM, "it belongs to another user");
  }
  EFS_TRY(refuse_other_member(root, manifest, place));
  UniqueFd data = open_directory(root.get(), "data");
  if (!data) {
    return fail(ENOENT, "it has no directory data");
  }
  EFS_TRY(refuse_other_containers(data.get(), manifest.instance, "its data"));
  return data;
}

}  // namespace

Status mark_containers(int data, const store::InstanceId& instance) {
  const std::string text = store::to_string(instance);
  if (::unlinkat(data, owner_link, 0) != 0 && errno != ENOENT) {
    return fail_errno(std::string("data/") + owner_link);
  }
  (void)::fsetxattr(data, label_name, "1", 1, 0);  // if this succeeds, containers can have labels
                                                   // too
  if (::symlinkat(text.c_str(), data, owner_link) != 0 || ::fsync(data) != 0) {
    return fail_errno(std::string("data/") + owner_link);
  }
  return {};
}

Status refuse_other_containers(int data, const store::InstanceId& instance,
                               const std::string& path) {
  std::array<char, 64> text{};
  const ssize_t length = ::readlinkat(data, owner_link, text.data(), text.size());
  const auto there = length > 0
                         ? store::instance_id_of({text.data(), static_cast<std::size_t>(length)})
                         : store::InstanceId{};
  if (!there.contradicts(instance)) {
    return {};
  }
  return fail(EUCLEAN, path + ": the containers belong to another instance (" +
                           store::to_string(there) + ", and this store to " +
                           store::to_string(instance) +
                           "); nothing was changed. Restore the containers of this store");
}

Result<Backends> open_backends(const Directories& store, const Manifest& manifest, bool read_only) {
  Backends all;
  EFS_TRY(refuse_other_containers(store.data.get(), manifest.instance, store.path + "/data"));
  auto first =
      open_one(UniqueFd(::fcntl(store.data.get(), F_DUPFD_CLOEXEC, 0)), manifest.kind, read_only);
  if (!first) {
    return std::unexpected(first.error());
  }
  if (manifest.members.size() < 2) {
    all.backend = std::move(*first);
    return all;
  }
  VirtualDeviceOptions options;
  options.members.push_back({.id = manifest.members.front().id, .backend = std::move(*first)});
  for (unsigned place = 1; place < manifest.members.size(); ++place) {
    const Member& member = manifest.members[place];
    auto data = data_of(store, manifest, place);
    auto backend =
        data ? open_one(std::move(*data), member.kind, read_only) : std::unexpected(data.error());
    if (backend) {
      options.members.push_back({.id = member.id, .backend = std::move(*backend)});
    } else {
      all.missing.push_back(member.id + " (" + member.path + "): " + describe(backend.error()));
    }
  }
  auto device = make_virtual_device(std::move(options));
  if (!device) {
    return fail(device.error().code, store.path + ": " + describe(device.error()));
  }
  all.backend = std::move(*device);
  return all;
}

Result<Directories> find_own_store(const std::string& path) {
  auto store = find_store(path);
  if (store && ::geteuid() == 0 && store->owner != 0) {
    return fail(EPERM, store->path + " belongs to user " + std::to_string(store->owner) +
                           ", and root works on it as that user only");
  }
  return store;
}

Result<UniqueFd> lock_store(const Directories& store, Hold hold) {
  UniqueFd fd(::openat(
      store.metadata.get(), "lock",
      (hold == Hold::to_change ? O_RDWR | O_CREAT : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
      0600));
  if (!fd) {
    if (errno == ENOENT && hold != Hold::to_change) {
      return UniqueFd();  // the store was never in use
    }
    return fail_errno(store.path + "/meta/lock");
  }
  if (::flock(fd.get(), (hold == Hold::to_change ? LOCK_EX : LOCK_SH) | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      return fail(EBUSY,
                  store.path + " is in use by a running instance or another efs; stop that first");
    }
    return fail_errno(store.path + "/meta/lock");
  }
  return fd;
}

// Salvage excludes salvage but not readers, so it uses a second lock: on the directory. On a file
// system without locks on directories (NFS), two salvages can run together.
Result<UniqueFd> only_one_brings_out(const Directories& store) {
  UniqueFd fd(::openat(store.metadata.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) {
    return fail_errno(store.path + "/meta");
  }
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return fail(EBUSY, "another efs salvage of " + store.path + " runs; wait until it has ended");
  }
  return fd;
}

std::string what_is_missing(const Image& image) {
  const auto& met = image.filesystem->recovery();
  const std::string last = std::to_string(met.journal.sequence);
  if (met.journal.settled) {
    return "the journal is damaged behind record " + last +
           ", although later records had reached the medium";
  }
  if (!image.rebooted) {  // otherwise power loss explains this
    if (met.journal.cut_short) {
      return "the journal is cut short";
    }
    if (met.journal.followed) {
      return "the journal is damaged behind record " + last + ", and good records follow that";
    }
    if (met.journal.spoilt) {
      return "the last record of the journal, behind record " + last + ", is damaged";
    }
  }
  if (met.journal.incomplete) {
    return "the journal is damaged, cut short, or older than its store: it ends before records "
           "that it had";
  }
  if (image.rebooted) {
    return "";
  }
  return met.not_the_last ? "the journal is older than its store, or cut short: containers have "
                            "numbers above its last"
                          : "";
}

// A missing disk may return, and then only the journal knows the names of its containers.
bool is_brought_out(const Image& image) {
  return image.missing.empty() && (image.manifest.left == ShutdownState::salvaged ||
                                   image.manifest.left == ShutdownState::kept);
}

Result<HeldStore> hold_store(const std::string& path, Hold hold) {
  HeldStore held;
  auto found = find_own_store(path);
  if (!found) {
    return std::unexpected(found.error());
  }
  held.directories = std::move(*found);
  auto lock = lock_store(held.directories, hold);
  if (!lock) {
    return std::unexpected(lock.error());
  }
  held.lock = std::move(*lock);
  if (hold == Hold::to_bring_out) {
    auto alone = only_one_brings_out(held.directories);
    if (!alone) {
      return std::unexpected(alone.error());
    }
    held.bringing_out = std::move(*alone);
  }
  auto manifest = read_manifest(held.directories.metadata.get());
  if (!manifest) {
    held.manifest_problem = held.directories.path + "/meta/" + describe(manifest.error());
  }
  if (!manifest) {
    manifest = recover_manifest(held.directories.metadata.get());
  }
  if (!manifest) {
    return fail(manifest.error().code,
                held.manifest_problem +
                    ", and so is its previous version. Replace it with instance.json of the "
                    "instance's directory, if that is good");
  }
  held.manifest = std::move(*manifest);
  held.rebooted = held.manifest.boot_id != boot_id();
  auto backends = open_backends(held.directories, held.manifest, true);
  if (!backends) {
    return std::unexpected(backends.error());
  }
  held.backend = std::move(backends->backend);
  held.missing = std::move(backends->missing);
  return held;
}

Result<store::ReplayEnd> replay_names(const Directories& store, const Manifest& manifest,
                                      bool rebooted, fs::Namespace& names) {
  const auto medium = store::directory_medium(store.metadata.get());
  std::uint64_t skipped = 0;
  const auto apply = [&](const store::Record& stored) -> Status {
    const auto record = fs::decode(stored.payload, stored.version);
    if (!record) {
      return std::unexpected(record.error());
    }
    skipped += *record ? 0 : 1;
    return *record ? names.apply(**record) : Status{};
  };
  auto end = store::Journal::scan(*medium, "journal", apply,
                                  {.after_power_loss = rebooted,
                                   .instance = manifest.instance,
                                   .complete_to = manifest.journal_to});
  if (end) {
    end->skipped = skipped;
  }
  return end;
}

bool is_damaged(const store::ReplayEnd& end, bool rebooted) {
  return end.settled || end.incomplete ||
         (!rebooted && (end.cut_short || end.followed || end.spoilt));
}

// The changed contents by the numbers of their files, which differ for those that have moved.
std::map<std::uint64_t, std::string> by_file(const std::map<std::uint64_t, std::string>& changed,
                                             fs::Staging staging) {
  std::map<std::uint64_t, std::string> result = changed;
  const auto items = staging.walk();
  if (!items) {
    return result;
  }
  for (const auto& item : *items) {
    if (const auto how = changed.find(item.content.container); how != changed.end()) {
      result.emplace(item.ino, how->second);
    }
  }
  return result;
}

Result<Image> open_image(const std::string& path, Hold hold) {
  auto held = hold_store(path, hold);
  if (!held) {
    return std::unexpected(held.error());
  }
  Image image;
  static_cast<HeldStore&>(image) = std::move(*held);
  const int metadata = image.directories.metadata.get();
  auto config = job_of(metadata, image.manifest);
  if (!config) {
    image.job_problem = image.directories.path + "/meta/" + describe(config.error());
  }
  image.config = config ? std::move(*config) : job_without_rules(image.manifest);
  if (auto changed = changed_contents(metadata, image.manifest, *image.backend)) {
    image.changed = std::move(*changed);
  } else {
    image.contents_problem = describe(changed.error());
  }
  auto filesystem = fs::Filesystem::open(*image.backend, {.metadata_directory = metadata,
                                                          .after_power_loss = image.rebooted,
                                                          .read_only = true,
                                                          .instance = image.manifest.instance,
                                                          .journal_to = image.manifest.journal_to});
  if (!filesystem) {
    const bool is_damaged = filesystem.error().code == EUCLEAN || filesystem.error().code == EPROTO;
    return fail(
        filesystem.error().code,
        image.directories.path + ": " + describe(filesystem.error()) +
            (is_damaged ? ". Export the contents without names: efs salvage --lost --to DIR " +
                              image.directories.path
                        : ""));
  }
  image.filesystem = std::move(*filesystem);
  if (!image.changed.empty()) {
    image.changed = by_file(image.changed, fs::Staging(*image.filesystem));
  }
  return image;
}

}  // namespace efs::image
