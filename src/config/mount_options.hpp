#pragma once
// The -o options of `efs start`, efsd and mount(8).

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "base/result.hpp"

namespace efs::config {

/// What a mount may be asked for; the supervisor takes suid and dev from root only.
enum MountFlag : std::uint64_t {
  mount_suid = 1,
  mount_dev = 2,
  mount_noexec = 4,
  mount_noatime = 8,
  mount_readonly = 16,
  mount_strictatime = 32
};

struct MountOptions {
  std::uint64_t flags = 0;  // MountFlag bits
  bool daemon_io = false;
  // microseconds that the daemon looks for the next request before it sleeps; 0: none
  std::uint32_t spin = 50;
  std::string source;  // fsname=
  // of the root directory of a new file system; nullopt: root-dir's
  std::optional<std::uint32_t> mode;
};

AccessTimes access_times(std::uint64_t flags);

/// A comma-separated list. EINVAL with a text for what is unknown.
Result<MountOptions> parse_mount_options(const std::string& list);

}  // namespace efs::config
