// SPDX-License-Identifier: BSD-3-Clause
// Which kernels let a successor replace a dead worker.
#include "base/boot.hpp"

#include <catch2/catch_test_macros.hpp>

TEST_CASE("whether a worker that dies is replaced hangs on the kernel", "[base]") {
  for (const char* release : {"6.9.0", "6.10.3-amd64", "6.18", "7.0-rc1"}) {
    CHECK(efs::no_takeover_reason(release).empty());
  }
  for (const char* release : {"6.8.12-generic", "5.10.0-28-amd64", "6", ""}) {
    CHECK(efs::no_takeover_reason(release).find("6.9") != std::string::npos);
  }
  CHECK_FALSE(efs::kernel_release().empty());
}
