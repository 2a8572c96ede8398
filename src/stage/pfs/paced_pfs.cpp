// SPDX-License-Identifier: BSD-3-Clause
#include "stage/pfs/paced_pfs.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

namespace efs::stage {
namespace {

constexpr Nanoseconds second = 1'000'000'000;
constexpr Nanoseconds longest_pause = 10 * second;
constexpr Nanoseconds catch_up = second / 10;

// Temporary errors of a network file system: the call may have taken effect.
constexpr std::array network_errors{ETIMEDOUT,    ESTALE,      ECONNRESET, ECONNABORTED,
                                    ECONNREFUSED, ENOTCONN,    EHOSTDOWN,  EHOSTUNREACH,
                                    ENETDOWN,     ENETUNREACH, EREMOTEIO};

}  // namespace

Pace pace_of(const config::JobConfig& config) {
  return {.max_rate = config.max_rate, .max_ops = config.max_ops, .retries = config.retries};
}

Nanoseconds RateLimit::take(std::uint64_t units, Nanoseconds now) {
  if (per_second_ == 0) {
    return 0;
  }
  const MutexLock lock(mutex_);
  const Nanoseconds mine = std::max(next_, now - catch_up);
  next_ = mine +
          static_cast<Nanoseconds>(static_cast<double>(units) / static_cast<double>(per_second_) *
                                   static_cast<double>(second));
  return std::max<Nanoseconds>(0, mine - now);
}

bool may_pass(int code, CallKind kind) {
  if (code == EAGAIN) {
    return true;
  }
  if (code == EIO) {
    return kind == CallKind::reading;
  }
  return std::ranges::find(network_errors, code) != network_errors.end() && kind != CallKind::once;
}

PacedPfs::PacedPfs(PfsIo& pfs, const Pace& pace, Throttle& throttle,
                   const std::atomic<bool>& cancel, Pauses& pauses)
    : pfs_(pfs), pace_(pace), throttle_(throttle), cancel_(cancel), pauses_(pauses) {}

void PacedPfs::charge(std::uint64_t calls) {
  if (pace_.max_ops != 0 && calls != 0) {
    (void)throttle_.operations.take(calls, pauses_.now());
  }
}

template <typename Call>
auto PacedPfs::paced(CallKind kind, std::uint64_t bytes, Call call) -> decltype(call()) {
  Nanoseconds pause = pace_.first_pause;
  for (unsigned attempt = 0;; ++attempt, pause = std::min(pause * 2, longest_pause)) {
    if (pace_.max_ops != 0 || pace_.max_rate != 0) {
      const auto now = pauses_.now();
      pause_until(
          now + std::max(throttle_.operations.take(1, now), throttle_.bytes.take(bytes, now)),
          cancel_, pauses_);
    }
    auto result = call();
    if (result || attempt >= pace_.retries || cancel_ || !may_pass(result.error().code, kind)) {
      return result;
    }
    ++retried_;
    pause_until(pauses_.now() + jittered(pause), cancel_, pauses_);
  }
}

Result<UniqueFd> PacedPfs::open(int at, const std::string& path, int flags, mode_t mode) {
  auto opened = paced((flags & O_CREAT) != 0 ? CallKind::once : CallKind::reading, 0,
                      [&] { return pfs_.open(at, path, flags, mode); });
  if (opened) {
    charge(1);
  }
  return opened;
}

Result<UniqueFd> PacedPfs::open_beneath(int root, const std::string& path, int flags, mode_t mode) {
  auto opened = paced((flags & O_CREAT) != 0 ? CallKind::once : CallKind::reading, 0,
                      [&] { return pfs_.open_beneath(root, path, flags, mode); });
  if (opened) {
    charge(1);
  }
  return opened;
}

Result<std::size_t> PacedPfs::read(int fd, std::span<std::byte> into, std::uint64_t offset) {
  return paced(CallKind::reading, into.size(), [&] { return pfs_.read(fd, into, offset); });
}

Result<std::size_t> PacedPfs::write(int fd, std::span<const std::byte> from, std::uint64_t offset) {
  return paced(CallKind::idempotent, from.size(), [&] { return pfs_.write(fd, from, offset); });
}

Result<std::uint64_t> PacedPfs::seek(int fd, std::uint64_t offset, int whence) {
  return paced(CallKind::reading, 0, [&] { return pfs_.seek(fd, offset, whence); });
}

Status PacedPfs::truncate(int fd, std::uint64_t size) {
  return paced(CallKind::idempotent, 0, [&] { return pfs_.truncate(fd, size); });
}

Result<struct stat> PacedPfs::fstat(int fd) {
  return paced(CallKind::reading, 0, [&] { return pfs_.fstat(fd); });
}

Result<struct stat> PacedPfs::lstat(int at, const std::string& name) {
  return paced(CallKind::reading, 0, [&] { return pfs_.lstat(at, name); });
}

Result<Nanoseconds> PacedPfs::birth(int at, const std::string& name, const struct stat& seen) {
  return paced(CallKind::reading, 0, [&] { return pfs_.birth(at, name, seen); });
}

Status PacedPfs::access(int at, const std::string& name, int mode) {
  return paced(CallKind::reading, 0, [&] { return pfs_.access(at, name, mode); });
}

Result<std::vector<std::string>> PacedPfs::list(int directory) {
  auto names = paced(CallKind::reading, 0, [&] { return pfs_.list(directory); });
  charge(2);  // it also opens and closes the directory
  return names;
}

Result<std::string> PacedPfs::readlink(int at, const std::string& name) {
  return paced(CallKind::reading, 0, [&] { return pfs_.readlink(at, name); });
}

Status PacedPfs::mkdir(int at, const std::string& name, mode_t mode) {
  return paced(CallKind::once, 0, [&] { return pfs_.mkdir(at, name, mode); });
}

Status PacedPfs::symlink(const std::string& target, int at, const std::string& name) {
  return paced(CallKind::once, 0, [&] { return pfs_.symlink(target, at, name); });
}

Status PacedPfs::link(int from_at, const std::string& from, int at, const std::string& name) {
  return paced(CallKind::once, 0, [&] { return pfs_.link(from_at, from, at, name); });
}

Status PacedPfs::rename(int at, const std::string& from, const std::string& to,
                        const AboutToName& about_to) {
  return paced(CallKind::once, 0, [&] { return pfs_.rename(at, from, to, about_to); });
}

Status PacedPfs::rename_noreplace(int at, const std::string& from, const std::string& to) {
  return paced(CallKind::once, 0, [&] { return pfs_.rename_noreplace(at, from, to); });
}

Status PacedPfs::rename_new(int at, const std::string& from, const std::string& to) {
  return paced(CallKind::once, 0, [&] { return pfs_.rename_new(at, from, to); });
}

Status PacedPfs::unlink(int at, const std::string& name) {
  return paced(CallKind::once, 0, [&] { return pfs_.unlink(at, name); });
}

Status PacedPfs::remove(int at, const std::string& name, const struct stat& seen,
                        const std::string& claimant) {
  return paced(CallKind::once, 0, [&] { return pfs_.remove(at, name, seen, claimant); });
}

Status PacedPfs::rmdir(int at, const std::string& name) {
  return paced(CallKind::once, 0, [&] { return pfs_.rmdir(at, name); });
}

Result<std::map<std::string, std::string>> PacedPfs::xattrs(int fd) {
  auto found = paced(CallKind::reading, 0, [&] { return pfs_.xattrs(fd); });
  if (found) {
    charge(found->size());  // one call lists the names, and one more reads each value
  }
  return found;
}

Status PacedPfs::set_xattr(int fd, const std::string& name, const std::string& value) {
  return paced(CallKind::idempotent, 0, [&] { return pfs_.set_xattr(fd, name, value); });
}

Status PacedPfs::remove_xattr(int fd, const std::string& name) {
  return paced(CallKind::once, 0, [&] { return pfs_.remove_xattr(fd, name); });
}

Status PacedPfs::chmod(int fd, mode_t mode) {
  return paced(CallKind::idempotent, 0, [&] { return pfs_.chmod(fd, mode); });
}

Status PacedPfs::chown(int fd, uid_t uid, gid_t gid) {
  return paced(CallKind::idempotent, 0, [&] { return pfs_.chown(fd, uid, gid); });
}

Status PacedPfs::chmod_name(int at, const std::string& name, mode_t mode) {
  return paced(CallKind::idempotent, 0, [&] { return pfs_.chmod_name(at, name, mode); });
}

Status PacedPfs::set_times(int fd, Nanoseconds atime, Nanoseconds mtime) {
  return paced(CallKind::idempotent, 0, [&] { return pfs_.set_times(fd, atime, mtime); });
}

Status PacedPfs::chown_name(int at, const std::string& name, uid_t uid, gid_t gid) {
  return paced(CallKind::idempotent, 0, [&] { return pfs_.chown_name(at, name, uid, gid); });
}

Status PacedPfs::set_times_name(int at, const std::string& name, Nanoseconds atime,
                                Nanoseconds mtime) {
  return paced(CallKind::idempotent, 0,
               [&] { return pfs_.set_times_name(at, name, atime, mtime); });
}

Status PacedPfs::fsync(int fd) {
  return paced(CallKind::once, 0, [&] { return pfs_.fsync(fd); });
}

Status PacedPfs::syncfs(int fd) {
  return paced(CallKind::once, 0, [&] { return pfs_.syncfs(fd); });
}

Result<bool> PacedPfs::is_mount_root(int fd) {
  return paced(CallKind::reading, 0, [&] { return pfs_.is_mount_root(fd); });
}

Result<struct statvfs> PacedPfs::statvfs(int fd) {
  return paced(CallKind::reading, 0, [&] { return pfs_.statvfs(fd); });
}

}  // namespace efs::stage
