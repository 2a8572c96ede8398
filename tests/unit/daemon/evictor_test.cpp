// SPDX-License-Identifier: BSD-3-Clause
// When a full buffer makes room, and who waits for it.
#include "daemon/evictor.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <condition_variable>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>

#include "base/log.hpp"
#include "support/file_text.hpp"
#include "support/sim_backend.hpp"
#include "support/sim_medium.hpp"
#include "support/temp.hpp"

namespace efs::daemon {
namespace {

/// A buffer of 800 bytes, of which each eviction frees what is asked for while some may go.
class FakeRoom final : public EvictTransfers {
 public:
  void end_evictions() override {}

  stage::Eviction evict(std::uint64_t bytes, stage::Progress& progress) override {
    std::unique_lock lock(mutex_);
    ++rounds_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !hangs_ || progress.cancel; });
    const std::uint64_t freed = std::min(bytes, may_go_);
    may_go_ -= freed;
    available_ += freed;
    return {.files = freed > 0 ? 1U : 0U, .bytes = freed, .stayed = 1, .why = "f: in use"};
  }

  Space space() override {
    const std::lock_guard lock(mutex_);
    return {.capacity = 800, .used = 800 - available_, .available = available_};
  }

  void set(std::uint64_t available, std::uint64_t may_go) {
    const std::lock_guard lock(mutex_);
    available_ = available;
    may_go_ = may_go;
  }

  void hang(bool hangs) {
    const std::lock_guard lock(mutex_);
    hangs_ = hangs;
    changed_.notify_all();
  }

  void await_round(unsigned number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return rounds_ >= number; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t available_ = 800, may_go_ = 0;
  unsigned rounds_ = 0;
  bool hangs_ = false;
};

struct EvictorScene {
  test::SimWorld world{Durability::page, 1};
  test::SimBackend backend{world};
  std::unique_ptr<fs::Filesystem> files;
  FakeRoom room;
  KeptEvicted figures;
  Evictor evictor{{.transfers = room, .figures = &figures}};

  EvictorScene() {
    fs::Filesystem::Options options;
    options.medium = std::make_shared<test::SimMedium>(world);
    auto opened = fs::Filesystem::open(backend, options);
    REQUIRE(opened);
    files = std::move(*opened);
  }
};

}  // namespace

TEST_CASE("a reserve is kept free, and what is wanted", "[evict]") {
  const auto free = [](std::uint64_t available, std::uint64_t wanted) {
    return bytes_to_free({.capacity = 800, .used = 800 - available, .available = available},
                         wanted);
  };
  CHECK(free(100, 0) == 0);
  CHECK(free(99, 0) == 101);
  CHECK(free(0, 0) == 200);
  CHECK(free(400, 300) == 0);
  CHECK(free(400, 500) == 100);
  CHECK(free(50, 100) == 150);
  CHECK(free(0, 10'000) == 800);
}

TEST_CASE("an operation without room waits until some is made", "[evict]") {
  EvictorScene s;
  CHECK_FALSE(s.files->make_room(1));
  s.evictor.begin(*s.files);
  s.room.set(0, 600);
  CHECK(s.files->make_room(1));
  CHECK(s.figures.bytes >= 200);
  s.room.set(0, 0);
  CHECK_FALSE(s.files->make_room(1));
  control::replies::Status status;
  s.evictor.add_status(status);
  REQUIRE(status.evict);
  CHECK(status.evict->evicted == s.figures.files);
  CHECK(status.evict->last_error == "f: in use");
  REQUIRE(s.evictor.end(Evictor::Clock::time_point::max()));
  CHECK_FALSE(s.files->make_room(1));
}

TEST_CASE("the lines of the log have the sums of all rounds", "[evict]") {
  const test::TempDirectory directory;
  const std::string file = directory.path() + "/log";
  REQUIRE(log::setup(file, "info"));
  {
    EvictorScene s;
    s.evictor.begin(*s.files);
    for (int round = 1; round <= 3; ++round) {
      s.room.set(0, 600);
      CHECK(s.files->make_room(1));
    }
    REQUIRE(s.evictor.end(Evictor::Clock::time_point::max()));
    (void)log::setup("", "off");
    std::uint64_t files = 0, bytes = 0;
    std::istringstream words(test::file_text(file));
    for (std::string word; words >> word;) {
      files += word.starts_with("files=") ? std::stoull(word.substr(6)) : 0;
      bytes += word.starts_with("bytes=") ? std::stoull(word.substr(6)) : 0;
    }
    CHECK(files == s.figures.files);
    CHECK(bytes == s.figures.bytes);
  }
}

TEST_CASE("an open for writing does not wait for what cannot be", "[evict]") {
  EvictorScene s;
  s.evictor.begin(*s.files);
  s.room.set(0, 30);
  s.files->keep_reserve();
  CHECK(s.figures.bytes == 30);
  s.files->keep_reserve();
  REQUIRE(s.evictor.end(Evictor::Clock::time_point::max()));
  CHECK(s.figures.bytes == 30);
}

TEST_CASE("the reserve is kept without a request", "[evict]") {
  EvictorScene s;
  s.room.set(10, 600);
  s.evictor.begin(*s.files);
  s.room.await_round(1);
  REQUIRE(s.evictor.end(Evictor::Clock::time_point::max()));
  CHECK(s.figures.bytes == 190);
}

TEST_CASE("an eviction that hangs is told to the end, and lets those who wait go", "[evict]") {
  EvictorScene s;
  s.room.set(0, 600);
  s.room.hang(true);
  s.evictor.begin(*s.files);
  s.room.await_round(1);
  std::atomic<int> made{-1};
  std::thread waiter([&] { made = s.files->make_room(1) ? 1 : 0; });
  // the fake looks at the cancellation only when it is woken
  CHECK_FALSE(s.evictor.end(Evictor::Clock::now()));
  s.room.hang(false);
  CHECK(s.evictor.end(Evictor::Clock::time_point::max()));
  waiter.join();
  CHECK(made == 0);
}

}  // namespace efs::daemon
