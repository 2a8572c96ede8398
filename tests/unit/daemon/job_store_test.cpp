// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/job_store.hpp"

#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "fs/staging.hpp"
#include "unit/daemon/job_scene.hpp"

namespace efs::daemon {
namespace {

using scene::JobScene;
using scene::OneStore;

void no_session() {}

TEST_CASE("requests use a store while programs do", "[daemon][store]") {
  JobScene job;
  OneStore it(job);
  CHECK(it.store.earlier().error().code == ENOENT);
  CHECK_FALSE(it.store.has_files());
  REQUIRE(it.open());
  CHECK(it.store.has_files());
  CHECK_FALSE(it.store.is_left());
  int calls = 0;
  const auto count = [&](const OpenBuffer&) {
    ++calls;
  };
  CHECK_FALSE(it.store.use(count));
  it.store.publish();
  CHECK(it.store.use(count));
  control::replies::Status status;
  it.store.add_status(status);
  REQUIRE(status.store);
  CHECK((!status.store->read_only && status.store->capacity > 0));
  CHECK(status.store->backends.empty());
  REQUIRE(it.store.places().size() == 1);
  CHECK(it.store.places().front().id == "nvml:/");
  it.store.close(no_session);
  CHECK_FALSE(it.store.use(count));
  CHECK(calls == 1);
  status = {};
  it.store.add_status(status);
  CHECK(status == control::replies::Status{});
}

TEST_CASE("a store that is not kept is removed", "[daemon][store]") {
  JobScene job;
  OneStore it(job);
  REQUIRE(it.open());
  it.write("a", "1");
  const std::string path = it.store.path();
  CHECK(std::filesystem::exists(path));
  CHECK(it.store.give_up());
  bool ended = false;
  it.store.close([&] { ended = true; });
  CHECK(ended);
  CHECK_FALSE(std::filesystem::exists(path));
  CHECK(it.store.earlier()->left == image::ShutdownState::over);
}

TEST_CASE("the next instance continues with a store that was left", "[daemon][store]") {
  JobScene job;
  {
    OneStore first(job);
    REQUIRE(first.open());
    first.write("a", "1");
    first.store.keep(true);
    CHECK(first.store.leave(image::ShutdownState::unsaved));
    first.store.close(no_session);
  }
  OneStore next(job);
  const auto before = next.store.earlier();
  REQUIRE(before);
  CHECK(next.store.check_reach(*before));
  REQUIRE(next.store.open());
  CHECK(next.store.refuse_second(*before));
  CHECK((next.store.is_left() && next.store.left_as() == image::ShutdownState::unsaved));
  REQUIRE(next.store.open_files(false));
  CHECK(next.has("a"));
  CHECK(next.store.earlier()->left == image::ShutdownState::in_use);
  // as after a start that failed before a program ran
  next.store.keep(true);
  next.store.give_back(false);
  CHECK(next.store.earlier()->left == image::ShutdownState::unsaved);
  next.store.close(no_session);
  CHECK(std::filesystem::exists(next.store.path()));
}

TEST_CASE("an instance does not abandon the store of an earlier one", "[daemon][store]") {
  JobScene job;
  {
    OneStore first(job);
    REQUIRE(first.open());
    first.store.keep(true);
    CHECK(first.store.leave(image::ShutdownState::unsaved));
    first.store.close(no_session);
  }
  job.config.backends.front().daxfs = job.path("other-nvm");
  OneStore next(job);
  const auto before = next.store.earlier();
  REQUIRE(before);
  REQUIRE(next.store.open());
  CHECK(next.store.refuse_second(*before).error().code == EEXIST);
  CHECK(std::filesystem::is_empty(job.path("other-nvm")));
}

TEST_CASE("a takeover finds the end that a dead worker recorded", "[daemon][store]") {
  JobScene job;
  OneStore it(job);
  REQUIRE(it.open());
  CHECK(it.store.earlier()->left == image::ShutdownState::in_use);
  it.store.record_end(image::ShutdownState::kept);
  CHECK(it.store.earlier()->left == image::ShutdownState::kept);
  it.store.close(no_session);
}

TEST_CASE("a start that lacks space, memory or descriptors speaks of no damage",
          "[daemon][store]") {
  for (const int code : {ENOSPC, EDQUOT, ENOMEM, EMFILE, ENFILE, EPROTONOSUPPORT}) {
    const auto error = not_opened("/store", true, {code, "the cause"}).error();
    CHECK(error.code == code);
    CHECK(error.what == "/store: the cause");
  }
  CHECK(not_opened("/store", true, {EUCLEAN, "the cause"}).error().what ==
        "/store: the cause; see the damage: efs check-image /store; export what is left: efs "
        "salvage /store");
  CHECK(not_opened("/store", false, {EIO, "the cause"}).error().what == "/store: the cause");
}

}  // namespace
}  // namespace efs::daemon
