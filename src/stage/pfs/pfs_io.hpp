// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The interface to the parallel file system. Staging makes every call there through PfsIo, so that
// tests can make any of them fail. A call makes one system call (retried after EINTR), or the few
// that one task needs. It caches nothing and decides no policy: which file may lose its name to a
// result is decided in publisher.hpp.

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "stage/pfs/pfs_handle.hpp"

namespace efs::stage {

constexpr int directory_flags = O_RDONLY | O_DIRECTORY;
/// Flags for opening an intermediate directory: search permission is enough.
constexpr int passage_flags = O_PATH | O_DIRECTORY;

class PfsIo;

/// Several calls to the PFS that only make sense together.
using PfsTask = std::function<Status(PfsIo& pfs)>;

/// Thread-safe. `at` is an open directory or `no_directory`. Errors carry the errno and no text;
/// the caller adds the object. Names given with an open directory never follow a symbolic link in
/// the last component. Every member is pure, so that no wrapper omits one unnoticed.
class PfsIo {
 public:
  virtual ~PfsIo() = default;

  /// openat(2) with O_CLOEXEC.
  virtual Result<PfsHandle> open(PfsRef at, const std::string& path, int flags,
                                 mode_t mode = 0) = 0;
  /// The same for a relative path of any depth below `root` without symbolic links. ELOOP or
  /// ENOTDIR if a component is a symbolic link. EXDEV if the path is absolute or a component is
  /// "..". "" is the root itself.
  virtual Result<PfsHandle> open_beneath(PfsRef root, const std::string& path, int flags,
                                         mode_t mode = 0) = 0;

  /// May be short, as pread(2) and pwrite(2) are.
  virtual Result<std::size_t> read(PfsRef file, std::span<std::byte> into,
                                   std::uint64_t offset) = 0;
  virtual Result<std::size_t> write(PfsRef file, std::span<const std::byte> from,
                                    std::uint64_t offset) = 0;
  /// lseek(2) with SEEK_DATA or SEEK_HOLE: ENXIO if there is no more data.
  virtual Result<std::uint64_t> seek(PfsRef file, std::uint64_t offset, int whence) = 0;
  virtual Status truncate(PfsRef file, std::uint64_t size) = 0;
  /// A hint that these bytes will be read soon. Does not wait; has no result.
  virtual void will_need(PfsRef file, std::uint64_t offset, std::uint64_t length) = 0;
  /// A hint to begin the write-back of these dirty pages. Does not wait; has no result.
  virtual void start_writeback(PfsRef file, std::uint64_t offset, std::uint64_t length) = 0;

  /// A hint to drop the clean cached pages of this file, so that the next read reaches the PFS.
  virtual void drop_cache(PfsRef file) = 0;

  /// fstat and lstat ask the server and bypass the attribute cache of a network file system's
  /// client, because another client may have changed the file.
  virtual Result<struct stat> fstat(PfsRef file) = 0;
  virtual Result<struct stat> lstat(PfsRef at, const std::string& name) = 0;
  /// The birth time of the file. ESTALE if another file than `seen` has the name; EOPNOTSUPP if the
  /// file system does not keep birth times.
  virtual Result<Nanoseconds> birth(PfsRef at, const std::string& name,
                                    const struct stat& seen) = 0;
  /// faccessat(2) with the effective ids.
  virtual Status access(PfsRef at, const std::string& name, int mode) = 0;
  /// The names in an open directory, "." and ".." left out, in byte order.
  virtual Result<std::vector<std::string>> list(PfsRef directory) = 0;
  virtual Result<std::string> readlink(PfsRef at, const std::string& name) = 0;

  virtual Status mkdir(PfsRef at, const std::string& name, mode_t mode) = 0;
  virtual Status symlink(const std::string& target, PfsRef at, const std::string& name) = 0;
  /// linkat(2): one more name for a file; a symbolic link is not followed.
  virtual Status link(PfsRef from_at, const std::string& from, PfsRef at,
                      const std::string& name) = 0;
  virtual Status rename(PfsRef at, const std::string& from, const std::string& to) = 0;
  /// renameat2(2) with RENAME_NOREPLACE: EEXIST if the name `to` exists; EINVAL, ENOSYS or
  /// EOPNOTSUPP if the call is not supported.
  virtual Status rename_noreplace(PfsRef at, const std::string& from, const std::string& to) = 0;
  virtual Status unlink(PfsRef at, const std::string& name) = 0;
  virtual Status rmdir(PfsRef at, const std::string& name) = 0;

  /// The extended attributes that efs copies with a file or directory: user.*, security.capability,
  /// ACLs, and those of trusted.* that this process may read. Empty if the file system has none.
  virtual Result<std::map<std::string, std::string>> xattrs(PfsRef file) = 0;
  virtual Status set_xattr(PfsRef file, const std::string& name, const std::string& value) = 0;
  virtual Status remove_xattr(PfsRef file, const std::string& name) = 0;

  virtual Status chmod(PfsRef file, mode_t mode) = 0;
  /// For a file that cannot be opened with its present mode.
  virtual Status chmod_name(PfsRef at, const std::string& name, mode_t mode) = 0;
  virtual Status chown(PfsRef file, uid_t uid, gid_t gid) = 0;
  virtual Status set_times(PfsRef file, Nanoseconds atime, Nanoseconds mtime) = 0;
  /// These change the name itself and do not follow a symbolic link.
  virtual Status chown_name(PfsRef at, const std::string& name, uid_t uid, gid_t gid) = 0;
  virtual Status set_times_name(PfsRef at, const std::string& name, Nanoseconds atime,
                                Nanoseconds mtime) = 0;

  /// fsync(2), of a file or of a directory.
  virtual Status fsync(PfsRef file) = 0;
  /// syncfs(2) of the file system that holds `file`.
  virtual Status syncfs(PfsRef file) = 0;
  /// True if syncfs on the file system of `file` makes all written data durable and reports errors.
  /// That is known for some file systems from Linux 5.8 on. With FUSE the kernel does not call the
  /// server, and a network client may need more than to write its own pages. If false, use fsync.
  virtual bool syncfs_reports_errors(PfsRef file) = 0;
  virtual Result<struct statvfs> statvfs(PfsRef file) = 0;
  /// True if the directory is the root of a mount (statx(2), STATX_ATTR_MOUNT_ROOT). EOPNOTSUPP
  /// before Linux 5.8.
  virtual Result<bool> is_mount_root(PfsRef directory) = 0;
  /// The absolute path that led to an open file, without symbolic links. Does not ask the PFS.
  virtual Result<std::string> path_of(PfsRef file) = 0;

  /// Runs `task` and makes no call itself. A wrapper that paces or repeats calls treats the task as
  /// one call of `function` with the name `name`, and hands it the PfsIo behind the wrapper.
  virtual Status as_one_call(const char* function, const std::string& name,
                             const PfsTask& task) = 0;
};

/// The PfsIo that makes system calls. Stateless; never destroyed.
PfsIo& posix_pfs();

}  // namespace efs::stage
