// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A PfsIo that forwards every call. Classes that change a few calls derive from it.

#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// Thread-safe if `real` is. `real` is borrowed and must outlive the object.
class ForwardingPfs : public PfsIo {
 public:
  explicit ForwardingPfs(PfsIo& real) : real_(real) {}

  Result<UniqueFd> open(int at, const std::string& path, int flags, mode_t mode) override {
    return real_.open(at, path, flags, mode);
  }

  Result<UniqueFd> open_beneath(int root, const std::string& path, int flags,
                                mode_t mode) override {
    return real_.open_beneath(root, path, flags, mode);
  }

  Result<std::size_t> read(int fd, std::span<std::byte> into, std::uint64_t offset) override {
    return real_.read(fd, into, offset);
  }

  Result<std::size_t> write(int fd, std::span<const std::byte> from,
                            std::uint64_t offset) override {
    return real_.write(fd, from, offset);
  }

  Result<std::uint64_t> seek(int fd, std::uint64_t offset, int whence) override {
    return real_.seek(fd, offset, whence);
  }

  Status truncate(int fd, std::uint64_t size) override { return real_.truncate(fd, size); }

  void will_need(int fd, std::uint64_t offset, std::uint64_t length) override {
    real_.will_need(fd, offset, length);
  }

  void start_writeback(int fd, std::uint64_t offset, std::uint64_t length) override {
    real_.start_writeback(fd, offset, length);
  }

  void drop_cache(int fd) override { real_.drop_cache(fd); }

  Result<struct stat> fstat(int fd) override { return real_.fstat(fd); }

  Result<struct stat> lstat(int at, const std::string& name) override {
    return real_.lstat(at, name);
  }

  Result<Nanoseconds> birth(int at, const std::string& name, const struct stat& seen) override {
    return real_.birth(at, name, seen);
  }

  Status access(int at, const std::string& name, int mode) override {
    return real_.access(at, name, mode);
  }

  Result<std::vector<std::string>> list(int directory) override { return real_.list(directory); }

  Result<std::string> readlink(int at, const std::string& name) override {
    return real_.readlink(at, name);
  }

  Status mkdir(int at, const std::string& name, mode_t mode) override {
    return real_.mkdir(at, name, mode);
  }

  Status symlink(const std::string& target, int at, const std::string& name) override {
    return real_.symlink(target, at, name);
  }

  Status link(int from_at, const std::string& from, int at, const std::string& name) override {
    return real_.link(from_at, from, at, name);
  }

  Status rename(int at, const std::string& from, const std::string& to,
                const AboutToName& about_to) override {
    return real_.rename(at, from, to, about_to);
  }

  Status rename_noreplace(int at, const std::string& from, const std::string& to) override {
    return real_.rename_noreplace(at, from, to);
  }

  Status rename_new(int at, const std::string& from, const std::string& to) override {
    return real_.rename_new(at, from, to);
  }

  Status unlink(int at, const std::string& name) override { return real_.unlink(at, name); }

  Status remove(int at, const std::string& name, const struct stat& seen,
                const std::string& claimant) override {
    return real_.remove(at, name, seen, claimant);
  }

  bool is_shared(int at, const std::string& name, const struct stat& there) override {
    return real_.is_shared(at, name, there);
  }

  Status rmdir(int at, const std::string& name) override { return real_.rmdir(at, name); }

  Result<std::map<std::string, std::string>> xattrs(int fd) override { return real_.xattrs(fd); }

  Status set_xattr(int fd, const std::string& name, const std::string& value) override {
    return real_.set_xattr(fd, name, value);
  }

  Status remove_xattr(int fd, const std::string& name) override {
    return real_.remove_xattr(fd, name);
  }

  Status chmod(int fd, mode_t mode) override { return real_.chmod(fd, mode); }

  Status chmod_name(int at, const std::string& name, mode_t mode) override {
    return real_.chmod_name(at, name, mode);
  }

  Status chown(int fd, uid_t uid, gid_t gid) override { return real_.chown(fd, uid, gid); }

  Status set_times(int fd, Nanoseconds atime, Nanoseconds mtime) override {
    return real_.set_times(fd, atime, mtime);
  }

  Status chown_name(int at, const std::string& name, uid_t uid, gid_t gid) override {
    return real_.chown_name(at, name, uid, gid);
  }

  Status set_times_name(int at, const std::string& name, Nanoseconds atime,
                        Nanoseconds mtime) override {
    return real_.set_times_name(at, name, atime, mtime);
  }

  Status fsync(int fd) override { return real_.fsync(fd); }

  Status syncfs(int fd) override { return real_.syncfs(fd); }

  bool syncfs_reports_errors(int fd) override { return real_.syncfs_reports_errors(fd); }

  Result<struct statvfs> statvfs(int fd) override { return real_.statvfs(fd); }

  Result<bool> is_mount_root(int fd) override { return real_.is_mount_root(fd); }

 protected:
  PfsIo& real_;
};

}  // namespace efs::stage
