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
  std::string_view object = {};  // the name that the member got; "" for an open file
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

  Result<PfsHandle> open(PfsRef at, const std::string& path, int flags, mode_t mode = 0) override {
    auto opened = invoke({.function = "open", .kind = kind_of_open(flags), .object = path},
                         [&] { return real_.open(at, path, flags, mode); });
    if (opened) {
      made_further_calls(1);  // the close
    }
    return opened;
  }

  Result<PfsHandle> open_beneath(PfsRef root, const std::string& path, int flags,
                                 mode_t mode = 0) override {
    auto opened = invoke({.function = "open_beneath", .kind = kind_of_open(flags), .object = path},
                         [&] { return real_.open_beneath(root, path, flags, mode); });
    if (opened) {
      made_further_calls(1);  // the close
    }
    return opened;
  }

  Result<std::size_t> read(PfsRef file, std::span<std::byte> into, std::uint64_t offset) override {
    return invoke({.function = "read", .kind = CallKind::reading, .bytes = into.size()},
                  [&] { return real_.read(file, into, offset); });
  }

  Result<std::size_t> write(PfsRef file, std::span<const std::byte> from,
                            std::uint64_t offset) override {
    return invoke({.function = "write", .kind = CallKind::idempotent, .bytes = from.size()},
                  [&] { return real_.write(file, from, offset); });
  }

  Result<std::uint64_t> seek(PfsRef file, std::uint64_t offset, int whence) override {
    return invoke({.function = "seek", .kind = CallKind::reading},
                  [&] { return real_.seek(file, offset, whence); });
  }

  Status truncate(PfsRef file, std::uint64_t size) override {
    return invoke({.function = "truncate", .kind = CallKind::idempotent},
                  [&] { return real_.truncate(file, size); });
  }

  void will_need(PfsRef file, std::uint64_t offset, std::uint64_t length) override {
    real_.will_need(file, offset, length);
  }

  void start_writeback(PfsRef file, std::uint64_t offset, std::uint64_t length) override {
    real_.start_writeback(file, offset, length);
  }

  void drop_cache(PfsRef file) override { real_.drop_cache(file); }

  Result<struct stat> fstat(PfsRef file) override {
    return invoke({.function = "fstat", .kind = CallKind::reading},
                  [&] { return real_.fstat(file); });
  }

  Result<struct stat> lstat(PfsRef at, const std::string& name) override {
    return invoke({.function = "lstat", .kind = CallKind::reading, .object = name},
                  [&] { return real_.lstat(at, name); });
  }

  Result<Nanoseconds> birth(PfsRef at, const std::string& name, const struct stat& seen) override {
    return invoke({.function = "birth", .kind = CallKind::reading, .object = name},
                  [&] { return real_.birth(at, name, seen); });
  }

  Status access(PfsRef at, const std::string& name, int mode) override {
    return invoke({.function = "access", .kind = CallKind::reading, .object = name},
                  [&] { return real_.access(at, name, mode); });
  }

  Result<std::vector<std::string>> list(PfsRef directory) override {
    auto names = invoke({.function = "list", .kind = CallKind::reading},
                        [&] { return real_.list(directory); });
    made_further_calls(2);  // it also opens and closes the directory
    return names;
  }

  Result<std::string> readlink(PfsRef at, const std::string& name) override {
    return invoke({.function = "readlink", .kind = CallKind::reading, .object = name},
                  [&] { return real_.readlink(at, name); });
  }

  Status mkdir(PfsRef at, const std::string& name, mode_t mode) override {
    return invoke({.function = "mkdir", .kind = CallKind::once, .object = name},
                  [&] { return real_.mkdir(at, name, mode); });
  }

  Status symlink(const std::string& target, PfsRef at, const std::string& name) override {
    return invoke({.function = "symlink", .kind = CallKind::once, .object = name},
                  [&] { return real_.symlink(target, at, name); });
  }

  Status link(PfsRef from_at, const std::string& from, PfsRef at,
              const std::string& name) override {
    return invoke({.function = "link", .kind = CallKind::once, .object = name},
                  [&] { return real_.link(from_at, from, at, name); });
  }

  Status rename(PfsRef at, const std::string& from, const std::string& to) override {
    return invoke({.function = "rename", .kind = CallKind::once, .object = to},
                  [&] { return real_.rename(at, from, to); });
  }

  Status rename_noreplace(PfsRef at, const std::string& from, const std::string& to) override {
    return invoke({.function = "rename_noreplace", .kind = CallKind::once, .object = to},
                  [&] { return real_.rename_noreplace(at, from, to); });
  }

  Status unlink(PfsRef at, const std::string& name) override {
    return invoke({.function = "unlink", .kind = CallKind::once, .object = name},
                  [&] { return real_.unlink(at, name); });
  }

  Status rmdir(PfsRef at, const std::string& name) override {
    return invoke({.function = "rmdir", .kind = CallKind::once, .object = name},
                  [&] { return real_.rmdir(at, name); });
  }

  Result<std::map<std::string, std::string>> xattrs(PfsRef file) override {
    auto found = invoke({.function = "xattrs", .kind = CallKind::reading},
                        [&] { return real_.xattrs(file); });
    if (found) {
      made_further_calls(found->size());  // one call lists the names, and one more reads each value
    }
    return found;
  }

  Status set_xattr(PfsRef file, const std::string& name, const std::string& value) override {
    return invoke({.function = "set_xattr", .kind = CallKind::idempotent, .object = name},
                  [&] { return real_.set_xattr(file, name, value); });
  }

  Status remove_xattr(PfsRef file, const std::string& name) override {
    return invoke({.function = "remove_xattr", .kind = CallKind::once, .object = name},
                  [&] { return real_.remove_xattr(file, name); });
  }

  Status chmod(PfsRef file, mode_t mode) override {
    return invoke({.function = "chmod", .kind = CallKind::idempotent},
                  [&] { return real_.chmod(file, mode); });
  }

  Status chmod_name(PfsRef at, const std::string& name, mode_t mode) override {
    return invoke({.function = "chmod_name", .kind = CallKind::idempotent, .object = name},
                  [&] { return real_.chmod_name(at, name, mode); });
  }

  Status chown(PfsRef file, uid_t uid, gid_t gid) override {
    return invoke({.function = "chown", .kind = CallKind::idempotent},
                  [&] { return real_.chown(file, uid, gid); });
  }

  Status set_times(PfsRef file, Nanoseconds atime, Nanoseconds mtime) override {
    return invoke({.function = "set_times", .kind = CallKind::idempotent},
                  [&] { return real_.set_times(file, atime, mtime); });
  }

  Status chown_name(PfsRef at, const std::string& name, uid_t uid, gid_t gid) override {
    return invoke({.function = "chown_name", .kind = CallKind::idempotent, .object = name},
                  [&] { return real_.chown_name(at, name, uid, gid); });
  }

  Status set_times_name(PfsRef at, const std::string& name, Nanoseconds atime,
                        Nanoseconds mtime) override {
    return invoke({.function = "set_times_name", .kind = CallKind::idempotent, .object = name},
                  [&] { return real_.set_times_name(at, name, atime, mtime); });
  }

  Status fsync(PfsRef file) override {
    return invoke({.function = "fsync", .kind = CallKind::once}, [&] { return real_.fsync(file); });
  }

  Status syncfs(PfsRef file) override {
    return invoke({.function = "syncfs", .kind = CallKind::once},
                  [&] { return real_.syncfs(file); });
  }

  bool syncfs_reports_errors(PfsRef file) override { return real_.syncfs_reports_errors(file); }

  Result<struct statvfs> statvfs(PfsRef file) override {
    return invoke({.function = "statvfs", .kind = CallKind::reading},
                  [&] { return real_.statvfs(file); });
  }

  Result<bool> is_mount_root(PfsRef directory) override {
    return invoke({.function = "is_mount_root", .kind = CallKind::reading},
                  [&] { return real_.is_mount_root(directory); });
  }

  Result<std::string> path_of(PfsRef file) override { return real_.path_of(file); }

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
