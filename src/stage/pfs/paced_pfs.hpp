// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A PfsIo with retries and rate limits. It repeats calls that failed for a temporary reason. It
// limits the bandwidth and the operations per second, so that one job does not overload the PFS's
// servers.

#include <atomic>
#include <cstdint>

#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "config/job_config.hpp"
#include "stage/pfs/pauses.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

struct Pace {
  std::uint64_t max_rate = 0;  // bytes per second, reads and writes together; 0: no cap
  std::uint64_t max_ops = 0;   // calls per second; 0: no cap
  unsigned retries = 0;        // repetitions of one call at most
  // before the first repetition; doubled each time, up to 10 s
  Nanoseconds first_pause = 100'000'000;
};

/// The pace in the job file.
Pace pace_of(const config::JobConfig& config);

/// One queue for all threads: each caller gets a start time and waits until then. Thread-safe.
class RateLimit {
 public:
  /// `per_second` units; 0: no limit.
  explicit RateLimit(std::uint64_t per_second) : per_second_(per_second) {}

  /// How long the caller must wait before it uses so many units. Units that were unused in the last
  /// tenth of a second are still available; older ones are not.
  Nanoseconds take(std::uint64_t units, Nanoseconds now);

 private:
  const std::uint64_t per_second_;
  Mutex mutex_;  // rank 90 (leaf)
  Nanoseconds next_ EFS_GUARDED_BY(mutex_) = 0;
};

/// The limits that all transfers of a job share. Thread-safe.
struct Throttle {
  explicit Throttle(const Pace& pace) : operations(pace.max_ops), bytes(pace.max_rate) {}

  RateLimit operations;
  RateLimit bytes;
};

/// True if a call that failed with `code` may be repeated. There are three kinds of calls:
///
///  - `reading` calls change nothing. They are repeated after every temporary error, EIO included
///    (an evicted Lustre client returns EIO).
///  - `idempotent` calls have the same effect when done twice (pwrite, chmod ...). They are not
///    repeated after EIO, which may mean that data are lost.
///  - `once` calls (create, rename, unlink ...) may have taken effect although they failed. They
///    are repeated only after EAGAIN, which excludes that. fsync and syncfs belong here too: the
///    kernel reports lost data once, and a second call would report success.
enum class CallKind : std::uint8_t { reading, idempotent, once };
bool may_pass(int code, CallKind kind);

/// Thread-safe. A pause ends at the latest a tenth of a second after `cancel` is set. All arguments
/// are borrowed. If a call makes several calls to the PFS, their number is known only afterwards;
/// the next caller then waits for them. A close counts with its open.
class PacedPfs final : public PfsIo {
 public:
  PacedPfs(PfsIo& pfs, const Pace& pace, Throttle& throttle, const std::atomic<bool>& cancel,
           Pauses& pauses = real_pauses());

  /// Number of retries so far.
  std::uint64_t retried() const { return retried_; }

  Result<UniqueFd> open(int at, const std::string& path, int flags, mode_t mode = 0) override;
  Result<UniqueFd> open_beneath(int root, const std::string& path, int flags,
                                mode_t mode = 0) override;
  Result<std::size_t> read(int fd, std::span<std::byte> into, std::uint64_t offset) override;
  Result<std::size_t> write(int fd, std::span<const std::byte> from, std::uint64_t offset) override;
  Result<std::uint64_t> seek(int fd, std::uint64_t offset, int whence) override;
  Status truncate(int fd, std::uint64_t size) override;

  void start_writeback(int fd, std::uint64_t offset, std::uint64_t length) override {
    pfs_.start_writeback(fd, offset, length);
  }

  void will_need(int fd, std::uint64_t offset, std::uint64_t length) override {
    pfs_.will_need(fd, offset, length);
  }

  void drop_cache(int fd) override { pfs_.drop_cache(fd); }
  Result<struct stat> fstat(int fd) override;
  Result<struct stat> lstat(int at, const std::string& name) override;
  Result<Nanoseconds> birth(int at, const std::string& name, const struct stat& seen) override;
  Status access(int at, const std::string& name, int mode) override;
  Result<std::vector<std::string>> list(int directory) override;
  Result<std::string> readlink(int at, const std::string& name) override;
  Status mkdir(int at, const std::string& name, mode_t mode) override;
  Status symlink(const std::string& target, int at, const std::string& name) override;
  Status link(int from_at, const std::string& from, int at, const std::string& name) override;
  Status rename(int at, const std::string& from, const std::string& to,
                const AboutToName& about_to = {}) override;
  Status rename_noreplace(int at, const std::string& from, const std::string& to) override;
  Status rename_new(int at, const std::string& from, const std::string& to) override;
  Status unlink(int at, const std::string& name) override;
  Status remove(int at, const std::string& name, const struct stat& seen,
                const std::string& claimant) override;

  bool is_shared(int at, const std::string& name, const struct stat& there) override {
    return pfs_.is_shared(at, name, there);
  }

  Status rmdir(int at, const std::string& name) override;
  Result<std::map<std::string, std::string>> xattrs(int fd) override;
  Status set_xattr(int fd, const std::string& name, const std::string& value) override;
  Status remove_xattr(int fd, const std::string& name) override;
  Status chmod(int fd, mode_t mode) override;
  Status chmod_name(int at, const std::string& name, mode_t mode) override;
  Status chown(int fd, uid_t uid, gid_t gid) override;
  Status set_times(int fd, Nanoseconds atime, Nanoseconds mtime) override;
  Status chown_name(int at, const std::string& name, uid_t uid, gid_t gid) override;
  Status set_times_name(int at, const std::string& name, Nanoseconds atime,
                        Nanoseconds mtime) override;
  Status fsync(int fd) override;
  Status syncfs(int fd) override;

  bool syncfs_reports_errors(int fd) override { return pfs_.syncfs_reports_errors(fd); }
  Result<struct statvfs> statvfs(int fd) override;
  Result<bool> is_mount_root(int fd) override;

 private:
  template <typename Call>
  auto paced(CallKind kind, std::uint64_t bytes, Call call) -> decltype(call());
  void charge(std::uint64_t calls);

  PfsIo& pfs_;
  const Pace pace_;
  Throttle& throttle_;
  const std::atomic<bool>& cancel_;
  Pauses& pauses_;
  std::atomic<std::uint64_t> retried_{0};
};

}  // namespace efs::stage
