// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A PfsIo that counts calls and makes a chosen one fail.

#include <signal.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "stage/pfs/pfs_io.hpp"
#include "support/temp.hpp"

namespace efs::stage::test {

/// One call of a transfer: the nth (from 0) of one function of PfsIo.
struct NthCall {
  std::string function;  // a member of PfsIo; "": none
  std::uint64_t number = 0;
  int code = 0;  // its error
};

/// Calls `hook(number, call, object)` before every call. If the hook returns a code other than 0,
/// the call is not made and fails with this code. `object`: the name given, or "" for calls on
/// descriptors. Thread-safe if the hook is.
class FaultPfs final : public PfsIo {
 public:
  using Hook =
      std::function<int(std::uint64_t number, const std::string& call, const std::string& object)>;

  explicit FaultPfs(Hook hook) : hook_(std::move(hook)) {}

  explicit FaultPfs(NthCall chosen)
      : hook_([](auto, const auto&, const auto&) { return 0; }), chosen_(std::move(chosen)) {}

  std::uint64_t calls() const { return calls_; }

  /// The number of calls of each function. Use it when no call is in progress.
  const std::map<std::string, std::uint64_t>& calls_of() const { return calls_of_; }

  Result<UniqueFd> open(int at, const std::string& path, int flags, mode_t mode) override {
    return run("open", path, [&] { return real_.open(at, there(at, path), flags, mode); });
  }

  Result<UniqueFd> open_beneath(int root, const std::string& path, int flags,
                                mode_t mode) override {
    return run(
        "open", path, [&] { return real_.open_beneath(root, path, flags, mode); }, "open_beneath");
  }

  Result<std::size_t> read(int fd, std::span<std::byte> into, std::uint64_t offset) override {
    return run("read", "",
               [&] { return real_.read(fd, into.first(std::min(into.size(), most)), offset); });
  }

  Result<std::size_t> write(int fd, std::span<const std::byte> from,
                            std::uint64_t offset) override {
    return run("write", "",
               [&] { return real_.write(fd, from.first(std::min(from.size(), most)), offset); });
  }

  Result<std::uint64_t> seek(int fd, std::uint64_t offset, int whence) override {
    return run("seek", "", [&] { return real_.seek(fd, offset, whence); });
  }

  Status truncate(int fd, std::uint64_t size) override {
    return run("truncate", "", [&] { return real_.truncate(fd, size); });
  }

  void start_writeback(int, std::uint64_t, std::uint64_t) override {}

  void will_need(int, std::uint64_t, std::uint64_t) override {}

  void drop_cache(int fd) override {
    if (on_drop_cache) {
      on_drop_cache();
    }
    real_.drop_cache(fd);
  }

  Result<struct stat> fstat(int fd) override {
    auto attributes = run("fstat", "", [&] { return real_.fstat(fd); });
    if (attributes && on_fstat) {
      on_fstat(fd, *attributes);
    }
    return attributes;
  }

  Result<struct stat> lstat(int at, const std::string& name) override {
    return run("lstat", name, [&] { return real_.lstat(at, there(at, name)); });
  }

  Result<Nanoseconds> birth(int at, const std::string& name, const struct stat& seen) override {
    return run("statx", name, [&] { return real_.birth(at, name, seen); }, "birth");
  }

  Status access(int at, const std::string& name, int mode) override {
    return run("access", name, [&] { return real_.access(at, name, mode); });
  }

  Result<std::vector<std::string>> list(int directory) override {
    return run("list", "", [&] { return real_.list(directory); });
  }

  Result<std::string> readlink(int at, const std::string& name) override {
    return run("readlink", name, [&] { return real_.readlink(at, name); });
  }

  Status mkdir(int at, const std::string& name, mode_t mode) override {
    return run("mkdir", name, [&] { return real_.mkdir(at, name, mode); });
  }

  Status symlink(const std::string& target, int at, const std::string& name) override {
    return run("symlink", name, [&] { return real_.symlink(target, at, name); });
  }

  Status link(int from_at, const std::string& from, int at, const std::string& name) override {
    return run("link", name, [&] { return real_.link(from_at, from, at, name); });
  }

  Status rename(int at, const std::string& from, const std::string& to,
                const AboutToName& about_to = {}) override {
    const auto told = [&](bool is_shared) {
      if (about_to) {
        about_to(is_shared);
      }
      if (on_naming) {
        on_naming(to);
      }
    };
    return run("rename", to,
               [&] { return real_.rename(at, there(at, from), there(at, to), told); });
  }

  Status rename_noreplace(int at, const std::string& from, const std::string& to) override {
    return run(
        "rename", to,
        [&] {
          if (on_naming) {
            on_naming(to);
          }
          return no_replace_code == 0 ? real_.rename_noreplace(at, from, to)
                                      : fail(no_replace_code);
        },
        "rename_noreplace");
  }

  Status rename_new(int at, const std::string& from, const std::string& to) override {
    return PfsIo::rename_new(at, from, to);
  }

  bool is_shared(int, const std::string&, const struct stat&) override { return false; }

  Status rmdir(int at, const std::string& name) override {
    return run("rmdir", name, [&] { return real_.rmdir(at, name); });
  }

  Status remove_xattr(int fd, const std::string& name) override {
    return run("removexattr", name, [&] { return real_.remove_xattr(fd, name); }, "remove_xattr");
  }

  Status unlink(int at, const std::string& name) override {
    return run("unlink", name, [&] { return real_.unlink(at, name); });
  }

  Status remove(int at, const std::string& name, const struct stat& seen,
                const std::string& claimant) override {
    return run("unlink", name, [&] { return real_.remove(at, name, seen, claimant); }, "remove");
  }

  Result<std::map<std::string, std::string>> xattrs(int fd) override {
    return run("xattrs", "", [&] { return real_.xattrs(fd); });
  }

  Status set_xattr(int fd, const std::string& name, const std::string& value) override {
    return run("setxattr", name, [&] { return real_.set_xattr(fd, name, value); }, "set_xattr");
  }

  Status chmod(int fd, mode_t mode) override {
    return run("chmod", "", [&] { return real_.chmod(fd, mode); });
  }

  Status chmod_name(int at, const std::string& name, mode_t mode) override {
    return run("chmod", name, [&] { return real_.chmod_name(at, name, mode); }, "chmod_name");
  }

  Status chown(int fd, uid_t uid, gid_t gid) override {
    return run("chown", "", [&] { return real_.chown(fd, uid, gid); });
  }

  Status set_times(int fd, Nanoseconds atime, Nanoseconds mtime) override {
    return run("times", "", [&] { return real_.set_times(fd, atime, mtime); }, "set_times");
  }

  Status chown_name(int at, const std::string& name, uid_t uid, gid_t gid) override {
    return run("chown", name, [&] { return real_.chown_name(at, name, uid, gid); }, "chown_name");
  }

  Status set_times_name(int at, const std::string& name, Nanoseconds atime,
                        Nanoseconds mtime) override {
    return run(
        "times", name, [&] { return real_.set_times_name(at, name, atime, mtime); },
        "set_times_name");
  }

  Status fsync(int fd) override {
    return run("fsync", "", [&] { return real_.fsync(fd); });
  }

  Status syncfs(int fd) override {
    return run("syncfs", "", [&] { return real_.syncfs(fd); });
  }

  bool syncfs_reports_errors(int) override { return trust_syncfs; }

  Result<bool> is_mount_root(int fd) override {
    return run("statx", "", [&] { return real_.is_mount_root(fd); });
  }

  Result<struct statvfs> statvfs(int fd) override {
    return run("statvfs", "", [&] { return real_.statvfs(fd); });
  }

  std::function<void()> on_drop_cache;  // cannot fail
  // called after all other work, just before a file gets its name
  std::function<void(const std::string& name)> on_naming;
  int no_replace_code = 0;  // error of rename_noreplace(); simulates a file system without it
  bool trust_syncfs = true;
  // open, lstat and rename ignore upper and lower case
  bool folds_case = false;
  std::function<void(int fd, struct stat&)> on_fstat;  // may change the result
  std::size_t most = SIZE_MAX;  // upper bound on the bytes of one read or write

 private:
  /// The name that a case-insensitive PFS would find.
  std::string there(int at, const std::string& name) {
    if (!folds_case || name.contains('/')) {
      return name;
    }
    const auto names = real_.list(at);
    const auto same = [&](const std::string& other) {
      return ::strcasecmp(other.c_str(), name.c_str()) == 0;
    };
    const auto found =
        names ? std::ranges::find_if(*names, same) : std::vector<std::string>::const_iterator();
    return names && found != names->end() ? *found : name;
  }

  template <typename Call>
  auto run(const char* name, const std::string& object, Call call, const char* function = nullptr)
      -> decltype(call()) {
    if (const int code = hook_(calls_++, name, object); code != 0) {
      return fail(code);
    }
    if (is_chosen(function != nullptr ? function : name)) {
      return fail(chosen_.code);
    }
    return call();
  }

  bool is_chosen(const std::string& function) {
    const std::lock_guard lock(mutex_);
    return calls_of_[function]++ == chosen_.number && function == chosen_.function;
  }

  Hook hook_;
  PfsIo& real_ = posix_pfs();
  const NthCall chosen_{};
  std::atomic<std::uint64_t> calls_{0};
  std::mutex mutex_;  // guards calls_of_
  std::map<std::string, std::uint64_t> calls_of_;
};

/// Runs `work(pfs)` in a child process that is killed before its nth call (from 0) to the PFS.
/// Returns the result of work; empty if the child was killed.
template <typename Work>
std::optional<int> killed_at_call(std::uint64_t n, Work work) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    FaultPfs pfs([&](std::uint64_t number, const auto&, const auto&) {
      if (number == n) {
        ::kill(::getpid(), SIGKILL);
      }
      return 0;
    });
    ::_exit(work(pfs));
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  if (WIFEXITED(status)) {
    return WEXITSTATUS(status);
  }
  REQUIRE(WTERMSIG(status) == SIGKILL);
  return std::nullopt;
}

/// Makes every call of a transfer fail once: `round` does a whole transfer with the PFS that it
/// gets, the first time without a failure. Goes through the calls of one function after another,
/// since the order of all calls depends on threads. (EFS_SAMPLE: a part of the calls, at least one
/// of each function.) Returns the functions that failed. (Calls that happen only after a failure do
/// not fail here: only one call of a round does.)
template <typename Round>
std::set<std::string> each_call_fails(int code, Round round) {
  const auto calls_with = [&](const NthCall& chosen) {
    FaultPfs pfs(chosen);
    round(pfs, chosen);
    return pfs.calls_of();
  };
  const auto seed = efs::test::seed();
  const efs::test::Sample sample(seed);
  INFO("EFS_SAMPLE=" << sample.step << " EFS_TEST_SEED=" << seed);
  std::set<std::string> failed;
  for (const auto& [function, calls] : calls_with({})) {
    failed.insert(function);
    for (std::uint64_t number = std::min(sample.first, calls - 1);
         calls_with({function, number, code})[function] > number; number += sample.step) {
    }
  }
  return failed;
}

}  // namespace efs::stage::test
