// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The private tmpfs of each backend in memory, mounted in the instance's directory: `store` for the
// first backend of the job file, `store.N` for backend number N. Belongs to the supervisor. Not
// thread-safe.

#include <sys/types.h>

#include <array>
#include <cstdint>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "control/instances.hpp"

namespace efs::daemon {

class MemoryStores {
 public:
  /// `instance`: the instance's directory; borrowed. `first`: an O_PATH descriptor of the directory
  /// `store`. `uid` and `gid` own the tmpfs mounts.
  MemoryStores(int instance, UniqueFd first, uid_t uid, gid_t gid)
      : instance_(instance), first_(std::move(first)), uid_(uid), gid_(gid) {}

  struct Ask {
    unsigned number = 0;  // below control::most_stores
    std::uint64_t bytes = 0;
    AccessTimes access_times = AccessTimes::relative;
    bool huge_pages = true;
    bool must_be_there = false;  // ENOENT if no earlier supervisor left the tmpfs
  };

  struct Given {
    UniqueFd root;
    bool left = false;  // the tmpfs existed before
    dev_t device = 0;
  };

  /// Mounts the tmpfs of a backend; later calls return the same tmpfs. A tmpfs of an earlier
  /// supervisor grows to `bytes` if it is smaller; it never shrinks. The caller must have root's
  /// rights.
  Result<Given> give(const Ask& ask);

 private:
  Result<UniqueFd> point_of(const Ask& ask) const;
  bool has_mounted(const UniqueFd& point) const;
  static void refit(const std::string& where, unsigned long flags, const Ask& ask);
  Result<Given> root_of(unsigned number, bool left) const;

  const int instance_;
  const UniqueFd first_;
  const uid_t uid_;
  const gid_t gid_;
  std::array<bool, control::most_stores> mounted_{};
};

}  // namespace efs::daemon
