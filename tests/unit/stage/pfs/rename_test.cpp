// SPDX-License-Identifier: BSD-3-Clause
#include "stage/pfs/rename.hpp"

#include <sys/syscall.h>

#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "support/failing_calls.hpp"
#include "unit/stage/pfs/merge_scene.hpp"

namespace efs::stage {
namespace {

using efs::test::FailingCall;
using efs::test::with_calls_failing;

TEST_CASE(
    "where a PFS knows no way to give a name that replaces nothing, a link does, or, where there "
    "are none either, a look under a claim",
    "[merge]") {
  constexpr FailingCall no_flags{SYS_renameat2, EINVAL};
  for (const unsigned code : {0, EPERM, EOPNOTSUPP, EIO, ENOSPC, EDQUOT}) {
    const bool has_none = code == EPERM || code == EOPNOTSUPP;
    for (const bool taken : {false, true}) {
      INFO("linkat(2) fails with " << code << ", the name is " << (taken ? "taken" : "free"));
      const MergeScene scene;
      scene.write("p", "ours");
      if (taken) {
        scene.write("out", "theirs");
      }
      Status given;
      with_calls_failing(
          code == 0 ? std::vector{no_flags} : std::vector{no_flags, FailingCall{SYS_linkat, code}},
          [&] { given = rename_new(posix_pfs(), {scene.at, "p", "out"}); });
      CHECK(given.has_value() == (!taken && (has_none || code == 0)));
      CHECK(scene.read("out") == (given ? "ours" : taken ? "theirs" : ""));
      CHECK(scene.exists("p") == !given);
      if (!given) {
        CHECK(given.error().code == (code == 0 || has_none ? EEXIST : static_cast<int>(code)));
      }
    }
  }
}

}  // namespace
}  // namespace efs::stage
