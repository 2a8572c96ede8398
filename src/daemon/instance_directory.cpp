// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/instance_directory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file_lock.hpp"
#include "control/instances.hpp"

namespace efs::daemon {
namespace {

// True if efs made this lock for `user`, and the user has not replaced it.
bool is_lock_of(const User& user, const UniqueFd& lock) {
  struct stat st{};
  return ::fstat(lock.get(), &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1 &&
         st.st_uid == user.uid;
}

// A lock belongs to an open file description. Open the directory again, so that no duplicate of the
// descriptor shares the lock.
UniqueFd reopened(const UniqueFd& directory) {
  return UniqueFd(::openat(directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

std::string taken(const std::string& base, const std::string& name) {
  return "an instance named " + name + " is there already (" + base + "/" + name +
         "); stop it (efs stop " + name + ") or choose another --name";
}

// True if the name in the runtime directory still leads to this directory.
bool leads_to(const UniqueFd& base, const std::string& name, const struct stat& directory) {
  struct stat now{};
  return ::fstatat(base.get(), name.c_str(), &now, AT_SYMLINK_NOFOLLOW) == 0 &&
         now.st_ino == directory.st_ino && now.st_dev == directory.st_dev;
}

// EAGAIN: the previous owner has removed the directory after this process opened it.
Status lock_directory(InstanceDirectory& made, const std::string& base, const std::string& name,
                      const User& user, bool is_new) {
  made.directory.reset(
      ::openat(made.base.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat st{};
  if (!made.directory && errno == ENOENT) {
    return fail(EAGAIN, base + "/" + name);
  }
  if (!made.directory || ::fstat(made.directory.get(), &st) != 0) {
    return fail_errno(base + "/" + name);
  }
  if (!is_new && st.st_uid != user.uid && st.st_uid != ::geteuid()) {
    return fail(EEXIST, taken(base, name) + ": it belongs to another user");
  }
  made.directory_lock = reopened(made.directory);
  if (!lock_soon(made.directory_lock)) {
    return fail(EEXIST, taken(base, name));
  }
  return leads_to(made.base, name, st)
             ? Status{}
             : fail(EAGAIN, base + "/" + name + " has just been removed; try again");
}

Status open_store_directory(InstanceDirectory& made, const std::string& path) {
  made.store.reset(
      ::openat(made.directory.get(), "store", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  return made.store ? Status() : fail_errno(path + "/store");
}

Status fill(InstanceDirectory& made, const std::string& path, const User& user) {
  made.lock.reset(::openat(made.directory.get(), control::lock_name,
                           O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
  if (!made.lock || !lock_soon(made.lock)) {
    return fail_errno(path + "/lock");
  }
  if (::mkdirat(made.directory.get(), "store", 0700) != 0) {
    return fail_errno(path + "/store");
  }
  EFS_TRY(open_store_directory(made, path));
  if (::geteuid() == 0 && (::fchown(made.lock.get(), user.uid, user.gid) != 0 ||
                           ::fchown(made.directory.get(), user.uid, user.gid) != 0)) {
    return fail_errno(path);
  }
  return {};
}

// True if a process was killed while it created or removed the directory. Such a directory may
// still contain a lock.
bool is_bare(const UniqueFd& directory) {
  ::unlinkat(directory.get(), "store", AT_REMOVEDIR);
  DIR* entries = ::fdopendir(reopened(directory).release());
  int others = 0;
  while (const dirent* entry = entries != nullptr ? ::readdir(entries) : nullptr) {
    if (const std::string_view name = entry->d_name;
        name != "." && name != ".." && name != control::lock_name) {
      ++others;
    }
  }
  if (entries == nullptr) {
    return false;
  }
  ::closedir(entries);
  return others == 0;
}

Status fill_again(InstanceDirectory& made, const std::string& path, const User& user) {
  made.lock.reset();
  ::unlinkat(made.directory.get(), control::lock_name, 0);
  return fill(made, path, user);
}

// Takes the lock of an old directory. `problem`: the errno of its open.
Status take_lock(const InstanceDirectory& made, int problem, const std::string& base,
                 const std::string& name, const User& user) {
  if (problem == ENOENT) {
    return fail(EEXIST, taken(base, name) + ": it was not made by efs");
  }
  if (!made.lock) {
    return fail(problem, base + "/" + name + "/lock");
  }
  if (!is_lock_of(user, made.lock)) {
    return fail(EEXIST, taken(base, name) + ": its lock was not made by efs");
  }
  return lock_soon(made.lock) ? Status() : fail(EEXIST, taken(base, name));
}

// Call this with the lock of an old directory.
Status reuse(InstanceDirectory& made, const std::string& path) {
  if (::mkdirat(made.directory.get(), "store", 0700) != 0 && errno != EEXIST) {
    return fail_errno(path + "/store");
  }
  EFS_TRY(open_store_directory(made, path));
  for (const char* left : {"control.sock", "parts", "listed"}) {
    ::unlinkat(made.directory.get(), left, 0);
  }
  made.was_there = true;
  return {};
}

// Reuses the directory of an instance that is dead or that `efs stop --keep` left. The user could
// change the directory meanwhile: it must still belong to the user, and no symbolic link in it is
// followed.
Status take_old(InstanceDirectory& made, const std::string& base, const std::string& name,
                const User& user) {
  EFS_TRY(lock_directory(made, base, name, user, false));
  const std::string path = base + "/" + name;
  made.lock.reset(::openat(made.directory.get(), control::lock_name,
                           O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  const int problem = made.lock ? 0 : errno;
  if (problem == ENOENT && is_bare(made.directory)) {
    return fill(made, path, user);
  }
  struct stat st{};
  if (::fstat(made.directory.get(), &st) != 0) {
    return fail_errno(path);
  }
  // The directory becomes the user's in the last step of its creation.
  if (made.lock && st.st_uid != user.uid && lock_soon(made.lock) && is_bare(made.directory)) {
    return fill_again(made, path, user);
  }
  if (st.st_uid != user.uid) {
    return fail(EEXIST, taken(base, name) + ": it belongs to another user");
  }
  EFS_TRY(take_lock(made, problem, base, name, user));
  return reuse(made, path);
}

// The directory still belongs to root.
Status take_new(InstanceDirectory& made, const std::string& base, const std::string& name,
                const User& user) {
  EFS_TRY(lock_directory(made, base, name, user, true));
  const Status filled = fill(made, base + "/" + name, user);
  if (!filled) {
    remove_instance_directory(made, name);
  }
  return filled;
}

// Opens the directory of all instances, or makes it. It must belong to this process's user.
Result<UniqueFd> open_runtime_directory(const std::string& path) {
  if (::mkdir(path.c_str(), ::geteuid() == 0 ? 0755 : 0700) != 0 && errno != EEXIST) {
    return fail_errno("runtime directory " + path);
  }
  UniqueFd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat st{};
  if (!directory || ::fstat(directory.get(), &st) != 0) {
    return fail_errno("runtime directory " + path);
  }
  if (st.st_uid != ::geteuid()) {
    return fail(EPERM, "runtime directory " + path +
                           " belongs to another user; set EFS_RUNTIME_DIR to one of your own");
  }
  return directory;
}

}  // namespace

Result<InstanceDirectory> make_instance_directory(const std::string& base, const std::string& name,
                                                  const User& user) {
  InstanceDirectory made;
  auto opened = open_runtime_directory(base);
  if (!opened) {
    return std::unexpected(opened.error());
  }
  made.base = std::move(*opened);
  constexpr int most_tries = 10;  // an efs clean may remove the directory each time
  for (int tries = 1;; ++tries) {
    const bool is_new = ::mkdirat(made.base.get(), name.c_str(), 0700) == 0;
    if (!is_new && errno != EEXIST) {
      return fail_errno(base + "/" + name);
    }
    const Status done =
        is_new ? take_new(made, base, name, user) : take_old(made, base, name, user);
    if (done) {
      return made;
    }
    if (done.error().code != EAGAIN || tries == most_tries) {
      return std::unexpected(done.error());
    }
  }
}

void remove_instance_directory(InstanceDirectory& made, const std::string& name) {
  // Keep the tmpfs open until all names and the lock are gone. The kernel needs a tenth of a second
  // per gibibyte to free the store's memory, and a process that waits for the lock must not wait
  // for that.
  std::vector<UniqueFd> store_roots;
  for (unsigned number = 0; number < control::most_stores; ++number) {
    store_roots.emplace_back(::openat(made.directory.get(), control::store_name(number).c_str(),
                                      O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  }
  (void)control::drop_stores(made.directory.get());
  for (const char* file : control::files_of_an_instance) {
    ::unlinkat(made.directory.get(), file, 0);
  }
  ::unlinkat(made.base.get(), name.c_str(), AT_REMOVEDIR);
  made.lock.reset();
  made.directory_lock.reset();
}

void leave_instance_directory(const InstanceDirectory& made) {
  for (const char* name :
       {"control.sock", "job.yaml", "status.json", "status.json.efs-partial", "parts",
        "parts.efs-partial", "listed", "listed.efs-partial", "tasks", "unloaded"}) {
    ::unlinkat(made.directory.get(), name, 0);
  }
}

}  // namespace efs::daemon
