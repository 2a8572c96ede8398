#pragma once
// Work of which each allocation of memory fails in turn.

#include <catch2/catch_message.hpp>
#include <functional>
#include <new>

#include "support/failing_new.hpp"
#include "support/no_threads.hpp"
#include "support/temp.hpp"

namespace efs::test {

/// Does `work` while its n-th allocation fails, without threads, so that the n-th is the same each
/// time. True where it failed. What it throws comes through; but where memory is short for good,
/// nobody can tell of it otherwise than by std::bad_alloc.
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

/// `round(short_of_memory)` makes its scene, does what is to be tried by `short_of_memory(work)`,
/// and looks at what came of it: once for each allocation of `work`, or for those of them that
/// EFS_SAMPLE draws, and at last once where none fails. Returns their number.
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
