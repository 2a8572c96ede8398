#pragma once
// How long what others have is tried again, behind all that nobody has.

#include <atomic>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "stage/pfs/pauses.hpp"

namespace efs::stage {

/// Of one transfer, for all that it waits for. Not thread-safe; owns neither of what it is given.
class Patience {
 public:
  static constexpr Nanoseconds longest = 10'000'000'000;

  explicit Patience(const std::atomic<bool>& cancel, Pauses& pauses)
      : cancel_(cancel), pauses_(pauses) {}

  /// Lets a while pass, a longer one each time, up to half a second. `held`: what is waited for,
  /// and who has it. False, at once, where that has been the same for `longest`, or `cancel` is
  /// set: it is given up.
  bool wait(std::vector<std::string> held);

 private:
  const std::atomic<bool>& cancel_;
  Pauses& pauses_;
  std::vector<std::string> held_;
  Nanoseconds pause_ = 0;
  Nanoseconds end_ = 0;
};

}  // namespace efs::stage
