// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The privileges of a mount, for tests that mount nothing.

#include <cerrno>
#include <span>
#include <string>
#include <vector>

#include "daemon/mount_privileges.hpp"

namespace efs::daemon::scene {

/// A supervisor that mounts nothing.
struct FakePrivileges final : MountPrivileges {
  Status drop_dead_mount(int, const std::string&) override { return {}; }

  Status check_mount(int) override { return allowed; }

  Result<UniqueFd> mount(int, std::uint64_t, const std::string&) override {
    return std::unexpected(Error{EPERM, "no fusermount3"});
  }

  Status unmount(bool is_unusual) override {
    ++unmounts;
    unusual = is_unusual;
    return unmounted;
  }

  void abort() override { ++aborts; }

  void keep_init(const fuse::InitRequest&) override {}

  void report_progress() override {}

  std::vector<Result<int>> open_backing(std::span<const fuse::Registration> files) override {
    return {files.size(), fail(EPERM)};
  }

  void close_backing(std::span<const int>) override {}

  Status allowed, unmounted;
  int unmounts = 0, aborts = 0;
  bool unusual = false;
};

}  // namespace efs::daemon::scene
