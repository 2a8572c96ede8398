// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/mount_service.hpp"

#include <fcntl.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>

#include "support/live_buffer.hpp"
#include "support/temp.hpp"
#include "unit/daemon/fake_privileges.hpp"
#include "unit/daemon/stop_scene.hpp"

namespace efs::daemon {
namespace {

using control::Json;
using scene::FakePrivileges;

struct MountScene : scene::StopScene {
  MountScene() {
    config.name = "job";
    config.mount_dir = top.path() + "/mnt";
  }

  void open() {
    mount.open_session({.open = {.files = *buffer.filesystem, .backend = *buffer.backend},
                        .places = {},
                        .sinks = {}});
  }

  efs::test::TempDirectory top;
  config::JobConfig config;
  FakePrivileges privileges;
  efs::test::LiveBuffer buffer;
  MountService mount{config, {}, privileges, stops};
};

TEST_CASE("a mount directory that efs made is removed", "[daemon][mount]") {
  MountScene it;
  REQUIRE(it.mount.prepare_point());
  CHECK(it.mount.made_point());
  CHECK(std::filesystem::is_directory(it.config.mount_dir));
  it.mount.release_point();
  it.mount.remove_point();
  CHECK_FALSE(std::filesystem::exists(it.config.mount_dir));
}

TEST_CASE("a mount directory of the user stays", "[daemon][mount]") {
  MountScene it;
  std::filesystem::create_directory(it.config.mount_dir);
  REQUIRE(it.mount.prepare_point());
  CHECK_FALSE(it.mount.made_point());
  it.mount.remove_point();
  CHECK(std::filesystem::is_directory(it.config.mount_dir));
}

TEST_CASE("an unusable mount directory is refused before data move", "[daemon][mount]") {
  MountScene it;
  it.privileges.allowed = fail(EACCES, "not yours");
  CHECK(it.mount.prepare_point().error().what.contains("not yours"));
  it.privileges.allowed = {};
  std::ofstream(it.config.mount_dir + "/file") << "1";
  CHECK(it.mount.prepare_point().error().code == ENOTEMPTY);
  it.config.mount_dir = it.top.path() + "/none/mnt";
  CHECK(it.mount.prepare_point().error().code == ENOENT);
}

TEST_CASE("the mount of an earlier instance elsewhere is dropped with its directory",
          "[daemon][mount]") {
  MountScene it;
  image::Manifest before;
  before.mount_dir = it.top.path() + "/former";
  before.made_mount_dir = true;
  std::filesystem::create_directory(before.mount_dir);
  CHECK(it.mount.drop_former(before));
  CHECK_FALSE(std::filesystem::exists(before.mount_dir));
}

TEST_CASE("a refused mount names the directory", "[daemon][mount]") {
  MountScene it;
  REQUIRE(it.mount.prepare_point());
  CHECK_FALSE(it.mount.has_session());
  it.open();
  CHECK(it.mount.has_session());
  const Status refused = it.mount.mount();
  REQUIRE_FALSE(refused);
  CHECK(refused.error().what.contains("cannot mount at " + it.config.mount_dir));
  it.mount.abort();
  CHECK(it.privileges.aborts == 0);  // no session serves
}

TEST_CASE("status shows the session from its publication to its end", "[daemon][mount]") {
  MountScene it;
  const auto status = [&] {
    control::replies::Status filled;
    filled.store.emplace().backends.emplace_back().id = "a";
    it.mount.add_status(filled);
    return to_json(filled);
  };
  CHECK(it.mount.daemon_reason().empty());
  it.open();
  CHECK_FALSE(status().contains("io"));
  it.mount.publish();
  const Json shown = status();
  CHECK((shown["io"] == "daemon" && shown["backends"][0]["io"] == "daemon"));
  CHECK(shown["io_reason"] == "not started by root");
  CHECK(it.mount.daemon_reason() == "not started by root");
  CHECK((shown["takeover"] == false && shown.contains("takeover_reason")));
  it.mount.close_session();
  CHECK_FALSE(status().contains("io"));
  CHECK_FALSE(it.mount.has_session());
}

TEST_CASE("an unmount while programs use the mount fails in time", "[daemon][mount]") {
  MountScene it;
  it.open();
  it.privileges.unmounted = fail(EBUSY);
  StopRequest request{.keep = true, .times = {}, .ticket = 1};
  const Status busy = it.mount.unmount_for(request);
  REQUIRE_FALSE(busy);
  CHECK((busy.error().code == EBUSY && busy.error().what.contains(it.config.mount_dir)));
  CHECK((it.privileges.unmounts > 1 && it.privileges.unusual));
  CHECK(it.mount.waits_for() == nullptr);
  it.privileges.unmounted = {};
  CHECK(it.mount.unmount_for(request));
}

TEST_CASE("a mount without limits refuses limits", "[daemon][mount]") {
  MountScene it;
  CHECK(it.mount.change_limits({.read = 5, .write = {}, .ops = {}})["code"] == EOPNOTSUPP);
}

}  // namespace
}  // namespace efs::daemon
