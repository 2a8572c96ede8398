// The worker's side of the turns where the keeper says nothing, and both sides where it does.
#include "daemon/turn_keeper.hpp"

#include <sys/socket.h>

#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "support/temp.hpp"

namespace efs::daemon {
namespace {

using queue::Direction;

struct Silent {
  KeeperLines theirs;
  TurnClient client;
  explicit Silent(double seconds) : client(pairs(theirs), "", std::chrono::duration<double>(seconds)) {}
  static KeeperLines pairs(KeeperLines& theirs) {
    KeeperLines ours;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      std::array<int, 2> pair{};
      REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) == 0);
      ours[i].reset(pair[0]);
      theirs[i].reset(pair[1]);
    }
    return ours;
  }
};

TEST_CASE("a keeper that says nothing is not waited for", "[queue]") {
  Silent silent(0.3);
  stage::Progress progress;
  {
    const auto held = silent.client.take(Direction::in, 5, progress);
    REQUIRE(held);
    CHECK(silent.client.view(Direction::in)->standing == queue::Standing::unserialised);
    CHECK(silent.client.view(Direction::in)->reason.find("does not answer") != std::string::npos);
    CHECK_FALSE(silent.client.view(Direction::out));
  }
  CHECK_FALSE(silent.client.view(Direction::in));
}

TEST_CASE("nor before a deadline, nor by who is cancelled", "[queue]") {
  Silent silent(1e6);
  stage::Progress progress;
  CHECK(silent.client.take(Direction::out, 5, progress, std::chrono::steady_clock::now()));
  std::jthread other([&progress] { progress.cancel = true; });
  CHECK(silent.client.take(Direction::in, 5, progress).error().code == ECANCELED);
}

TEST_CASE("a keeper that does not read holds up nobody", "[queue]") {
  Silent silent(1e6);
  stage::Progress progress;
  const auto at_once = std::chrono::steady_clock::now();
  for (int i = 0; i < 5000; ++i) REQUIRE(silent.client.take(Direction::in, 5, progress, at_once));  // more than the line takes
  CHECK(silent.client.take(Direction::out, 5, progress, at_once));
}

TEST_CASE("one turn of each direction at a time", "[queue]") {
  const test::TempDirectory scratch;
  const auto user = find_user(std::to_string(::geteuid()));
  REQUIRE(user);
  auto keeper = start_keeper({.directory = scratch.path(), .job = "a", .node = "n"}, *user);
  REQUIRE(keeper);
  TurnClient client(std::move(*keeper), "");
  stage::Progress progress;
  for (int i = 0; i < 3; ++i) {
    const auto in = client.take(Direction::in, 5, progress);
    const auto out = client.take(Direction::out, 5, progress);
    REQUIRE((in && out));
    CHECK(client.view(Direction::in)->standing == queue::Standing::granted);
    CHECK(client.view(Direction::out)->standing == queue::Standing::granted);
  }
  CHECK_FALSE(client.view(Direction::out));
}

}  // namespace
}  // namespace efs::daemon
