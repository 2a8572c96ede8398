// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/walk_policy.hpp"

#include <catch2/catch_test_macros.hpp>

namespace {

using efs::fuse::WalkPolicy;

/// Lists a directory of so many files that the kernel does not know. The program then looks at each
/// of them, or at none. Returns how many the kernel was told of.
unsigned walk(WalkPolicy& policy, unsigned files, bool looks) {
  policy.begin();
  unsigned told = 0;
  for (unsigned i = 0; i < files; ++i) {
    told += policy.tells() ? 1 : 0;
  }
  for (unsigned i = told; looks && i < files; ++i) {
    policy.looked_up();
  }
  return told;
}

}  // namespace

TEST_CASE("who looks at the files is told of them, but for a sample") {
  WalkPolicy policy;
  for (int round = 0; round < 10; ++round) {
    CHECK(walk(policy, 512, true) == 480);
  }
}

TEST_CASE("who only lists is told of the first directory at most") {
  WalkPolicy policy;
  CHECK(walk(policy, 512, false) == 480);
  for (int round = 0; round < 10; ++round) {
    CHECK(walk(policy, 512, false) == 0);
  }
  CHECK(walk(policy, 512, true) == 0);
  CHECK(walk(policy, 512, true) == 480);  // it has changed
  WalkPolicy other;
  CHECK(walk(other, 1'000'000, false) <= WalkPolicy::sample * (WalkPolicy::longest_trial + 1));
}

TEST_CASE("a walk of a few files says nothing, many of them do") {
  WalkPolicy policy;
  unsigned told = 0;
  for (int round = 0; round < 1000; ++round) {
    told += walk(policy, 4, false);
  }
  CHECK(told >= 200);
  CHECK(told <= 300);
}
