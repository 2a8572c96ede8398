// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Runs work repeatedly; each time another allocation fails.

#include <catch2/catch_message.hpp>
#include <functional>
#include <new>

#include "support/failing_new.hpp"
#include "support/no_threads.hpp"
#include "support/temp.hpp"

namespace efs::test {

/// Runs `work` while its n-th allocation fails. There are no threads, so that the n-th is always
/// the same. Returns whether it failed. Exceptions of `work` pass, except std::bad_alloc during a
/// permanent shortage: code can then report the shortage in no other way.
inline bool met_shortage(std::uint64_t n, Shortage shortage, const std::function<void()>& work) {
  const NoThreads alone;
  const FailingNew failing(n, shortage);
  try {
    work();
  } catch (const std::bad_alloc&) {
    if (shortage == Shortage::once) {
      throw;
    }
  }
  return failing.met();
}

/// `round(short_of_memory)` prepares a test, runs the work by `short_of_memory(work)`, and checks
/// the result. This runs once for each allocation of `work`, or for those that EFS_SAMPLE selects,
/// and a last time without a failure. Returns the number of rounds.
template <typename Round>
std::uint64_t each_allocation_fails(Shortage shortage, Round round) {
  const auto seed = test::seed();
  const Sample sample(seed);
  bool met = true;
  std::uint64_t n = 1 + sample.first;
  for (; met; n += sample.step) {
    INFO("EFS_SAMPLE=" << sample.step << " EFS_TEST_SEED=" << seed << ": allocation " << n
                       << " fails" << (shortage == Shortage::for_good ? ", and all after it" : ""));
    round([&](const std::function<void()>& work) { met = met_shortage(n, shortage, work); });
  }
  return n;
}

}  // namespace efs::test
