// SPDX-License-Identifier: BSD-3-Clause
#include "stage/pfs/pfs_io.hpp"

#include <dirent.h>
#include <linux/limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <map>
#include <memory>
#include <string_view>

#include "base/unique_fd.hpp"
#include "config/paths.hpp"
#include "fs/acl.hpp"
#include "stage/pfs/posix_handle.hpp"

namespace efs::stage {
namespace {

/// Repeats a system call that a signal interrupted.
template <typename Call>
auto retried(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) {
    result = call();
  }
  return result;
}

Status status_of(int result) {
  if (result < 0) {
    return fail_errno();
  }
  return {};
}

class Descriptors final : public PfsCloser {
 public:
  void close(int number) noexcept override { ::close(number); }
};

Result<PfsHandle> opened(long result) {
  static PfsCloser& closer = *new Descriptors;  // never destroyed, as posix_pfs()
  if (result < 0) {
    return fail_errno();
  }
  return PfsNumbers::handle(static_cast<int>(result), closer);
}

/// Asks the server: the client of a network file system may have cached old attributes, although
/// another client has changed the file since. (Local file systems ignore the flag.) `flags`: as for
/// statx(2).
Result<struct stat> attributes_of(PfsRef at, const char* name, int flags) {
  struct statx now{};
  struct stat attributes{};
  if (::statx(fd_of(at), name, flags | AT_NO_AUTOMOUNT | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS,
              &now) != 0) {
    // Seccomp filters return EPERM for an unknown system call.
    if (errno != EPERM || ::fstatat(fd_of(at), name, &attributes, flags) != 0) {
      return fail_errno();
    }
    return attributes;
  }
  attributes.st_dev = makedev(now.stx_dev_major, now.stx_dev_minor);
  attributes.st_ino = now.stx_ino;
  attributes.st_mode = now.stx_mode;
  attributes.st_nlink = now.stx_nlink;
  attributes.st_uid = now.stx_uid;
  attributes.st_gid = now.stx_gid;
  attributes.st_rdev = makedev(now.stx_rdev_major, now.stx_rdev_minor);
  attributes.st_size = static_cast<off_t>(now.stx_size);
  attributes.st_blksize = static_cast<blksize_t>(now.stx_blksize);
  attributes.st_blocks = static_cast<blkcnt_t>(now.stx_blocks);
  attributes.st_atim = {.tv_sec = now.stx_atime.tv_sec, .tv_nsec = now.stx_atime.tv_nsec};
  attributes.st_mtim = {.tv_sec = now.stx_mtime.tv_sec, .tv_nsec = now.stx_mtime.tv_nsec};
  attributes.st_ctim = {.tv_sec = now.stx_ctime.tv_sec, .tv_nsec = now.stx_ctime.tv_nsec};
  return attributes;
}

/// The client may also have cached the name: as missing, or as leading to a file that another
/// client has replaced.
bool may_be_of_old(const Result<struct stat>& found) {
  return found ? found->st_nlink == 0 : found.error().code == ENOENT;
}

/// For kernels before 5.6 and sandboxes without openat2: opens one component after the other and
/// rejects symbolic links.
Result<PfsHandle> walk_beneath(PfsRef root, std::string_view path, int flags, mode_t mode) {
  PfsHandle held;
  PfsRef at = root;
  for (auto slash = path.find('/'); slash != std::string_view::npos; slash = path.find('/')) {
    const std::string name(path.substr(0, slash));
    path.remove_prefix(slash + 1);
    if (name.empty()) {
      continue;
    }
    auto next = opened(retried([&] {
      return ::openat(fd_of(at), name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }));
    if (!next) {
      return next;
    }
    held = std::move(*next);
    at = held;
  }
  const std::string name(path.empty() ? "." : path);
  return opened(retried(
      [&] { return ::openat(fd_of(at), name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC, mode); }));
}

class PosixPfs final : public PfsIo {
 public:
  Result<PfsHandle> open(PfsRef at, const std::string& path, int flags, mode_t mode) override {
    return opened(
        retried([&] { return ::openat(fd_of(at), path.c_str(), flags | O_CLOEXEC, mode); }));
  }

  Result<PfsHandle> open_beneath(PfsRef root, const std::string& path, int flags,
                                 mode_t mode) override {
    // openat2 would accept a ".." that stays below root; the walk rejects it.
    if (path.starts_with('/') || config::has_dot_dot(path)) {
      return fail(EXDEV);
    }
    if (path.size() >= PATH_MAX) {
      return open_in_pieces(root, path, flags, mode);
    }
    const std::string& relative = path.empty() ? here_ : path;
    open_how how{};
    how.flags = static_cast<std::uint64_t>(flags | O_NOFOLLOW | O_CLOEXEC);
    how.mode = (flags & O_CREAT) != 0 ? mode : 0;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
    auto file = opened(retried(
        [&] { return ::syscall(SYS_openat2, fd_of(root), relative.c_str(), &how, sizeof how); }));
    // EPERM: seccomp filters return it for an unknown system call; the walk then gives the true
    // result. EAGAIN: a rename elsewhere raced with RESOLVE_BENEATH.
    if (file || (file.error().code != ENOSYS && file.error().code != EPERM &&
                 file.error().code != EAGAIN)) {
      return file;
    }
    return walk_beneath(root, relative, flags, mode);
  }

  Result<std::size_t> read(PfsRef file, std::span<std::byte> into, std::uint64_t offset) override {
    const auto got = retried(
        [&] { return ::pread(fd_of(file), into.data(), into.size(), static_cast<off_t>(offset)); });
    if (got < 0) {
      return fail_errno();
    }
    return static_cast<std::size_t>(got);
  }

  Result<std::size_t> write(PfsRef file, std::span<const std::byte> from,
                            std::uint64_t offset) override {
    const auto put = retried([&] {
      return ::pwrite(fd_of(file), from.data(), from.size(), static_cast<off_t>(offset));
    });
    if (put < 0) {
      return fail_errno();
    }
    return static_cast<std::size_t>(put);
  }

  Result<std::uint64_t> seek(PfsRef file, std::uint64_t offset, int whence) override {
    const off_t at = ::lseek(fd_of(file), static_cast<off_t>(offset), whence);
    if (at < 0) {
      return fail_errno();
    }
    return static_cast<std::uint64_t>(at);
  }

  Status truncate(PfsRef file, std::uint64_t size) override {
    return status_of(retried([&] { return ::ftruncate(fd_of(file), static_cast<off_t>(size)); }));
  }

  void start_writeback(PfsRef file, std::uint64_t offset, std::uint64_t length) override {
    ::sync_file_range(fd_of(file), static_cast<off_t>(offset), static_cast<off_t>(length),
                      SYNC_FILE_RANGE_WRITE);
  }

  void will_need(PfsRef file, std::uint64_t offset, std::uint64_t length) override {
    ::posix_fadvise(fd_of(file), static_cast<off_t>(offset), static_cast<off_t>(length),
                    POSIX_FADV_WILLNEED);
  }

  void drop_cache(PfsRef file) override { ::posix_fadvise(fd_of(file), 0, 0, POSIX_FADV_DONTNEED); }

  Result<struct stat> fstat(PfsRef file) override { return attributes_of(file, "", AT_EMPTY_PATH); }

  Result<struct stat> lstat(PfsRef at, const std::string& name) override {
    auto found = attributes_of(at, name.c_str(), AT_SYMLINK_NOFOLLOW);
    // After reading the directory's attributes, the client looks up the name again if they have
    // changed.
    if (fd_of(at) != AT_FDCWD && may_be_of_old(found) && attributes_of(at, "", AT_EMPTY_PATH)) {
      found = attributes_of(at, name.c_str(), AT_SYMLINK_NOFOLLOW);
    }
    return found;
  }

  Result<Nanoseconds> birth(PfsRef at, const std::string& name, const struct stat& seen) override {
    struct statx now{};
    if (::statx(fd_of(at), name.c_str(), AT_SYMLINK_NOFOLLOW | AT_STATX_FORCE_SYNC,
                STATX_INO | STATX_BTIME, &now) != 0) {
      return fail_errno();
    }
    if (now.stx_ino != seen.st_ino) {
      return fail(ESTALE);
    }
    if ((now.stx_mask & STATX_BTIME) == 0) {
      return fail(EOPNOTSUPP);
    }
    return to_ns({.tv_sec = now.stx_btime.tv_sec, .tv_nsec = now.stx_btime.tv_nsec});
  }

  Status access(PfsRef at, const std::string& name, int mode) override {
    return status_of(::faccessat(fd_of(at), name.c_str(), mode, AT_EACCESS));
  }

  Result<std::vector<std::string>> list(PfsRef directory) override {
    // a separate file position
    UniqueFd own(::openat(fd_of(directory), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!own) {
      return fail_errno();
    }
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(own.get()), ::closedir);
    if (!stream) {
      return fail_errno();
    }
    own.release();
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(stream.get())) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") {
        names.emplace_back(name);
      }
      errno = 0;  // only errno distinguishes readdir's end from an error
    }
    if (errno != 0) {
      return fail_errno();
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  Result<std::string> readlink(PfsRef at, const std::string& name) override {
    std::array<char, PATH_MAX> target{};
    const auto length = ::readlinkat(fd_of(at), name.c_str(), target.data(), target.size());
    if (length < 0) {
      return fail_errno();
    }
    return std::string(target.data(), static_cast<std::size_t>(length));
  }

  Status mkdir(PfsRef at, const std::string& name, mode_t mode) override {
    return status_of(::mkdirat(fd_of(at), name.c_str(), mode));
  }

  Status symlink(const std::string& target, PfsRef at, const std::string& name) override {
    return status_of(::symlinkat(target.c_str(), fd_of(at), name.c_str()));
  }

  Status link(PfsRef from_at, const std::string& from, PfsRef at,
              const std::string& name) override {
    return status_of(::linkat(fd_of(from_at), from.c_str(), fd_of(at), name.c_str(), 0));
  }

  Status rename(PfsRef at, const std::string& from, const std::string& to) override {
    return status_of(::renameat(fd_of(at), from.c_str(), fd_of(at), to.c_str()));
  }

  Status rename_noreplace(PfsRef at, const std::string& from, const std::string& to) override {
    constexpr unsigned no_replace = 1;  // RENAME_NOREPLACE, which not every C library has
    return status_of(static_cast<int>(
        ::syscall(SYS_renameat2, fd_of(at), from.c_str(), fd_of(at), to.c_str(), no_replace)));
  }

  Status unlink(PfsRef at, const std::string& name) override {
    return status_of(::unlinkat(fd_of(at), name.c_str(), 0));
  }

  Status rmdir(PfsRef at, const std::string& name) override {
    return status_of(::unlinkat(fd_of(at), name.c_str(), AT_REMOVEDIR));
  }

  Result<std::map<std::string, std::string>> xattrs(PfsRef file) override {
    std::map<std::string, std::string> found;
    const auto names = xattr_names(fd_of(file));
    if (!names) {
      return std::unexpected(names.error());
    }
    for (std::size_t at = 0; at < names->size();) {
      const std::string name = names->c_str() + at;
      at += name.size() + 1;
      if (!is_copied_xattr(name)) {
        continue;
      }
      std::string value(XATTR_SIZE_MAX, '\0');
      const ssize_t size = ::fgetxattr(fd_of(file), name.c_str(), value.data(), value.size());
      if (size < 0 && errno == ENODATA) {
        continue;  // removed meanwhile
      }
      if (size < 0) {
        return fail_errno();
      }
      value.resize(static_cast<std::size_t>(size));
      found.emplace(name, std::move(value));
    }
    return found;
  }

  Status set_xattr(PfsRef file, const std::string& name, const std::string& value) override {
    return status_of(::fsetxattr(fd_of(file), name.c_str(), value.data(), value.size(), 0));
  }

  Status remove_xattr(PfsRef file, const std::string& name) override {
    return status_of(::fremovexattr(fd_of(file), name.c_str()));
  }

  Status chmod(PfsRef file, mode_t mode) override { return status_of(::fchmod(fd_of(file), mode)); }

  Status chmod_name(PfsRef at, const std::string& name, mode_t mode) override {
    return status_of(::fchmodat(fd_of(at), name.c_str(), mode, AT_SYMLINK_NOFOLLOW));
  }

  Status chown(PfsRef file, uid_t uid, gid_t gid) override {
    return status_of(::fchown(fd_of(file), uid, gid));
  }

  Status set_times(PfsRef file, Nanoseconds atime, Nanoseconds mtime) override {
    const std::array times{to_timespec(atime), to_timespec(mtime)};
    return status_of(::futimens(fd_of(file), times.data()));
  }

  Status chown_name(PfsRef at, const std::string& name, uid_t uid, gid_t gid) override {
    return status_of(::fchownat(fd_of(at), name.c_str(), uid, gid, AT_SYMLINK_NOFOLLOW));
  }

  Status set_times_name(PfsRef at, const std::string& name, Nanoseconds atime,
                        Nanoseconds mtime) override {
    const std::array times{to_timespec(atime), to_timespec(mtime)};
    return status_of(::utimensat(fd_of(at), name.c_str(), times.data(), AT_SYMLINK_NOFOLLOW));
  }

  Status fsync(PfsRef file) override {
    return status_of(retried([&] { return ::fsync(fd_of(file)); }));
  }

  Status syncfs(PfsRef file) override {
    return status_of(retried([&] { return ::syncfs(fd_of(file)); }));
  }

  bool syncfs_reports_errors(PfsRef file) override {
    constexpr std::array<std::uint32_t, 5> known{EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC,
                                                 BTRFS_SUPER_MAGIC, F2FS_SUPER_MAGIC, TMPFS_MAGIC};
    struct statfs fs{};
    if (::fstatfs(fd_of(file), &fs) != 0 ||
        std::ranges::find(known, static_cast<std::uint32_t>(fs.f_type)) == known.end()) {
      return false;
    }
    utsname name{};
    int major = 0;
    int minor = 0;
    if (::uname(&name) != 0 || std::sscanf(name.release, "%d.%d", &major, &minor) != 2) {
      return false;
    }
    return major > 5 || (major == 5 && minor >= 8);
  }

  Result<struct statvfs> statvfs(PfsRef file) override {
    struct statvfs values{};
    if (::fstatvfs(fd_of(file), &values) != 0) {
      return fail_errno();
    }
    return values;
  }

  Result<bool> is_mount_root(PfsRef directory) override {
    struct statx values{};
    if (::statx(fd_of(directory), "", AT_EMPTY_PATH, STATX_TYPE, &values) != 0) {
      return fail_errno();
    }
    if ((values.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) == 0) {
      return fail(EOPNOTSUPP);
    }
    return (values.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
  }

  Result<std::string> path_of(PfsRef file) override {
    return readlink(no_directory, "/proc/self/fd/" + std::to_string(fd_of(file)));
  }

  Status as_one_call(const char*, const std::string&, const PfsTask& task) override {
    return task(*this);
  }

 private:
  static bool is_copied_xattr(const std::string& name) {
    return name.starts_with("user.") || name.starts_with("trusted.") ||
           name == "security.capability" || fs::is_acl_name(name);
  }

  /// The names of all extended attributes, each with a NUL byte behind it. "" if there are none, or
  /// if the file system has none. Most files have none; this is then one system call.
  static Result<std::string> xattr_names(int fd) {
    std::array<char, 256> small;  // filled by the kernel; empty for most files
    ssize_t length = ::flistxattr(fd, small.data(), small.size());
    std::string names;
    if (length > 0) {
      names.assign(small.data(), static_cast<std::size_t>(length));
    }
    if (length < 0 && errno == ERANGE) {
      names.resize(XATTR_LIST_MAX);
      length = ::flistxattr(fd, names.data(), names.size());
      if (length >= 0) {
        names.resize(static_cast<std::size_t>(length));
      }
    }
    if (length < 0 && errno == EOPNOTSUPP) {
      return std::string();
    }
    if (length < 0) {
      return fail_errno();
    }
    return names;
  }

  /// Opens a path that is too long for one system call.
  Result<PfsHandle> open_in_pieces(PfsRef root, const std::string& path, int flags, mode_t mode) {
    const auto slash = path.rfind('/', PATH_MAX - 2);
    if (slash == std::string::npos) {
      return fail(ENAMETOOLONG);
    }
    const auto passage = open_beneath(root, path.substr(0, slash), passage_flags, 0);
    return passage ? open_beneath(*passage, path.substr(slash + 1), flags, mode)
                   : fail(passage.error().code);
  }

  const std::string here_ = ".";
};

}  // namespace

PfsIo& posix_pfs() {
  // Never destroyed: a thread that was abandoned in a call that hangs may return from it while the
  // process exits.
  static PosixPfs& instance = *new PosixPfs;
  return instance;
}

}  // namespace efs::stage
