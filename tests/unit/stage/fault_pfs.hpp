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

#include "stage/pfs/forwarding_pfs.hpp"
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
/// open files. Thread-safe if the hook is.
class FaultPfs final : PfsCallPolicy, public ForwardingPfs {
 public:
  using Hook =
      std::function<int(std::uint64_t number, const std::string& call, const std::string& object)>;

  explicit FaultPfs(Hook hook) : ForwardingPfs(posix_pfs(), this), hook_(std::move(hook)) {}

  explicit FaultPfs(NthCall chosen)
      : ForwardingPfs(posix_pfs(), this),
        hook_([](auto, const auto&, const auto&) { return 0; }),
        chosen_(std::move(chosen)) {}

  std::uint64_t calls() const { return calls_; }

  /// The number of calls of each function. Use it when no call is in progress.
  const std::map<std::string, std::uint64_t>& calls_of() const { return calls_of_; }

  Result<PfsHandle> open(PfsRef at, const std::string& path, int flags, mode_t mode) override {
    return ForwardingPfs::open(at, there(at, path), flags, mode);
  }

  Result<std::size_t> read(PfsRef file, std::span<std::byte> into, std::uint64_t offset) override {
    return ForwardingPfs::read(file, into.first(std::min(into.size(), most)), offset);
  }

  Result<std::size_t> write(PfsRef file, std::span<const std::byte> from,
                            std::uint64_t offset) override {
    return ForwardingPfs::write(file, from.first(std::min(from.size(), most)), offset);
  }

  void start_writeback(PfsRef, std::uint64_t, std::uint64_t) override {}

  void will_need(PfsRef, std::uint64_t, std::uint64_t) override {}

  void drop_cache(PfsRef file) override {
    if (on_drop_cache) {
      on_drop_cache();
    }
    real_.drop_cache(file);
  }

  Result<struct stat> fstat(PfsRef file) override {
    auto attributes = ForwardingPfs::fstat(file);
    if (attributes && on_fstat) {
      on_fstat(file, *attributes);
    }
    return attributes;
  }

  Result<struct stat> lstat(PfsRef at, const std::string& name) override {
    return ForwardingPfs::lstat(at, there(at, name));
  }

  Status rename(PfsRef at, const std::string& from, const std::string& to) override {
    const std::string name = there(at, to);
    return invoke({.function = "rename", .kind = CallKind::once, .object = name}, [&] {
      if (on_naming) {
        on_naming(to);
      }
      return real_.rename(at, there(at, from), name);
    });
  }

  Status rename_noreplace(PfsRef at, const std::string& from, const std::string& to) override {
    return invoke({.function = "rename_noreplace", .kind = CallKind::once, .object = to}, [&] {
      if (on_naming) {
        on_naming(to);
      }
      return no_replace_code == 0 ? real_.rename_noreplace(at, from, to) : fail(no_replace_code);
    });
  }

  /// Each call of the task is one to fail.
  Status as_one_call(const char*, const std::string&, const PfsTask& task) override {
    return task(*this);
  }

  bool syncfs_reports_errors(PfsRef) override { return trust_syncfs; }

  std::function<void()> on_drop_cache;  // cannot fail
  // called after all other work, just before a file gets its name
  std::function<void(const std::string& name)> on_naming;
  int no_replace_code = 0;  // error of rename_noreplace(); simulates a file system without it
  bool trust_syncfs = true;
  // open, lstat and rename ignore upper and lower case
  bool folds_case = false;
  std::function<void(PfsRef file, struct stat&)> on_fstat;  // may change the result
  std::size_t most = SIZE_MAX;  // upper bound on the bytes of one read or write

 private:
  /// The name that a case-insensitive PFS would find.
  std::string there(PfsRef at, const std::string& name) {
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

  Status before(const PfsCall& call) override {
    if (const int code = hook_(calls_++, kind_of(call.function), std::string(call.object));
        code != 0) {
      return fail(code);
    }
    return is_chosen(call.function) ? fail(chosen_.code) : Status();
  }

  bool again(const PfsCall&, const Error&, unsigned) override { return false; }

  void made_further_calls(std::uint64_t) override {}

  /// The name by which hooks know a member: one for the members that make the same system call.
  static std::string kind_of(const std::string& function) {
    static const std::map<std::string, std::string> shared{
        {"open_beneath", "open"},        {"birth", "statx"},
        {"is_mount_root", "statx"},      {"set_xattr", "setxattr"},
        {"remove_xattr", "removexattr"}, {"chmod_name", "chmod"},
        {"chown_name", "chown"},         {"set_times", "times"},
        {"set_times_name", "times"},     {"rename_noreplace", "rename"}};
    const auto known = shared.find(function);
    return known == shared.end() ? function : known->second;
  }

  bool is_chosen(const std::string& function) {
    const std::lock_guard lock(mutex_);
    return calls_of_[function]++ == chosen_.number && function == chosen_.function;
  }

  Hook hook_;
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
