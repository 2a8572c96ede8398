// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/memory_stores.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <string>

#include "base/memory_bound.hpp"

namespace efs::daemon {
namespace {

const char* huge_option(bool huge_pages) {
  return huge_pages ? "huge=within_size" : "huge=never";
}

// With passthrough the options of this mount decide whether a read updates atime.
unsigned long flags_of_mount(AccessTimes times) {
  return MS_NOSUID | MS_NODEV |
         (times == AccessTimes::kept     ? MS_NOATIME
          : times == AccessTimes::strict ? MS_STRICTATIME
                                         : 0);
}

std::string path_of(const UniqueFd& fd) {
  return "/proc/self/fd/" + std::to_string(fd.get());
}

}  // namespace

// The instance's directory belongs to the user: do not follow a symbolic link that the user put in
// the place of a name.
Result<UniqueFd> MemoryStores::point_of(const Ask& ask) const {
  if (ask.number == 0) {
    return UniqueFd(::fcntl(first_.get(), F_DUPFD_CLOEXEC, 0));
  }
  const std::string name = control::store_name(ask.number);
  if (!ask.must_be_there && ::mkdirat(instance_, name.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail_errno(name);
  }
  UniqueFd point(::openat(instance_, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!point) {
    return fail_errno(name);
  }
  return point;
}

// True if an earlier supervisor mounted the tmpfs here: the user can neither mount in this
// directory nor move a mount point.
bool MemoryStores::has_mounted(const UniqueFd& point) const {
  struct stat store{}, instance{};
  struct statfs fs{};
  return ::fstat(point.get(), &store) == 0 && ::fstat(instance_, &instance) == 0 &&
         ::fstatfs(point.get(), &fs) == 0 && fs.f_type == TMPFS_MAGIC &&
         store.st_dev != instance.st_dev;
}

// The tmpfs of an earlier instance may grow but never shrink: its contents might no longer fit.
void MemoryStores::refit(const std::string& where, unsigned long flags, const Ask& ask) {
  (void)::mount(nullptr, where.c_str(), nullptr, MS_REMOUNT | MS_BIND | flags, nullptr);
  (void)::mount(nullptr, where.c_str(), nullptr, MS_REMOUNT | flags, huge_option(ask.huge_pages));
  struct statfs fs{};
  if (::statfs(where.c_str(), &fs) == 0 &&
      static_cast<std::uint64_t>(fs.f_blocks) * static_cast<std::uint64_t>(fs.f_bsize) <
          ask.bytes) {
    (void)::mount(nullptr, where.c_str(), nullptr, MS_REMOUNT | flags,
                  ("size=" + std::to_string(ask.bytes)).c_str());
  }
}

Result<MemoryStores::Given> MemoryStores::give(const Ask& ask) {
  if (ask.number >= mounted_.size()) {
    return fail(EINVAL, "too many stores in memory");
  }
  if (mounted_[ask.number]) {
    return root_of(ask.number, true);  // a successor
  }
  auto point = point_of(ask);
  if (!point) {
    return std::unexpected(point.error());
  }
  const bool left = has_mounted(*point);
  if (!left && ask.must_be_there) {
    return fail(ENOENT, "it is not mounted any more");
  }
  const std::string common = "size=" + std::to_string(ask.bytes) +
                             ",nr_inodes=0,mode=0700,uid=" + std::to_string(uid_) +
                             ",gid=" + std::to_string(gid_);
  const std::string where = path_of(*point);
  const unsigned long flags = flags_of_mount(ask.access_times);
  // Huge pages make the first access to a file several times as fast. A sparse file then takes 2
  // MiB for each accessed range of 2 MiB, until it is closed (fs/free_zeros.cpp). The job file's
  // `huge` controls this.
  if (left) {
    refit(where, flags, ask);
  } else if (::mount(memory_store_source, where.c_str(), "tmpfs", flags,
                     (common + "," + huge_option(ask.huge_pages)).c_str()) != 0 &&
             ::mount(memory_store_source, where.c_str(), "tmpfs", flags, common.c_str()) != 0) {
    return fail_errno("cannot mount a tmpfs for the store");
  }
  mounted_[ask.number] = true;
  return root_of(ask.number, left);
}

Result<MemoryStores::Given> MemoryStores::root_of(unsigned number, bool left) const {
  // Open the root by its name in the instance's directory: the old descriptor still refers to the
  // directory below the mount.
  Given given{.root = UniqueFd(::openat(instance_, control::store_name(number).c_str(),
                                        O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)),
              .left = left};
  struct stat st{};
  if (!given.root || !has_mounted(given.root) || ::fstat(given.root.get(), &st) != 0) {
    return fail(EIO, "the store's tmpfs cannot be opened");
  }
  given.device = st.st_dev;
  return given;
}

}  // namespace efs::daemon
