// SPDX-License-Identifier: BSD-3-Clause
#include "config/mount_options.hpp"

#include <catch2/catch_test_macros.hpp>
#include <sstream>

using namespace efs::config;

TEST_CASE("mount options: the last word counts, the unknown is refused with a suggestion") {
  CHECK(parse_mount_options("")->flags == 0);
  CHECK(parse_mount_options("nosuid,nodev,defaults,rw")->flags == 0);
  CHECK(parse_mount_options("suid,nosuid,suid")->flags == mount_suid);
  CHECK(parse_mount_options("noatime,strictatime,lazytime,async")->flags == mount_strictatime);
  CHECK(access_times(parse_mount_options("strictatime")->flags) == efs::AccessTimes::strict);
  CHECK(access_times(parse_mount_options("strictatime,noatime")->flags) == efs::AccessTimes::kept);
  CHECK(access_times(parse_mount_options("strictatime,relatime")->flags) ==
        efs::AccessTimes::relative);
  CHECK(parse_mount_options("fsname=x,daemon-io")->source == "x");
  CHECK(parse_mount_options("daemon-io")->daemon_io);
  CHECK_FALSE(parse_mount_options("daemon-io")->writeback);
  CHECK(parse_mount_options("writeback")->writeback);
  CHECK(parse_mount_options("")->spin == 50);
  CHECK(parse_mount_options("spin=100,spin=0")->spin == 0);
  for (const char* bad : {"spin=", "spin=-1", "spin=1001", "spin=5us", "spin=99999999999"}) {
    CHECK(parse_mount_options(bad).error().code == EINVAL);
  }
  CHECK(parse_mount_options("")->join_callers);
  CHECK(parse_mount_options("placement=off,placement=on")->join_callers);
  CHECK_FALSE(parse_mount_options("placement=off")->join_callers);
  CHECK_FALSE(parse_mount_options("placement=some"));
  CHECK_FALSE(parse_mount_options("")->mode);
  CHECK(parse_mount_options("mode=0700")->mode == 0700U);
  CHECK(parse_mount_options("mode=1777")->mode == 01777U);
  for (const char* bad : {"mode=", "mode=0800", "mode=4755", "mode=0070", "mode=-1"}) {
    CHECK(parse_mount_options(bad).error().code == EINVAL);
  }
  const auto wrong = parse_mount_options("noexek");
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().what.find("noexec") != std::string::npos);
}

TEST_CASE("mount options: collected writes and a trace contradict one another") {
  JobConfig job;
  CHECK(check_mount_options({.writeback = true}, job));
  job.trace = "/tmp/trace";
  CHECK(check_mount_options({.daemon_io = true}, job));
  CHECK(check_mount_options({.writeback = true}, job).error().code == EINVAL);
}

TEST_CASE(
    "mount options: each name of the list is accepted, and only names with an effect are in it") {
  const std::string names = mount_option_names();
  std::istringstream stream(names);
  int count = 0;
  for (std::string name; std::getline(stream, name, ','); ++count) {
    const std::string value = name == "spin=" ? "0" : name == "mode=" ? "0700" : "text";
    INFO(name);
    CHECK(parse_mount_options(name.ends_with('=') ? name + value : name));
  }
  CHECK(count > 12);
  CHECK(names.contains("placement=off"));
  CHECK_FALSE(names.contains("_netdev"));
}
