// SPDX-License-Identifier: BSD-3-Clause
#include "stage/pfs/pauses.hpp"

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

namespace efs::stage {
namespace {

constexpr Nanoseconds longest_sleep = 100'000'000;  // between checks of `cancel`

class RealPauses final : public Pauses {
 public:
  Nanoseconds now() override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  void sleep(Nanoseconds duration) override {
    std::this_thread::sleep_for(std::chrono::nanoseconds(duration));
  }
};

}  // namespace

Pauses& real_pauses() {
  static RealPauses& pauses = *new RealPauses;  // never destroyed, as posix_pfs()
  return pauses;
}

void pause_until(Nanoseconds end, const std::atomic<bool>& cancel, Pauses& pauses) {
  for (Nanoseconds now = pauses.now(); now < end && !cancel; now = pauses.now()) {
    pauses.sleep(std::min(end - now, longest_sleep));
  }
}

Nanoseconds jittered(Nanoseconds pause) {
  thread_local std::minstd_rand random{std::random_device{}()};
  return pause / 4 * 3 +
         static_cast<Nanoseconds>(std::uniform_int_distribution<Nanoseconds>(0, pause / 2)(random));
}

}  // namespace efs::stage
