// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/job_watchers.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>

#include "support/file_text.hpp"
#include "support/temp.hpp"

namespace efs::daemon {
namespace {

using control::Json;

struct WatchersScene {
  efs::test::TempDirectory top;
  config::JobConfig config;
  std::atomic<int> snapshots{0};
  JobWatchers watchers{config, top.path(), [this] {
                         ++snapshots;
                         return Json{{"state", "running"}};
                       }};
};

TEST_CASE("before they are open and after their end, watchers do nothing", "[daemon]") {
  WatchersScene it;
  control::replies::Status status;
  const auto are_away = [&] {
    it.watchers.poke();
    it.watchers.add_status(status);
    return status == control::replies::Status{} && it.watchers.sinks().empty();
  };
  CHECK(are_away());
  REQUIRE(it.watchers.open());
  it.watchers.close(1);
  CHECK(are_away());
}

TEST_CASE("the status file is there from the opening on, and status names it", "[daemon]") {
  WatchersScene it;
  it.config.status_file = it.top.path() + "/status.json";
  REQUIRE(it.watchers.open());
  control::replies::Status status;
  it.watchers.add_status(status);
  CHECK(status.status_file == it.config.status_file);
  CHECK(Json::parse(efs::test::file_text(it.config.status_file))["state"] == "running");
  it.watchers.close(1);
  CHECK(it.snapshots > 0);
}

TEST_CASE("a watcher's file that cannot be written fails the start", "[daemon]") {
  WatchersScene it;
  it.config.trace = it.top.path() + "/none/trace";
  CHECK_FALSE(it.watchers.open());
}

}  // namespace
}  // namespace efs::daemon
