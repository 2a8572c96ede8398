// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Time that goes by in pauses only.

#include <atomic>
#include <functional>

#include "stage/pfs/pauses.hpp"

namespace efs::stage::test {

class CountedPauses final : public Pauses {
 public:
  /// `during`: what happens in each pause.
  explicit CountedPauses(std::function<void()> during = {}) : during_(std::move(during)) {}

  Nanoseconds now() override { return now_; }

  void sleep(Nanoseconds duration) override {
    now_ += duration;
    if (during_) {
      during_();
    }
  }

  Nanoseconds passed() const { return now_ - begin; }

 private:
  static constexpr Nanoseconds begin = 1'000'000'000'000;
  std::atomic<Nanoseconds> now_{begin};
  std::function<void()> during_;
};

}  // namespace efs::stage::test
