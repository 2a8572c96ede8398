// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The base of every PfsIo that stands in front of another one. Each call is forwarded by invoke(),
// so that a class which paces, repeats, counts or fails calls says so once, and not in each member.

#include <cstdint>
#include <string_view>

#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// The effect of a call on the PFS. It decides whether the call may be repeated after an error:
///
///  - `reading` calls change nothing.
///  - `idempotent` calls have the same effect when done twice (pwrite, chmod ...).
///  - `once` calls (create, rename, unlink ...) may have taken effect although they failed. fsync
///    and syncfs belong here too: the kernel reports lost data once, and a second call would report
///    success.
enum class CallKind : std::uint8_t { reading, idempotent, once };

/// One call of a member of PfsIo, or a task that counts as one. Borrows its texts.
struct PfsCall {
  const char* function;  // the member, or the task's name
  CallKind kind = CallKind::reading;
  std::uint64_t bytes = 0;       // to read or write
  std::string_view object = {};  // the name that the member got; "" for a descriptor
};

/// Acts around each call that is forwarded.
class PfsCallPolicy {
 public:
  virtual ~PfsCallPolicy() = default;

  /// Called before each attempt. After an error the call is not made and has this error.
  virtual Status before(const PfsCall& call) = 0;

  /// Called after attempt number `attempt` (from 0) has failed. True: the call is made once more.
  virtual bool again(const PfsCall& call, const Error& error, unsigned attempt) = 0;

  /// Called after a member that has made so many more calls than one.
  virtual void made_further_calls(std::uint64_t calls) = 0;
};

/// Forwards every call to `real`. Thread-safe if `real` and `policy` are; both are borrowed and
/// must outlive the object. Without a policy each call is made once. A derived class may be its own
/// policy, and overrides the members that it changes.
class ForwardingPfs : public PfsIo {
 public:
  explicit ForwardingPfs(PfsIo& real, PfsCallPolicy* policy = nullptr)
      : real_(real), policy_(policy) {}

  Result<UniqueFd> open(int at, const std::string& path, int flags, mode_t mode = 0) override {
    auto opened = invoke({.function = "open", .kind = kind_of_open(flags), .object = path},
                         [&] { return real_.open(at, path, flags, mode); });
    if (opened) {
      made_further_calls(1);  // the close
    }
    return opened;
  }

  Result<UniqueFd> open_beneath(int root, const std::string& path, int flags,
                                mode_t mode = 0) override {
    auto opened = invoke({.function = "open_beneath", .kind = kind_of_open(flags), .object = path},
                         [&] { return real_.open_beneath(root, path, flags, mode); });
    if (opened) {
      made_further_calls(1);  // the close
    }
    return opened;
  }

  Result<std::size_t> read(int fd, std::span<std::byte> into, std::uint64_t offset) override {
    return invoke({.function = "read", .kind = CallKind::reading, .bytes = into.size()},
                  [&] { return real_.read(fd, into, offset); });
  }

  Result<std::size_t> write(int fd, std::span<const std::byte> from,
                            std::uint64_t offset) override {
    return invoke({.function = "write", .kind = CallKind::idempotent, .bytes = from.size()},
                  [&] { return real_.write(fd, from, offset); });
  }

  Result<std::uint64_t> seek(int fd, std::uint64_t offset, int whence) override {
    return invoke({.function = "seek", .kind = CallKind::reading},
                  [&] { return real_.seek(fd, offset, whence); });
  }

  Status truncate(int fd, std::uint64_t size) override {
    return invoke({.function = "truncate", .kind = CallKind::idempotent},
                  [&] { return real_.truncate(fd, size); });
  }

  void will_need(int fd, std::uint64_t offset, std::uint64_t length) override {
    real_.will_need(fd, offset, length);
  }

  void start_writeback(int fd, std::uint64_t offset, std::uint64_t length) override {
    real_.start_writeback(fd, offset, length);
  }

  void drop_cache(int fd) override { real_.drop_cache(fd); }

  Result<struct stat> fstat(int fd) override {
    return invoke({.function = "fstat", .kind = CallKind::reading},
                  [&] { return real_.fstat(fd); });
  }

  Result<struct stat> lstat(int at, const std::string& name) override {
    return invoke({.function = "lstat", .kind = CallKind::reading, .object = name},
                  [&] { return real_.lstat(at, name); });
  }

  Result<Nanoseconds> birth(int at, const std::string& name, const struct stat& seen) override {
    return invoke({.function = "birth", .kind = CallKind::reading, .object = name},
                  [&] { return real_.birth(at, name, seen); });
  }

  Status access(int at, const std::string& name, int mode) override {
    return invoke({.function = "access", .kind = CallKind::reading, .object = name},
                  [&] { return real_.access(at, name, mode); });
  }

  Result<std::vector<std::string>> list(int directory) override {
    auto names = invoke({.function = "list", .kind = CallKind::reading},
                        [&] { return real_.list(directory); });
    made_further_calls(2);  // it also opens and closes the directory
    return names;
  }

  Result<std::string> readlink(int at, const std::string& name) override {
    return invoke({.function = "readlink", .kind = CallKind::reading, .object = name},
                  [&] { return real_.readlink(at, name); });
  }

  Status mkdir(int at, const std::string& name, mode_t mode) override {
    return invoke({.function = "mkdir", .kind = CallKind::once, .object = name},
                  [&] { return real_.mkdir(at, name, mode); });
  }

  Status symlink(const std::string& target, int at, const std::string& name) override {
    return invoke({.function = "symlink", .kind = CallKind::once, .object = name},
                  [&] { return real_.symlink(target, at, name); });
  }

  Status link(int from_at, const std::string& from, int at, const std::string& name) override {
    return invoke({.function = "link", .kind = CallKind::once, .object = name},
                  [&] { return real_.link(from_at, from, at, name); });
  }

  Status rename(int at, const std::string& from, const std::string& to) override {
    return invoke({.function = "rename", .kind = CallKind::once, .object = to},
                  [&] { return real_.rename(at, from, to); });
  }

  Status rename_noreplace(int at, const std::string& from, const std::string& to) override {
    return invoke({.function = "rename_noreplace", .kind = CallKind::once, .object = to},
                  [&] { return real_.rename_noreplace(at, from, to); });
  }

  Status unlink(int at, const std::string& name) override {
    return invoke({.function = "unlink", .kind = CallKind::once, .object = name},
                  [&] { return real_.unlink(at, name); });
  }

  Status rmdir(int at, const std::string& name) override {
    return invoke({.function = "rmdir", .kind = CallKind::once, .object = name},
                  [&] { return real_.rmdir(at, name); });
  }

  Result<std::map<std::string, std::string>> xattrs(int fd) override {
    auto found =
        invoke({.function = "xattrs", .kind = CallKind::reading}, [&] { return real_.xattrs(fd); });
    if (found) {
      made_further_calls(found->size());  // one call lists the names, and one more reads each value
    }
    return found;
  }

  Status set_xattr(int fd, const std::string& name, const std::string& value) override {
    return invoke({.function = "set_xattr", .kind = CallKind::idempotent, .object = name},
                  [&] { return real_.set_xattr(fd, name, value); });
  }

  Status remove_xattr(int fd, const std::string& name) override {
    return invoke({.function = "remove_xattr", .kind = CallKind::once, .object = name},
                  [&] { return real_.remove_xattr(fd, name); });
  }

  Status chmod(int fd, mode_t mode) override {
    return invoke({.function = "chmod", .kind = CallKind::idempotent},
                  [&] { return real_.chmod(fd, mode); });
  }

  Status chmod_name(int at, const std::string& name, mode_t mode) override {
    return invoke({.function = "chmod_name", .kind = CallKind::idempotent, .object = name},
                  [&] { return real_.chmod_name(at, name, mode); });
  }

  Status chown(int fd, uid_t uid, gid_t gid) override {
    return invoke({.function = "chown", .kind = CallKind::idempotent},
                  [&] { return real_.chown(fd, uid, gid); });
  }

  Status set_times(int fd, Nanoseconds atime, Nanoseconds mtime) override {
    return invoke({.function = "set_times", .kind = CallKind::idempotent},
                  [&] { return real_.set_times(fd, atime, mtime); });
  }

  Status chown_name(int at, const std::string& name, uid_t uid, gid_t gid) override {
    return invoke({.function = "chown_name", .kind = CallKind::idempotent, .object = name},
                  [&] { return real_.chown_name(at, name, uid, gid); });
  }

  Status set_times_name(int at, const std::string& name, Nanoseconds atime,
                        Nanoseconds mtime) override {
    return invoke({.function = "set_times_name", .kind = CallKind::idempotent, .object = name},
                  [&] { return real_.set_times_name(at, name, atime, mtime); });
  }

  Status fsync(int fd) override {
    return invoke({.function = "fsync", .kind = CallKind::once}, [&] { return real_.fsync(fd); });
  }

  Status syncfs(int fd) override {
    return invoke({.function = "syncfs", .kind = CallKind::once}, [&] { return real_.syncfs(fd); });
  }

  bool syncfs_reports_errors(int fd) override { return real_.syncfs_reports_errors(fd); }

  Result<struct statvfs> statvfs(int fd) override {
    return invoke({.function = "statvfs", .kind = CallKind::reading},
                  [&] { return real_.statvfs(fd); });
  }

  Result<bool> is_mount_root(int fd) override {
    return invoke({.function = "is_mount_root", .kind = CallKind::reading},
                  [&] { return real_.is_mount_root(fd); });
  }

  Status as_one_call(const char* function, const std::string& name, const PfsTask& task) override {
    return invoke({.function = function, .kind = CallKind::once, .object = name},
                  [&] { return real_.as_one_call(function, name, task); });
  }

 protected:
  template <typename Forward>
  auto invoke(const PfsCall& call, Forward forward) -> decltype(forward()) {
    for (unsigned attempt = 0;; ++attempt) {
      if (policy_ != nullptr) {
        EFS_TRY(policy_->before(call));
      }
      auto result = forward();
      if (result || policy_ == nullptr || !policy_->again(call, result.error(), attempt)) {
        return result;
      }
    }
  }

  PfsIo& real_;

 private:
  static CallKind kind_of_open(int flags) {
    return (flags & O_CREAT) != 0 ? CallKind::once : CallKind::reading;
  }

  void made_further_calls(std::uint64_t calls) {
    if (policy_ != nullptr) {
      policy_->made_further_calls(calls);
    }
  }

  PfsCallPolicy* const policy_;
};

}  // namespace efs::stage
