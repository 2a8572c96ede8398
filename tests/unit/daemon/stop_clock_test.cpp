#include "daemon/stop_clock.hpp"

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "support/temp.hpp"

using namespace efs;
using daemon::StopClock;

TEST_CASE("a successor knows when the stop began that it goes on with; a new life does not", "[daemon]") {
  const test::TempDirectory directory;
  const std::string& path = directory.path();
  StopClock first(path, false);
  CHECK(first.elapsed() == 0);
  const auto ago = std::chrono::steady_clock::now() - std::chrono::seconds(100);
  std::ofstream(path + "/stop") << ago.time_since_epoch().count();
  CHECK(StopClock(path, true).elapsed() >= 100);
  CHECK(first.elapsed() >= 100);
  first.over();
  CHECK(StopClock(path, true).elapsed() == 0);
  std::ofstream(path + "/stop") << ago.time_since_epoch().count();
  CHECK(StopClock(path, false).elapsed() == 0);
  std::ofstream(path + "/stop") << "no number";
  CHECK(StopClock(path, true).elapsed() == 0);
  CHECK(StopClock(path + "/none", true).elapsed() == 0);
}
