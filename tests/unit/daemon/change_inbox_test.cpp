// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/change_inbox.hpp"

#include <catch2/catch_test_macros.hpp>

#include <thread>

#include "support/failing_new.hpp"

namespace efs::daemon {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

TEST_CASE("the inbox gives the changes once, in their order", "[drain]") {
  ChangeInbox inbox;
  inbox.named(7, 1, "a");
  inbox.changed(7);
  inbox.closed(7);
  inbox.moved(1, "d");
  const auto content = inbox.take();
  REQUIRE(content.changes.size() == 4);
  CHECK_FALSE(content.lost);
  CHECK((content.changes[0].kind == Change::Kind::named && content.changes[0].ino == 7 &&
         content.changes[0].parent == 1 && content.changes[0].name == "a"));
  CHECK((content.changes[1].kind == Change::Kind::changed && content.changes[1].ino == 7));
  CHECK((content.changes[2].kind == Change::Kind::closed && content.changes[2].ino == 7));
  CHECK((content.changes[3].kind == Change::Kind::moved && content.changes[3].name == "d"));
  CHECK(inbox.take().changes.empty());
}

TEST_CASE("a wait without an end ends with a change, and with a poke", "[drain]") {
  ChangeInbox inbox;
  for (const bool poke : {false, true}) {
    std::jthread other([&] {
      std::this_thread::sleep_for(20ms);
      poke ? inbox.poke() : inbox.closed(7);
    });
    inbox.wait(std::nullopt);
    CHECK(inbox.take().changes.size() == (poke ? 0 : 1));
  }
  inbox.poke();
  inbox.wait(std::nullopt);  // the poke came first
}

TEST_CASE("a wait ends in time without a change", "[drain]") {
  ChangeInbox inbox;
  const auto end = Clock::now() + 30ms;
  inbox.wait(end);
  CHECK(Clock::now() >= end);
}

TEST_CASE("a wait gathers the changes that follow at once", "[drain]") {
  bool gathered = false;
  for (int attempt = 0; attempt < 20 && !gathered; ++attempt) {  // a busy machine is late
    ChangeInbox inbox;
    inbox.closed(1);
    std::jthread other([&] {
      std::this_thread::sleep_for(20ms);
      inbox.closed(2);
    });
    inbox.wait(std::nullopt);
    gathered = inbox.take().changes.size() == 2;
  }
  CHECK(gathered);
}

TEST_CASE("the inbox says when changes are lost", "[drain]") {
  ChangeInbox inbox;
  for (std::size_t i = 0; i <= ChangeInbox::most; ++i) {
    inbox.closed(i);
  }
  const auto full = inbox.take();
  CHECK(full.changes.size() == ChangeInbox::most);
  CHECK(full.lost);
  {
    const std::string long_name(100, 'n');
    const efs::test::FailingNew failing(1);
    inbox.named(7, 1, long_name);
  }
  inbox.wait(std::nullopt);
  const auto without_memory = inbox.take();
  CHECK(without_memory.changes.empty());
  CHECK(without_memory.lost);
  CHECK_FALSE(inbox.take().lost);
}

}  // namespace
}  // namespace efs::daemon
