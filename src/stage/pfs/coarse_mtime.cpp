#include "stage/pfs/coarse_mtime.hpp"

#include <thread>

#include "base/clock.hpp"

namespace efs::stage {
namespace {

constexpr Nanoseconds one_second = 1'000'000'000;

bool in_whole_seconds(const fs::Origin& seen) {
  return seen.ctime % one_second == 0 && seen.mtime % one_second == 0;
}

}  // namespace

std::chrono::nanoseconds rest_of_second(const fs::Origin& seen, Nanoseconds now) {
  if (!in_whole_seconds(seen)) {
    return {};
  }
  const Nanoseconds rest = seen.ctime + 2 * one_second - now;
  return std::chrono::nanoseconds(rest > 0 && rest <= 4 * one_second ? rest : 0);
}

void let_second_pass(const fs::Origin& seen, const std::atomic<bool>& cancel) {
  if (!in_whole_seconds(seen)) {
    return;  // before reading the clock, because this runs for every input
  }
  const auto rest = rest_of_second(seen, wall_clock());
  if (rest.count() == 0) {
    return;
  }
  const auto end = std::chrono::steady_clock::now() + rest;
  while (!cancel && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace efs::stage
