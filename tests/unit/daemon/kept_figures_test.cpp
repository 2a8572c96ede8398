// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch_test_macros.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include "daemon/kept_figures.hpp"

using namespace efs;

TEST_CASE("what one process counts the next one goes on with") {
  const auto kept = daemon::make_kept_figures();
  REQUIRE(kept);
  CHECK(kept->counters.requests() == 0);
  CHECK_FALSE(kept->has_staged_in);
  for (int process = 0; process < 3; ++process) {
    const pid_t child = ::fork();
    if (child == 0) {
      kept->counters.of(fuse::Operation::open).add(1000, false);
      kept->counters.opens += 2;
      kept->staged_in = {.files = 7, .bytes = 70};
      kept->has_staged_in = true;
      ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
  }
  CHECK(kept->counters.requests() == 3);
  CHECK(kept->counters.of(fuse::Operation::open).shortest == 1000);
  CHECK(kept->counters.opens == 6);
  CHECK(kept->has_staged_in);
  CHECK(kept->staged_in.bytes == 70);
}
