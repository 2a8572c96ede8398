// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/mount_limits.hpp"

#include <catch2/catch_test_macros.hpp>
#include <vector>

namespace efs::daemon {
namespace {

using control::Json;
using fuse::Limited;

config::JobConfig limited() {
  config::JobConfig config;
  config.name = "job";
  config.limit_read = 1'000'000;
  config.limit_ops = 500;
  return config;
}

struct Changes {
  std::function<void(Limited)> note = [this](Limited what) {
    made.push_back(what);
  };
  std::vector<Limited> made;
};

TEST_CASE("a mount without limits gets none later", "[daemon]") {
  const config::JobConfig config;
  MountLimits limits(config, nullptr, false);
  Changes changes;
  CHECK_FALSE(limits.any());
  CHECK(limits.of_session() == nullptr);
  const Json answer = limits.change({.read = 5, .write = {}, .ops = {}}, changes.note);
  CHECK((answer["ok"] == false && answer["code"] == EOPNOTSUPP));
  CHECK(limits.shown().read == 0);
  CHECK(changes.made.empty());
}

TEST_CASE("the limits are those of the job file until a client changes them", "[daemon]") {
  const auto config = limited();
  MountLimits limits(config, nullptr, false);
  Changes changes;
  CHECK(limits.any());
  REQUIRE(limits.of_session() != nullptr);
  CHECK(limits.shown() ==
        control::replies::Limits{.read = 1'000'000, .write = 0, .ops = 500, .delayed = 0});
  const Json answer = limits.change({.read = 0, .write = 2'000'000, .ops = 500}, changes.note);
  CHECK(answer["ok"] == true);
  CHECK(answer["limits"] == Json{{"read", 0}, {"write", 2'000'000}, {"ops", 500}, {"delayed", 0}});
  CHECK(changes.made == std::vector{Limited::read, Limited::write});
  CHECK(limits.of_session()->of(Limited::write) == 2'000'000);
  CHECK(limits.any());  // also without any rate: the I/O path stays
  CHECK(limits.change({.read = {}, .write = 0, .ops = 0}, changes.note)["ok"] == true);
  CHECK((limits.any() && limits.of_session() != nullptr));
}

TEST_CASE("a rate that the job file would refuse changes nothing", "[daemon]") {
  const auto config = limited();
  MountLimits limits(config, nullptr, false);
  Changes changes;
  const Json answer = limits.change({.read = 7'000'000, .write = {}, .ops = 3}, changes.note);
  CHECK((answer["ok"] == false && answer["exit"] == 2));
  CHECK(limits.shown().read == 1'000'000);
  CHECK(changes.made.empty());
}

TEST_CASE("a successor continues with the limits of its predecessor", "[daemon]") {
  const auto config = limited();
  fuse::Limits kept;
  MountLimits first(config, &kept, false);
  CHECK(kept.of(Limited::read) == 1'000'000);
  Changes changes;
  CHECK(first.change({.read = 9'000'000, .write = {}, .ops = {}}, changes.note)["ok"] == true);
  CHECK(MountLimits(config, &kept, true).shown().read == 9'000'000);
  // without memory that outlives the predecessor, those of the job file
  CHECK(MountLimits(config, nullptr, true).shown().read == 1'000'000);
  CHECK(MountLimits(config, &kept, false).shown().read == 1'000'000);
}

}  // namespace
}  // namespace efs::daemon
