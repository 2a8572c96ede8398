#pragma once
// The -o options of efsd, `efs start` and mount(8).

#include <cstdint>
#include <string>

#include "base/result.hpp"

namespace efs::daemon {

struct MountOptions {
  std::uint64_t flags = 0;  // MountFlag bits
  bool daemon_io = false;
  std::string source;       // fsname=
};

/// A comma-separated list. EINVAL with a text for what is unknown.
Result<MountOptions> parse_mount_options(const std::string& list);

}  // namespace efs::daemon
