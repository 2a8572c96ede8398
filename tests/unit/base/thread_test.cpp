// SPDX-License-Identifier: BSD-3-Clause
// Code that starts threads continues with the existing threads, or reports that no thread could
// start.
#include "base/thread.hpp"

#include <catch2/catch_test_macros.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/timer_thread.hpp"
#include "base/unique_fd.hpp"
#include "base/with_timeout.hpp"
#include "daemon/signal_watch.hpp"
#include "daemon/status_file.hpp"
#include "daemon/tasks.hpp"
#include "stage/copy/transfer.hpp"
#include "stage/copy/worker_pool.hpp"
#include "stage/pfs/posix_handle.hpp"
#include "support/no_threads.hpp"
#include "support/temp.hpp"
#include "unit/stage/opened.hpp"

using namespace efs;

TEST_CASE("what may hang is waited for as long as it is worth", "[threads]") {
  bool done = false;
  CHECK(with_timeout(std::chrono::minutes(1), [&] { done = true; }));
  CHECK(done);
  const auto pipe = [] {
    std::array<int, 2> ends{};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    return std::pair(UniqueFd(ends[0]), UniqueFd(ends[1]));
  };
  auto [gate, opens] = pipe();
  auto [end, over] = pipe();
  // The work owns the objects that it uses.
  CHECK(!with_timeout(std::chrono::milliseconds(1),
                      [gate = std::make_shared<UniqueFd>(std::move(gate)),
                       over = std::make_shared<UniqueFd>(std::move(over))] {
                        char byte{};
                        (void)!::read(gate->get(), &byte, 1);
                        over->reset();
                      }));
  opens.reset();  // the work has continued in its own thread and ends now
  char byte{};
  CHECK(::read(end.get(), &byte, 1) == 0);
  const test::NoThreads none;
  CHECK(!with_timeout(std::chrono::minutes(1), [] { std::abort(); }));
}

TEST_CASE("a thread that cannot be had is an error and no exception", "[threads]") {
  std::atomic<int> runs = 0;
  {
    REQUIRE(start_thread([&] { ++runs; }));
  }
  CHECK(runs == 1);
  const test::NoThreads none;
  const auto thread = start_thread([&] { ++runs; });
  REQUIRE_FALSE(thread);
  CHECK(thread.error().code == EAGAIN);
  CHECK(runs == 1);
}

TEST_CASE("what needs a thread of its own says that there is none", "[threads]") {
  const test::TempDirectory directory;
  const test::NoThreads none;
  CHECK(TimerThread::start(TimerThread::Clock::now(), [] {}).error().code == EAGAIN);
  CHECK(daemon::Tasks::open().error().code == EAGAIN);
  CHECK(daemon::StatusFile::open(directory.path() + "/status",
                                 [] { return nlohmann::json::object(); }, {})
            .error()
            .code == EAGAIN);
  sigset_t signals;
  sigemptyset(&signals);
  CHECK(daemon::SignalWatch::start(signals, [] {}).error().code == EAGAIN);
}

TEST_CASE("a pool without threads is its caller alone", "[threads]") {
  const test::NoThreads none;
  std::vector<int> seen(1000);
  stage::WorkerPool pool(8);
  pool.run(seen.size(), 10, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      ++seen[i];
    }
  });
  CHECK(seen == std::vector<int>(1000, 1));
  CHECK(pool.widest() == 1);
}

TEST_CASE("a large file where no thread can be had is copied by its caller", "[threads]") {
  const test::TempDirectory directory;
  const auto from = stage::opened(directory.path() + "/from", O_RDWR | O_CREAT),
             to = stage::opened(directory.path() + "/to", O_RDWR | O_CREAT);
  constexpr std::uint64_t size = stage::shared_from + 5;
  std::string text(size, 'x');
  for (std::size_t i = 0; i < size; i += 997) {
    text[i] = static_cast<char>('a' + i % 26);
  }
  REQUIRE(::pwrite(stage::fd_of(from), text.data(), size, 0) == static_cast<ssize_t>(size));
  stage::Scratch scratch(1U << 20U);
  stage::Progress progress;
  FileChecksum sum(SumKind::xxh3);
  Checksum expected;
  expected.update(std::as_bytes(std::span(text)));
  {
    const test::NoThreads none;
    const stage::PfsContent source(stage::posix_pfs(), from), destination(stage::posix_pfs(), to);
    REQUIRE(stage::copy_data(
        {.source = source, .destination = destination, .size = size, .allocated = size}, scratch,
        &sum, progress));
  }
  std::string copied(size, '\0');
  REQUIRE(::pread(stage::fd_of(to), copied.data(), size, 0) == static_cast<ssize_t>(size));
  CHECK((copied == text));
  CHECK(sum.finish().value == expected.digest());
}
