// SPDX-License-Identifier: BSD-3-Clause
// When contents move between tiers, and what a file that cannot move does to the others.
#include "daemon/mover.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <condition_variable>
#include <mutex>
#include <set>

namespace efs::daemon {
namespace {

struct FakeFile {
  std::uint64_t ino = 0;
  unsigned place = 0;
  std::uint64_t bytes = 0;
  bool was_used = true;
  bool is_open = false;
};

/// Backends of 1000 bytes.
class FakeTiers final : public TierTransfers {
 public:
  Space space_of(unsigned place) override {
    const std::lock_guard lock(mutex_);
    std::uint64_t used = 0;
    for (const auto& [path, file] : files_) {
      used += file.place == place ? file.bytes : 0;
    }
    ++looks_;
    changed_.notify_all();
    return {
        .capacity = 1000, .used = used, .available = 1000 - std::min<std::uint64_t>(used, 1000)};
  }

  std::vector<MoveCandidate> move_candidates(unsigned place) override {
    const std::lock_guard lock(mutex_);
    std::vector<MoveCandidate> found;
    for (auto& [path, file] : files_) {
      if (file.place == place && !file.is_open) {
        found.push_back({.ino = file.ino,
                         .path = path,
                         .bytes = file.bytes,
                         .since = FileTime(static_cast<Nanoseconds>(file.ino)),
                         .was_used = std::exchange(file.was_used, false)});
      }
    }
    ++listed_[place];
    changed_.notify_all();
    return found;
  }

  stage::Moves move_files(std::span<const std::string> paths, unsigned place,
                          stage::Progress& progress) override {
    std::unique_lock lock(mutex_);
    ++calls_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !hangs_ || progress.cancel; });
    stage::Moves moves;
    for (const auto& path : paths) {
      if (const auto code = fails_.find(path); progress.cancel || code != fails_.end()) {
        moves.failed.push_back({path, {progress.cancel ? ECANCELED : code->second, "no"}});
        continue;
      }
      files_[path].place = place;
      ++moves.files;
      moves.bytes += files_[path].bytes;
    }
    changed_.notify_all();
    return moves;
  }

  void put(const std::string& path, FakeFile file) {
    const std::lock_guard lock(mutex_);
    files_[path] = file;
  }

  void use(const std::string& path) {
    const std::lock_guard lock(mutex_);
    files_[path].was_used = true;
  }

  void fail(const std::string& path, int code) {
    const std::lock_guard lock(mutex_);
    fails_[path] = code;
  }

  void hang(bool hangs) {
    const std::lock_guard lock(mutex_);
    hangs_ = hangs;
    changed_.notify_all();
  }

  void await_place(const std::string& path, unsigned place) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return files_[path].place == place; });
  }

  void await_calls(unsigned count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return calls_ >= count; });
  }

  /// Waits for so many further listings of the place.
  void await_listings(unsigned place, unsigned count) {
    std::unique_lock lock(mutex_);
    const unsigned last = listed_[place] + count;
    changed_.wait(lock, [&] { return listed_[place] >= last; });
  }

  /// Waits for so many further looks at any tier.
  void await_looks(unsigned count) {
    std::unique_lock lock(mutex_);
    const unsigned last = looks_ + count;
    changed_.wait(lock, [&] { return looks_ >= last; });
  }

  unsigned place_of(const std::string& path) {
    const std::lock_guard lock(mutex_);
    return files_[path].place;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, FakeFile> files_;
  std::map<std::string, int> fails_;
  std::map<unsigned, unsigned> listed_;
  unsigned calls_ = 0, looks_ = 0;
  bool hangs_ = false;
};

struct MoverScene {
  explicit MoverScene(config::Promote promote = config::Promote::never)
      : config(config_with(promote)) {}

  static config::JobConfig config_with(config::Promote promote) {
    config::JobConfig config;
    config.backends = {{.id = "fast"}, {.id = "pmem"}, {.id = "ssd"}};
    config.tiers.order = {0, 2, 1};
    config.tiers.promote = promote;
    return config;
  }

  control::replies::Status status() {
    control::replies::Status status;
    status.store.emplace().backends = {
        {.id = "fast",
         .description = "",
         .capacity = 1000,
         .used = 800,
         .available = 150,
         .durability = "",
         .journal = true,
         .new_files = true,
         .io = {}},
        {.id = "pmem", .description = "", .durability = "", .io = {}},
        {.id = "ssd", .description = "", .durability = "", .io = {}}};
    mover.add_status(status);
    return status;
  }

  const config::JobConfig config;
  FakeTiers tiers;
  KeptTiers figures;
  Mover mover{{.config = config, .transfers = tiers, .figures = &figures}};
};

}  // namespace

TEST_CASE("contents go down once a tier is above high, the oldest first", "[tiers]") {
  MoverScene s;
  s.tiers.put("new", {.ino = 3, .bytes = 500});
  s.tiers.put("old", {.ino = 1, .bytes = 200});
  s.tiers.put("later", {.ino = 2, .bytes = 250});
  s.mover.begin();
  s.tiers.await_place("old", 2);
  s.tiers.await_looks(3);
  s.mover.end();
  CHECK((s.tiers.place_of("new") == 0 && s.tiers.place_of("later") == 0));
  CHECK((s.figures.tiers[0].out_files == 1 && s.figures.tiers[0].out_bytes == 200));
  CHECK((s.figures.tiers[1].in_files == 1 && s.figures.tiers[1].in_bytes == 200));
  const auto status = s.status();
  REQUIRE(status.tiers.size() == 3);
  CHECK((status.tiers[0].id == "fast" && status.tiers[0].used == 850));
  CHECK((status.tiers[0].capacity == 1000 && status.tiers[0].moved_out == 1));
  CHECK((status.tiers[1].id == "ssd" && status.tiers[1].moved_in_bytes == 200));
  CHECK_FALSE(status.tiers[0].last_error);
}

TEST_CASE("a file that cannot move is left alone, and others go", "[tiers]") {
  MoverScene s;
  s.tiers.put("open", {.ino = 1, .bytes = 300});
  s.tiers.put("bad", {.ino = 2, .bytes = 300});
  s.tiers.put("good", {.ino = 3, .bytes = 350});
  s.tiers.fail("open", EBUSY);
  s.tiers.fail("bad", EIO);
  s.mover.begin();
  s.tiers.await_place("good", 2);
  s.mover.end();
  CHECK((s.tiers.place_of("open") == 0 && s.tiers.place_of("bad") == 0));
}

TEST_CASE("status says why a full tier gives nothing", "[tiers]") {
  MoverScene s;
  s.tiers.put("bad", {.ino = 1, .bytes = 950});
  s.tiers.fail("bad", EIO);
  s.mover.begin();
  s.tiers.await_calls(1);
  s.tiers.await_looks(3);
  CHECK(s.status().tiers.at(0).last_error.value_or("").contains("bad: no"));
  s.tiers.put("bad", {.ino = 1, .bytes = 10});
  s.tiers.await_looks(6);
  CHECK_FALSE(s.status().tiers.at(0).last_error);
}

TEST_CASE("a file that was opened in its tier goes up, and not one that came there", "[tiers]") {
  MoverScene s(config::Promote::on_open);
  s.tiers.put("made", {.ino = 1, .place = 1, .bytes = 100});
  s.tiers.put("read", {.ino = 2, .place = 1, .bytes = 100});
  s.mover.begin();
  s.tiers.await_listings(1, 2);
  CHECK((s.tiers.place_of("made") == 1 && s.tiers.place_of("read") == 1));
  s.tiers.use("read");
  s.tiers.await_place("read", 0);
  s.mover.end();
  CHECK(s.tiers.place_of("made") == 1);
}

TEST_CASE("without promote nothing goes up", "[tiers]") {
  MoverScene s;
  s.tiers.put("a", {.ino = 1, .place = 1, .bytes = 100});
  s.mover.begin();
  s.tiers.await_looks(6);
  s.tiers.use("a");
  s.tiers.await_looks(6);
  s.mover.end();
  CHECK(s.tiers.place_of("a") == 1);
}

TEST_CASE("the end cancels a move, and the tiers can be kept again", "[tiers]") {
  MoverScene s;
  s.tiers.put("a", {.ino = 1, .bytes = 500});
  s.tiers.put("b", {.ino = 2, .bytes = 450});
  s.tiers.hang(true);
  s.mover.begin();
  s.tiers.await_calls(1);
  std::jthread ending([&] { s.mover.end(); });
  // the fake looks at the cancellation only when it is woken
  s.tiers.hang(false);
  ending.join();
  s.mover.end();
  s.mover.begin();
  s.tiers.await_place("a", 2);
}

}  // namespace efs::daemon
