// SPDX-License-Identifier: BSD-3-Clause
// The fetcher: each wait ends with the outcome of its fetch, one fetch serves all who wait for a
// file, and nothing waits behind the background or after the end.
#include "daemon/fetcher.hpp"

#include <linux/fuse.h>
#include <poll.h>
#include <sys/resource.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "support/failing_new.hpp"
#include "support/live_buffer.hpp"
#include "support/no_threads.hpp"
#include "support/staged_file.hpp"

namespace efs::daemon {
namespace {

using namespace std::chrono_literals;
using Kind = FetchOutcome::Kind;

/// Fetches nothing. Holds until it is released or cancelled.
struct FakeTransfers final : FetchTransfers {
  FetchOutcome fetch(std::uint64_t ino, stage::Progress& progress) override {
    {
      const MutexLock lock(mutex);
      failing.reset();
      ++calls[ino];
      priority = ::getpriority(PRIO_PROCESS, 0);
    }
    while (hangs || (holds && !progress.cancel)) {
      std::this_thread::sleep_for(1ms);
    }
    if (progress.cancel) {
      return {.kind = Kind::cancelled};
    }
    if (starves.exchange(false)) {
      failing.emplace(1);
    }
    return kind == Kind::failed ? FetchOutcome{.kind = kind, .error = {EIO, "no such luck"}}
                                : FetchOutcome{.kind = kind, .bytes = 10};
  }

  bool takes_turns() const override { return turns; }

  Status begin_turn(std::uint64_t, const stage::Progress& progress) override {
    ++waiting_for_turn;
    while (!has_turn && !progress.cancel) {
      std::this_thread::sleep_for(1ms);
    }
    --waiting_for_turn;
    if (progress.cancel) {
      return fail(ECANCELED);
    }
    ++begun;
    return {};
  }

  void end_turn() override { ++ended; }

  bool is_turn_awaited() const override { return is_awaited; }

  std::uint64_t all() {
    const MutexLock lock(mutex);
    std::uint64_t sum = 0;
    for (const auto& [ino, count] : calls) {
      sum += count;
    }
    return sum;
  }

  Mutex mutex;  // rank 90 (leaf)
  std::map<std::uint64_t, std::uint64_t> calls EFS_GUARDED_BY(mutex);
  std::atomic<int> priority{0};  // of the last thread
  std::atomic<bool> holds{false};
  std::atomic<bool> starves{false};              // the next allocation of the thread fails
  std::optional<efs::test::FailingNew> failing;  // used by one thread
  std::atomic<bool> hangs{false};                // also when it is cancelled
  std::atomic<Kind> kind{Kind::here};
  std::atomic<bool> turns{false}, has_turn{false}, is_awaited{false};
  std::atomic<unsigned> waiting_for_turn{0}, begun{0}, ended{0};
};

struct FetcherScene {
  FetcherScene() { (void)log::setup("", "off"); }

  ~FetcherScene() { (void)fetcher.end(Fetcher::Time::max()); }

  std::uint64_t add(const std::string& path, bool background) const {
    const auto file = buffer.staging->begin_open_file();
    const fs::Origin version{.device = 1, .inode = file->ino, .size = 10};
    REQUIRE(efs::test::publish_file(
        *buffer.staging, *buffer.backend,
        {.ino = file->ino,
         .path = path,
         .attributes = {.mode = 0600},
         .origin = version,
         .remote = fs::Remote{.version = version, .source = path, .background = background}}));
    return file->ino;
  }

  void begin() {
    fetcher.begin(*buffer.filesystem);
    fetcher.fetch_all();
  }

  void wait_for(std::uint64_t ino, std::uint64_t unique) {
    fuse_in_header header{};
    header.unique = unique;
    fetcher.put_aside()->park(ino, std::as_bytes(std::span(&header, 1)));
    fetcher.put_aside()->parked(ino, unique, false);
  }

  /// The next wait that ends: its error by the number of its request.
  std::pair<std::uint64_t, int> next() {
    std::array<std::byte, sizeof(fuse_in_header)> bytes{};
    while (true) {
      const auto taken = fetcher.put_aside()->take(bytes);
      if (taken.size > 0) {
        fuse_in_header header{};
        std::memcpy(&header, bytes.data(), sizeof header);
        return {header.unique, taken.error};
      }
      pollfd ready{.fd = fetcher.put_aside()->ready_fd(), .events = POLLIN, .revents = 0};
      REQUIRE(::poll(&ready, 1, 30000) == 1);
    }
  }

  bool await(const std::function<bool()>& is_so) {
    const auto end = std::chrono::steady_clock::now() + 30s;
    while (!is_so() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(2ms);
    }
    return is_so();
  }

  control::replies::Fetch status() {
    control::replies::Status all;
    fetcher.add_status(all);
    return all.fetch.value_or(control::replies::Fetch{});
  }

  efs::test::LiveBuffer buffer;
  FakeTransfers transfers;
  KeptFetched figures;
  Fetcher fetcher{{.transfers = transfers, .figures = &figures}};
};

}  // namespace

TEST_CASE("each wait ends with the outcome of its fetch", "[daemon][fetch]") {
  FetcherScene s;
  const auto ino = s.add("a", false);
  s.begin();
  s.wait_for(ino, 1);
  CHECK(s.next() == std::pair<std::uint64_t, int>{1, 0});
  s.transfers.kind = Kind::failed;
  s.wait_for(ino, 2);
  CHECK(s.next() == std::pair<std::uint64_t, int>{2, EIO});
  CHECK(s.status().failures == 1);
  CHECK(s.status().last_error == "a: no such luck");
  CHECK(s.buffer.staging->find("a")->content.fetch_failure == "no such luck");
  s.transfers.kind = Kind::gone;
  s.wait_for(ino, 3);
  CHECK(s.next() == std::pair<std::uint64_t, int>{3, ESTALE});
  s.transfers.kind = Kind::here;
  s.wait_for(ino, 4);
  CHECK(s.next() == std::pair<std::uint64_t, int>{4, 0});
  CHECK(s.figures.files == 2);
  CHECK(s.figures.bytes == 20);
  CHECK(s.status().remote == 1);
}

TEST_CASE("one fetch serves all that wait for a file", "[daemon][fetch]") {
  FetcherScene s;
  const auto ino = s.add("a", false);
  s.begin();
  s.transfers.holds = true;
  for (std::uint64_t unique = 1; unique <= 200; ++unique) {
    s.wait_for(ino, unique);
  }
  REQUIRE(s.await([&] { return s.transfers.all() == 1; }));
  CHECK(s.status().waiting == 200);
  CHECK(s.status().running == 1);
  s.transfers.holds = false;
  for (std::uint64_t unique = 1; unique <= 200; ++unique) {
    CHECK(s.next() == std::pair{unique, 0});
  }
}

TEST_CASE("a program does not wait behind the background", "[daemon][fetch]") {
  FetcherScene s;
  for (int i = 0; i < 20; ++i) {
    s.add("b" + std::to_string(i), true);
  }
  const auto ino = s.add("a", false);
  s.transfers.holds = true;
  s.begin();
  REQUIRE(s.await([&] { return s.transfers.all() == Fetcher::most_background; }));
  s.wait_for(ino, 1);
  CHECK(s.await([&] { return s.transfers.all() == Fetcher::most_background + 1; }));
  s.transfers.holds = false;
  CHECK(s.next() == std::pair<std::uint64_t, int>{1, 0});
  CHECK(s.await([&] { return s.transfers.all() == 21; }));
}

TEST_CASE("nothing is fetched before the mount is served, and then also what was wanted before",
          "[daemon][fetch]") {
  FetcherScene s;
  const auto a = s.add("a", false);
  s.add("b", true);
  s.fetcher.begin(*s.buffer.filesystem);
  s.wait_for(a, 1);
  CHECK(s.status().waiting == 1);
  CHECK(s.fetcher.end(Fetcher::Time::min()));  // there is no thread
  CHECK(s.next() == std::pair<std::uint64_t, int>{1, EIO});
  CHECK(s.transfers.all() == 0);
  s.fetcher.begin(*s.buffer.filesystem);
  s.wait_for(a, 2);
  CHECK(s.transfers.all() == 0);
  s.fetcher.fetch_all();
  CHECK(s.next() == std::pair<std::uint64_t, int>{2, 0});
  CHECK(s.await([&] { return s.transfers.all() == 2; }));
}

TEST_CASE("a fetch that hangs does not delay the end beyond its time", "[daemon][fetch]") {
  FetcherScene s;
  const auto ino = s.add("a", false);
  s.transfers.hangs = true;
  s.begin();
  s.wait_for(ino, 1);
  REQUIRE(s.await([&] { return s.transfers.all() == 1; }));
  CHECK_FALSE(s.fetcher.end(std::chrono::steady_clock::now()));
  s.transfers.hangs = false;
  CHECK(s.fetcher.end(Fetcher::Time::max()));
  CHECK(s.next() == std::pair<std::uint64_t, int>{1, EIO});
}

TEST_CASE("a shortage of memory delays a fetch, which then goes on by itself", "[daemon][fetch]") {
  FetcherScene s;
  const auto a = s.add("a", false), b = s.add("b", false);
  s.transfers.holds = true;
  s.begin();
  s.wait_for(a, 1);
  REQUIRE(s.await([&] { return s.transfers.all() == 1; }));
  {
    const efs::test::NoThreads only_one;
    s.wait_for(b, 2);
  }
  s.transfers.starves = true;
  s.transfers.holds = false;
  CHECK(s.next() == std::pair<std::uint64_t, int>{1, 0});
  CHECK(s.next() == std::pair<std::uint64_t, int>{2, 0});
}

TEST_CASE("the end lets all waits fail, and so do waits after it", "[daemon][fetch]") {
  FetcherScene s;
  std::vector<std::uint64_t> inos;
  for (unsigned i = 0; i < 2 * Fetcher::most_threads; ++i) {
    inos.push_back(s.add("a" + std::to_string(i), false));
  }
  s.begin();
  s.transfers.holds = true;
  for (const auto ino : inos) {
    s.wait_for(ino, ino);
  }
  REQUIRE(s.await([&] { return s.transfers.all() == Fetcher::most_threads; }));
  CHECK(s.fetcher.end(Fetcher::Time::max()));
  for (std::size_t i = 0; i < inos.size(); ++i) {
    CHECK(s.next().second == EIO);
  }
  s.wait_for(inos[0], 1);
  CHECK(s.next() == std::pair<std::uint64_t, int>{1, EIO});
  CHECK(s.transfers.all() == Fetcher::most_threads);
}

TEST_CASE("files that a client asks for come before the background, and count", "[daemon][fetch]") {
  FetcherScene s;
  const auto good = s.add("good", false), other = s.add("other", true);
  s.begin();
  REQUIRE(s.await([&] { return s.transfers.all() == 1; }));
  stage::Progress progress;
  const auto outcome =
      s.fetcher.fetch_files({.files = {{good, 10}, {other, 10}}, .already = 3}, progress);
  REQUIRE(outcome.ok);
  CHECK((outcome.loaded->files == 2 && outcome.loaded->already == 3));
  CHECK(outcome.loaded->bytes == 20);
  CHECK((progress.files_done == 2 && progress.bytes_done == 20));
  CHECK(s.fetcher.fetch_files({}, progress).ok);
}

TEST_CASE("a failed fetch is the outcome of the client that asked", "[daemon][fetch]") {
  FetcherScene s;
  const auto a = s.add("a", false), b = s.add("b", false);
  s.begin();
  s.transfers.kind = Kind::failed;
  stage::Progress progress;
  const auto outcome = s.fetcher.fetch_files({.files = {{a, 10}, {b, 10}}}, progress);
  CHECK_FALSE(outcome.ok);
  CHECK((outcome.failure.code == EIO && outcome.failure.exit == 1));
  CHECK(outcome.failure.error.starts_with("0 of 2 inputs were fetched; the first failure: "));
  CHECK(outcome.failure.error.ends_with(": no such luck"));
}

TEST_CASE("a cancelled request leaves the other fetches", "[daemon][fetch]") {
  FetcherScene s;
  std::vector<FetchControl::File> files;
  for (int i = 0; i < 20; ++i) {
    files.push_back({s.add("a" + std::to_string(i), i == 7), 10});
  }
  s.transfers.holds = true;
  s.begin();
  s.fetcher.prepare(files.size());
  stage::Progress progress;
  control::replies::TaskOutcome outcome;
  std::thread client([&] { outcome = s.fetcher.fetch_files({.files = files}, progress); });
  const bool begun = s.await([&] { return s.transfers.all() == Fetcher::most_background; });
  progress.cancel = true;
  client.join();
  REQUIRE(begun);
  CHECK(outcome.failure.code == ECANCELED);
  CHECK_FALSE(s.fetcher.await_background(0ms).is_over);
  s.transfers.holds = false;
  CHECK(s.fetcher.await_background(30s).is_over);
  CHECK(s.await([&] { return s.status().running == 0; }));
  CHECK(s.transfers.all() <= Fetcher::most_background + 1);
}

TEST_CASE("the background is over when each file was tried, with those that failed",
          "[daemon][fetch]") {
  FetcherScene s;
  const auto a = s.add("a", true);
  s.add("b", true);
  s.transfers.kind = Kind::failed;
  CHECK(s.fetcher.await_background(30s).is_ending);
  s.fetcher.begin(*s.buffer.filesystem);
  const auto before = s.fetcher.await_background(0ms);
  CHECK_FALSE(before.is_over);
  CHECK(before.left == 2);  // although none is queued yet
  s.fetcher.fetch_all();
  auto state = s.fetcher.await_background(30s);
  CHECK((state.is_over && state.left == 0 && state.failed == 2));
  CHECK(state.last_error.ends_with(": no such luck"));
  s.transfers.kind = Kind::here;
  s.wait_for(a, 1);
  CHECK(s.next() == std::pair<std::uint64_t, int>{1, 0});
  CHECK(s.fetcher.await_background(0ms).failed == 1);
  CHECK(s.fetcher.end(Fetcher::Time::max()));
  CHECK(s.fetcher.await_background(30s).is_ending);
}

TEST_CASE("the background is over if no thread can fetch it", "[daemon][fetch]") {
  FetcherScene s;
  const auto a = s.add("a", true);
  s.add("b", true);
  {
    const efs::test::NoThreads none;
    s.begin();
  }
  const auto state = s.fetcher.await_background(30s);
  CHECK((state.is_over && state.failed == 2));
  CHECK(state.last_error == "no thread could be started for fetches");
  s.wait_for(a, 1);
  CHECK(s.next() == std::pair<std::uint64_t, int>{1, 0});
  CHECK(s.fetcher.await_background(0ms).failed == 1);
}

TEST_CASE("a client's fetch does not have the priority of its task", "[daemon][fetch]") {
  FetcherScene s;
  const auto a = s.add("a", false);
  s.begin();
  s.fetcher.prepare(1);
  control::replies::TaskOutcome outcome;
  stage::Progress progress;
  std::thread task([&] {
    ::setpriority(PRIO_PROCESS, 0, 15);
    outcome = s.fetcher.fetch_files({.files = {{a, 10}}}, progress);
  });
  task.join();
  CHECK(outcome.ok);
  CHECK(s.transfers.priority == ::getpriority(PRIO_PROCESS, 0));
}

TEST_CASE("opens one after the other fetch what follows, and its opens fetch more",
          "[daemon][fetch]") {
  FetcherScene s;
  std::vector<std::uint64_t> inos;
  for (int i = 0; i < 20; ++i) {
    inos.push_back(s.add(std::to_string(i), false));
  }
  s.begin();
  s.wait_for(inos[0], 1);
  CHECK(s.next() == std::pair<std::uint64_t, int>{1, 0});
  CHECK(s.transfers.all() == 1);
  s.wait_for(inos[1], 2);
  CHECK(s.next() == std::pair<std::uint64_t, int>{2, 0});
  REQUIRE(s.await([&] { return s.transfers.all() == 4; }));
  s.fetcher.put_aside()->opened(inos[5]);  // not expected
  s.fetcher.put_aside()->opened(inos[2]);
  CHECK(s.await([&] { return s.transfers.all() == 7; }));
  s.wait_for(inos[15], 3);
  CHECK(s.next() == std::pair<std::uint64_t, int>{3, 0});
  s.fetcher.put_aside()->opened(inos[3]);  // no longer expected
  CHECK(s.fetcher.end(Fetcher::Time::max()));
  CHECK(s.transfers.all() == 8);
}

TEST_CASE("the background waits for a turn, and nothing else does", "[daemon][fetch]") {
  FetcherScene s;
  s.transfers.turns = true;
  for (int i = 0; i < 20; ++i) {
    s.add("b" + std::to_string(i), true);
  }
  const auto wanted = s.add("wanted", false), asked = s.add("asked", false);
  s.begin();
  REQUIRE(s.await([&] { return s.transfers.waiting_for_turn == 1; }));
  s.wait_for(wanted, 1);
  CHECK(s.next() == std::pair<std::uint64_t, int>{1, 0});
  stage::Progress progress;
  CHECK(s.fetcher.fetch_files({.files = {{asked, 10}}}, progress).ok);
  CHECK(s.transfers.all() == 2);
  s.transfers.has_turn = true;
  CHECK(s.fetcher.await_background(30s).is_over);
  CHECK(s.await([&] { return s.transfers.ended == 1; }));
  CHECK(s.transfers.begun == 1);
  CHECK(s.transfers.all() == 22);
}

TEST_CASE("a turn ends when a load waits for it, and another one begins", "[daemon][fetch]") {
  FetcherScene s;
  s.transfers.turns = s.transfers.has_turn = s.transfers.holds = true;
  for (int i = 0; i < 20; ++i) {
    s.add("b" + std::to_string(i), true);
  }
  s.begin();
  REQUIRE(s.await([&] { return s.transfers.all() == Fetcher::most_background; }));
  CHECK(s.transfers.begun == 1);
  s.transfers.is_awaited = true;
  s.transfers.has_turn = false;
  s.transfers.holds = false;
  REQUIRE(s.await([&] { return s.transfers.ended == 1; }));
  CHECK(s.transfers.all() == Fetcher::most_background);
  s.transfers.is_awaited = false;
  s.transfers.has_turn = true;
  CHECK(s.fetcher.await_background(30s).is_over);
}

TEST_CASE("the end does not wait for a turn, and gives one back", "[daemon][fetch]") {
  FetcherScene s;
  s.transfers.turns = true;
  s.transfers.has_turn = GENERATE(false, true);
  s.transfers.holds = true;
  s.add("b", true);
  s.begin();
  REQUIRE(s.await([&] { return s.transfers.waiting_for_turn == 1 || s.transfers.all() == 1; }));
  CHECK(s.fetcher.end(Fetcher::Time::max()));
  CHECK(s.transfers.begun == s.transfers.ended);
}

}  // namespace efs::daemon
