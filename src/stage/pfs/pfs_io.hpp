#pragma once
// The seam to the parallel file system: every call that staging makes there goes through PfsIo, so
// that tests can let any of them fail. One call is one system call (EINTR retried), or the few that
// do one thing; nothing is cached, nothing is decided.

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
#include "base/unique_fd.hpp"

namespace efs::stage {

constexpr int directory_flags = O_RDONLY | O_DIRECTORY;
/// Of a directory on the way to something: who may search it, and not list it, may pass.
constexpr int passage_flags = O_PATH | O_DIRECTORY;

/// Called when nothing stands between a file and the name that it is to get but the call that gives
/// it; again, where somebody was faster. `is_shared`: what has the name is another node's, and the
/// same.
using AboutToName = std::function<void(bool is_shared)>;

/// Thread-safe. `at` is a directory descriptor or AT_FDCWD. Errors carry the errno and no text:
/// callers know the object and say it. Names given with a directory descriptor never follow a
/// symbolic link in the last component. Every member is pure: what stands in front of another one
/// cannot leave one out.
class PfsIo {
 public:
  virtual ~PfsIo() = default;

  /// openat(2) with O_CLOEXEC.
  virtual Result<UniqueFd> open(int at, const std::string& path, int flags, mode_t mode = 0) = 0;
  /// The same for a relative path of any depth that stays below `root` and passes no symbolic link:
  /// ELOOP or ENOTDIR where one is met; EXDEV where the path is absolute or a component is "..". ""
  /// is the root itself.
  virtual Result<UniqueFd> open_beneath(int root, const std::string& path, int flags,
                                        mode_t mode = 0) = 0;

  /// May be short, as pread(2) and pwrite(2) are.
  virtual Result<std::size_t> read(int fd, std::span<std::byte> into, std::uint64_t offset) = 0;
  virtual Result<std::size_t> write(int fd, std::span<const std::byte> from,
                                    std::uint64_t offset) = 0;
  /// lseek(2) with SEEK_DATA or SEEK_HOLE: ENXIO where there is no more data.
  virtual Result<std::uint64_t> seek(int fd, std::uint64_t offset, int whence) = 0;
  virtual Status truncate(int fd, std::uint64_t size) = 0;
  /// A hint: these bytes are read soon. Does not wait for them; has no result.
  virtual void will_need(int fd, std::uint64_t offset, std::uint64_t length) = 0;
  /// A hint: begin writing these dirty pages back. Never waits for them; has no result.
  virtual void start_writeback(int fd, std::uint64_t offset, std::uint64_t length) = 0;

  /// A hint: forget the cached pages of this file that are clean, so that the next read asks the
  /// PFS.
  virtual void drop_cache(int fd) = 0;

  /// These ask the server, whatever the client of a network's file system has cached: another
  /// client may have changed it.
  virtual Result<struct stat> fstat(int fd) = 0;
  virtual Result<struct stat> lstat(int at, const std::string& name) = 0;
  /// When the file was made. ESTALE where another one than `seen` has the name; EOPNOTSUPP where
  /// the file system does not keep it.
  virtual Result<Nanoseconds> birth(int at, const std::string& name, const struct stat& seen) = 0;
  /// faccessat(2) with the effective ids.
  virtual Status access(int at, const std::string& name, int mode) = 0;
  /// The names in an open directory, "." and ".." left out, in byte order.
  virtual Result<std::vector<std::string>> list(int directory) = 0;
  virtual Result<std::string> readlink(int at, const std::string& name) = 0;

  virtual Status mkdir(int at, const std::string& name, mode_t mode) = 0;
  virtual Status symlink(const std::string& target, int at, const std::string& name) = 0;
  /// linkat(2): one more name for a file; a symbolic link is not followed.
  virtual Status link(int from_at, const std::string& from, int at, const std::string& name) = 0;
  virtual Status rename(int at, const std::string& from, const std::string& to,
                        const AboutToName& about_to = {}) = 0;
  /// renameat2(2) with RENAME_NOREPLACE: EEXIST where anything has the name `to`; EINVAL, ENOSYS or
  /// EOPNOTSUPP where there is no such call.
  virtual Status rename_noreplace(int at, const std::string& from, const std::string& to) = 0;
  /// EEXIST where anything has the name `to`. Of several calls where the file system has no
  /// renameat2(2), under a claim to the name (name_claim.hpp): a link then, which never replaces
  /// anything either. (On one that has no links, what others than efs put there meanwhile may be
  /// replaced.) What is defined here does it by the other calls.
  virtual Status rename_new(int at, const std::string& from, const std::string& to) = 0;
  virtual Status unlink(int at, const std::string& name) = 0;
  /// The same for an input of the job, which lstat() showed as `seen`. EEXIST where it is another
  /// by now (remove_over()). `claimant`: as of NameClaim.
  virtual Status remove(int at, const std::string& name, const struct stat& seen,
                        const std::string& claimant) = 0;
  /// What results-dir has under a result's name may stand for another node's result as well.
  virtual bool is_shared(int at, const std::string& name, const struct stat& there) = 0;
  virtual Status rmdir(int at, const std::string& name) = 0;

  /// The extended attributes of an open file or directory that go with it: user.*,
  /// security.capability, ACLs, and what else this process may see of trusted.*. None where the
  /// file system has none.
  virtual Result<std::map<std::string, std::string>> xattrs(int fd) = 0;
  virtual Status set_xattr(int fd, const std::string& name, const std::string& value) = 0;
  virtual Status remove_xattr(int fd, const std::string& name) = 0;

  virtual Status chmod(int fd, mode_t mode) = 0;
  /// Of a file that may not be opened as it is.
  virtual Status chmod_name(int at, const std::string& name, mode_t mode) = 0;
  virtual Status chown(int fd, uid_t uid, gid_t gid) = 0;
  virtual Status set_times(int fd, Nanoseconds atime, Nanoseconds mtime) = 0;
  /// Of the name itself, were it a symbolic link.
  virtual Status chown_name(int at, const std::string& name, uid_t uid, gid_t gid) = 0;
  virtual Status set_times_name(int at, const std::string& name, Nanoseconds atime,
                                Nanoseconds mtime) = 0;

  /// fsync(2), of a file or of a directory.
  virtual Status fsync(int fd) = 0;
  /// syncfs(2) of the file system that holds `fd`.
  virtual Status syncfs(int fd) = 0;
  /// Whether syncfs of the file system that holds `fd` makes all that was written there durable,
  /// and reports what could not be: of those of which that is known, from Linux 5.8 on. A FUSE's
  /// server is not even asked, and a network's client may have more to do than its own pages. Where
  /// not, only fsync can be believed.
  virtual bool syncfs_reports_errors(int fd) = 0;
  virtual Result<struct statvfs> statvfs(int fd) = 0;
  /// Is the directory the root of a mount? statx(2), STATX_ATTR_MOUNT_ROOT: EOPNOTSUPP before
  /// Linux 5.8.
  virtual Result<bool> is_mount_root(int fd) = 0;
};

/// The real one. Stateless; lives for ever.
PfsIo& posix_pfs();

}  // namespace efs::stage
