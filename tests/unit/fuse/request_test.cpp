// SPDX-License-Identifier: BSD-3-Clause
// A request of the kernel: one reply, and one observation.
#include "fuse/request.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "fuse/wire.hpp"
#include "support/containers.hpp"
#include "support/failing_new.hpp"
#include "support/kernel_end.hpp"
#include "support/log_lines.hpp"
#include "support/temp.hpp"

namespace {

using namespace efs;
using fuse::Operation, fuse::Request;
using test::LogLines;

struct Sink final : fuse::EventSink {
  void operation(const fuse::Event& event) override { events.push_back(event); }

  std::vector<fuse::Event> events;
};

// A callback whose work each test chooses.
std::function<void(Request)>& work() {
  static std::function<void(Request)> chosen;
  return chosen;
}

void access_callback(fuse_req_t handle, fuse_ino_t, int) {
  work()(Request(handle, Operation::access));
}

void lookup_callback(fuse_req_t handle, fuse_ino_t, const char*) {
  work()(Request(handle, Operation::lookup));
}

fuse_lowlevel_ops callbacks() {
  fuse_lowlevel_ops ops{};
  ops.access = access_callback;
  ops.lookup = lookup_callback;
  return ops;
}

struct Scene {
  explicit Scene(std::vector<fuse::EventSink*> sinks = {}) : observer_sinks(std::move(sinks)) {}

  std::vector<test::KernelEnd::Reply> send(std::function<void(Request)> chosen,
                                           std::uint64_t number = 0) {
    work() = std::move(chosen);
    return kernel.send(FUSE_ACCESS, 1, test::message_of(fuse_access_in{}), number);
  }

  const fuse::OperationCounters& counted() const {
    return connection.counters.of(Operation::access);
  }

  std::vector<fuse::EventSink*> observer_sinks;
  test::TempDirectory directory{"/dev/shm"};
  UniqueFd metadata = directory.open();
  std::unique_ptr<Backend> backend = test::open_containers(directory.path());
  std::unique_ptr<fs::Filesystem> filesystem =
      std::move(*fs::Filesystem::open(*backend, {.metadata_directory = metadata.get()}));
  fuse::Connection connection{.filesystem = *filesystem,
                              .backing = fuse::BackingTable(nullptr, fuse::ids_to_keep),
                              .observer = fuse::Observer(observer_sinks)};
  test::KernelEnd kernel{callbacks(), connection};
};

static_assert(!std::is_copy_constructible_v<Request> && !std::is_copy_assignable_v<Request>);
static_assert(std::is_nothrow_move_constructible_v<Request> &&
              std::is_nothrow_move_assignable_v<Request>);

}  // namespace

TEST_CASE("a request is replied to once", "[fuse]") {
  Scene scene;
  const LogLines log;
  const auto replies = scene.send([](Request request) {
    CHECK_FALSE(request.replied());
    request.reply_error(EACCES);
    CHECK(request.replied());
  });
  REQUIRE(replies.size() == 1);
  CHECK(replies[0].error == EACCES);
  CHECK(log.empty());
  CHECK(scene.counted().count == 1);
  CHECK(scene.counted().errors == 1);
}

TEST_CASE("a second reply to a request is logged and dropped", "[fuse]") {
  Scene scene;
  const LogLines log;
  const auto replies = scene.send([](Request request) {
    request.reply_error(0);
    request.reply_error(EACCES);
    CHECK(request.reply_open({}));
  });
  REQUIRE(replies.size() == 1);
  CHECK(replies[0].error == 0);
  CHECK(log.have("event=second_reply operation=access"));
  CHECK(scene.counted().count == 1);
  CHECK(scene.counted().errors == 0);
}

TEST_CASE("a request that is destroyed without a reply gets EIO, and a line in the log", "[fuse]") {
  Scene scene;
  const LogLines log;
  const auto replies = scene.send([](Request) {}, 4711);
  REQUIRE(replies.size() == 1);
  CHECK(replies[0].number == 4711);
  CHECK(replies[0].error == EIO);
  CHECK(log.have("event=no_reply operation=access request=4711"));
  CHECK(scene.counted().count == 1);
  CHECK(scene.counted().errors == 1);
}

TEST_CASE("a request that was moved from is empty", "[fuse]") {
  Sink sink;
  Scene scene({&sink});
  const LogLines log;
  const auto replies = scene.send([&](Request request) {
    request.observe({.ino = 1});
    {
      Request other(std::move(request));
      CHECK(request.replied());  // NOLINT(bugprone-use-after-move)
      CHECK_FALSE(other.replied());
      request = std::move(other);
      CHECK(other.replied());  // NOLINT(bugprone-use-after-move)
    }
    CHECK(scene.counted().count == 0);
    CHECK(sink.events.empty());
    CHECK_FALSE(request.replied());
    request.reply_error(0);
  });
  REQUIRE(replies.size() == 1);
  CHECK(replies[0].error == 0);
  CHECK(log.empty());
  CHECK(scene.counted().count == 1);
  CHECK(sink.events.size() == 1);
}

TEST_CASE("a request that is assigned to ends first", "[fuse]") {
  Scene scene;
  std::optional<Request> kept;
  CHECK(scene.send([&](Request request) { kept.emplace(std::move(request)); }, 1).empty());
  const auto replies = scene.send(
      [&](Request request) {
        *kept = std::move(request);
        kept->reply_error(0);
        kept.reset();
      },
      2);
  REQUIRE(replies.size() == 2);
  CHECK((replies[0].number == 1 && replies[0].error == EIO));
  CHECK((replies[1].number == 2 && replies[1].error == 0));
  CHECK(scene.counted().count == 2);
}

TEST_CASE("a request has its client, its number, and whether it was sent before", "[fuse]") {
  Scene scene;
  const auto look = [](std::uint64_t number, bool resent) {
    return [=](Request request) {
      CHECK(request.number() == number);
      CHECK(request.resent() == resent);
      const fs::Caller caller = request.caller();
      CHECK(caller.uid == test::KernelEnd::uid);
      CHECK(caller.gid == test::KernelEnd::gid);
      CHECK(caller.request == number);
      CHECK(caller.resent == resent);
      request.reply_error(0);
    };
  };
  CHECK(scene.send(look(42, false), 42).size() == 1);
  CHECK(scene.send(look(43, true), 43 | fuse::resent_bit).size() == 1);
}

TEST_CASE("the sinks are told of a request once, when it ends", "[fuse]") {
  Sink sink;
  Scene scene({&sink});
  scene.send([&](Request request) {
    request.observe({.ino = 1, .name = "a", .offset = 3, .size = 5});
    request.reply_error(EPERM);
    CHECK(sink.events.empty());
  });
  REQUIRE(sink.events.size() == 1);
  const auto& event = sink.events[0];
  CHECK(event.operation == Operation::access);
  CHECK((event.path == "/a" && event.offset == 3 && event.size == 5));
  CHECK((event.uid == test::KernelEnd::uid && event.gid == test::KernelEnd::gid));
  CHECK(event.error == EPERM);
}

TEST_CASE("a name that is missing is an error to the sinks, not to the counters", "[fuse]") {
  Sink sink;
  Scene scene({&sink});
  work() = [](Request request) {
    request.observe({.ino = 1, .name = "a"});
    request.reply_no_entry();
  };
  const auto replies = scene.kernel.send(FUSE_LOOKUP, 1, test::message_of(std::string_view("a")));
  REQUIRE(replies.size() == 1);
  CHECK(replies[0].error == 0);
  REQUIRE(sink.events.size() == 1);
  CHECK(sink.events[0].error == ENOENT);
  CHECK(scene.connection.counters.of(Operation::lookup).errors == 0);
}

TEST_CASE("a request allocates nothing unless it is observed", "[fuse]") {
  Scene scene;
  std::uint64_t allocated = 1;
  scene.send([&](Request request) {
    const auto before = test::allocations();
    Request other(std::move(request));
    other.observe({.ino = 1, .name = "a"});
    (void)other.caller();
    other.reply_error(0);
    request = std::move(other);
    allocated = test::allocations() - before;
  });
  CHECK(allocated == 0);
}
