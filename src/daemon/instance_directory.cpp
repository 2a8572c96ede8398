#include "daemon/instance_directory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "base/file_lock.hpp"
#include "control/instances.hpp"

namespace efs::daemon {
namespace {

// Made by efs for this user, and nothing that he put in its place.
bool is_lock_of(const User& user, const UniqueFd& lock) {
  struct stat st {};
  return ::fstat(lock.get(), &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1 && st.st_uid == user.uid;
}

// A lock belongs to what open(2) returned, and to its duplicates: one that nobody else gets.
UniqueFd reopened(const UniqueFd& directory) { return UniqueFd(::openat(directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)); }

// The directory of an instance that is dead, or was left by `efs stop --keep`. It was the user's to change meanwhile: it
// must still be his, and nothing in it is followed.
Result<InstanceDirectory> take_over_directory(InstanceDirectory made, const std::string& base, const std::string& name, const User& user) {
  const std::string path = base + "/" + name;
  const std::string taken = "an instance named " + name + " is there already (" + path + "); stop it (efs stop " + name + ") or choose another --name";
  made.directory.reset(::openat(made.base.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat st {};
  if (!made.directory || ::fstat(made.directory.get(), &st) != 0) return fail_errno(path);
  if (st.st_uid != user.uid) return fail(EEXIST, taken + ": it is another user's");
  made.lock.reset(::openat(made.directory.get(), "lock", O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!made.lock && errno == ENOENT) return fail(EEXIST, taken + ": it was not made by efs");
  if (!made.lock) return fail_errno(path + "/lock");
  if (!is_lock_of(user, made.lock)) return fail(EEXIST, taken + ": its lock was not made by efs");
  made.directory_lock = reopened(made.directory);
  if (!lock_soon(made.directory_lock) || !lock_soon(made.lock)) return fail(EEXIST, taken);
  // Whoever held the lock before may have removed the directory behind its name while we waited for nothing.
  struct stat now {};
  if (::fstatat(made.base.get(), name.c_str(), &now, AT_SYMLINK_NOFOLLOW) != 0 || now.st_ino != st.st_ino || now.st_dev != st.st_dev) return fail(EAGAIN, path + " has just been removed; try again");
  if (::mkdirat(made.directory.get(), "store", 0700) != 0 && errno != EEXIST) return fail_errno(path + "/store");
  made.store.reset(::openat(made.directory.get(), "store", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!made.store) return fail_errno(path + "/store");
  for (const char* left : {"control.sock", "parts", "listed"}) ::unlinkat(made.directory.get(), left, 0);
  made.was_there = true;
  return made;
}

}  // namespace

Result<InstanceDirectory> make_instance_directory(const std::string& base, const std::string& name, const User& user) {
  InstanceDirectory made;
  if (::mkdir(base.c_str(), ::geteuid() == 0 ? 0755 : 0700) != 0 && errno != EEXIST) return fail_errno("runtime directory " + base);
  made.base.reset(::open(base.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat st {};
  if (!made.base || ::fstat(made.base.get(), &st) != 0) return fail_errno("runtime directory " + base);
  if (st.st_uid != ::geteuid()) return fail(EPERM, "runtime directory " + base + " belongs to another user; set EFS_RUNTIME_DIR to one of your own");
  if (::mkdirat(made.base.get(), name.c_str(), 0700) != 0) {
    if (errno != EEXIST) return fail_errno(base + "/" + name);
    return take_over_directory(std::move(made), base, name, user);
  }
  made.directory.reset(::openat(made.base.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!made.directory || ::mkdirat(made.directory.get(), "store", 0700) != 0) return fail_errno(base + "/" + name);
  made.store.reset(::openat(made.directory.get(), "store", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  made.lock.reset(::openat(made.directory.get(), "lock", O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
  if (!made.store || !made.lock || ::flock(made.lock.get(), LOCK_EX | LOCK_NB) != 0) return fail_errno(base + "/" + name + "/lock");
  made.directory_lock = reopened(made.directory);
  if (!made.directory_lock || ::flock(made.directory_lock.get(), LOCK_EX | LOCK_NB) != 0) return fail_errno(base + "/" + name);
  if (::geteuid() == 0 && (::fchown(made.directory.get(), user.uid, user.gid) != 0 || ::fchown(made.lock.get(), user.uid, user.gid) != 0)) return fail_errno("chown");
  return made;
}

void remove_instance_directory(InstanceDirectory& made, const std::string& name) {
  // Held until all names and the lock are gone: giving back the memory of a store takes the kernel a tenth of a second
  // per gibibyte, and whoever waits for the lock need not wait for that.
  std::vector<UniqueFd> store_roots;
  for (unsigned number = 0; number < control::most_stores; ++number) store_roots.emplace_back(::openat(made.directory.get(), control::store_name(number).c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  (void)control::drop_stores(made.directory.get());
  for (const char* file : control::files_of_an_instance) ::unlinkat(made.directory.get(), file, 0);
  ::unlinkat(made.base.get(), name.c_str(), AT_REMOVEDIR);
  made.lock.reset();
  made.directory_lock.reset();
}

void leave_instance_directory(const InstanceDirectory& made) {
  for (const char* name : {"control.sock", "job.yaml", "status.json", "status.json.efs-partial", "parts", "parts.efs-partial", "listed", "listed.efs-partial", "tasks"}) ::unlinkat(made.directory.get(), name, 0);
}

}  // namespace efs::daemon
