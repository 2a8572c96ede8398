// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch_test_macros.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "daemon/config_memfds.hpp"

using efs::daemon::ConfigMemfds;

TEST_CASE("what one process keeps of job file and site file another one has") {
  const auto made = ConfigMemfds::make();
  REQUIRE(made);
  CHECK_FALSE(made->read());
  const std::string job = "resources: []\n" + std::string(100'000, '#') + "\n";
  const auto keep = [&](const efs::config::ReadFiles& files) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::_exit(made->keep(files) ? 0 : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
  };
  keep({.job = job, .site_file = "/etc/efs/site.yaml", .site = "limits: {workers: 2}\n"});
  auto read = made->read();
  REQUIRE(read);
  CHECK(read->job == job);
  CHECK(read->site_file == "/etc/efs/site.yaml");
  CHECK(read->site == "limits: {workers: 2}\n");
  keep({.job = "", .site_file = "", .site = ""});
  read = made->read();
  REQUIRE(read);
  CHECK(read->job.empty());
  CHECK(read->site_file.empty());
}

TEST_CASE("without files in memory nothing is kept, and that is told") {
  const ConfigMemfds none;
  CHECK_FALSE(none.keep({.job = "x", .site_file = "", .site = ""}));
  CHECK_FALSE(none.read());
}
