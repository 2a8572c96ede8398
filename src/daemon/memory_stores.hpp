#pragma once
// The private tmpfs of each backend that lies in memory, mounted in the instance's directory:
// `store` for the first backend of the job file, `store.N` for the one of number N. The
// supervisor's; not thread-safe.

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
  /// `instance`: its directory; borrowed. `first`: O_PATH, the directory that `store` is. The tmpfs
  /// are made for this user.
  MemoryStores(int instance, UniqueFd first, uid_t uid, gid_t gid)
      : instance_(instance), first_(std::move(first)), uid_(uid), gid_(gid) {}

  struct Ask {
    unsigned number = 0;  // below control::most_stores
    std::uint64_t bytes = 0;
    AccessTimes access_times = AccessTimes::relative;
    bool huge_pages = true;
    bool must_be_there = false;  // ENOENT where an earlier supervisor left none
  };

  struct Given {
    UniqueFd root;
    bool left = false;  // it was there before
    dev_t device = 0;
  };

  /// Call with root's rights. Each is mounted once; whoever asks again gets the same. One that an
  /// earlier supervisor left grows to `bytes` where it is smaller; it never shrinks.
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
