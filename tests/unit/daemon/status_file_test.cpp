// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch_test_macros.hpp>

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <thread>

#include "daemon/status_file.hpp"

using namespace efs::daemon;
using Json = nlohmann::json;

namespace {

struct Directory {
  std::filesystem::path path;

  Directory() {
    std::string name = (std::filesystem::temp_directory_path() / "efs-status-XXXXXX").string();
    path = mkdtemp(name.data());
  }

  ~Directory() { std::filesystem::remove_all(path); }
};

Json read(const std::string& path) {
  std::ifstream stream(path);
  return Json::parse(stream);
}

}  // namespace

TEST_CASE("the first document is there when it opens, the last one at the end") {
  const Directory d;
  const auto path = (d.path / "s.json").string();
  std::atomic<int> value{1};
  {
    auto file = StatusFile::open(path, [&] { return Json{{"value", value.load()}}; }, [] {});
    REQUIRE(file);
    CHECK(read(path)["value"] == 1);
    CHECK(read(path)["updated"].is_number());
    value = 2;
  }
  CHECK(read(path)["value"] == 2);
  CHECK(std::distance(std::filesystem::directory_iterator(d.path), {}) == 1);
}

TEST_CASE("a poke has the document written") {
  const Directory d;
  const auto path = (d.path / "s.json").string();
  std::atomic<int> value{1};
  std::promise<void> asked;
  std::atomic<bool> waits{false};
  auto file = StatusFile::open(
      path, [&] { return Json{{"value", value.load()}}; },
      [&] {
        if (waits.exchange(false)) {
          asked.set_value();
        }
      });
  REQUIRE(file);
  value = 3;
  waits = true;  // the thread writes in its next round and then blocks
  (*file)->poke();
  asked.get_future().wait();
  CHECK(read(path)["value"] == 3);
}

TEST_CASE("a reader never sees half a document") {
  const Directory d;
  const auto path = (d.path / "s.json").string();
  std::atomic<bool> stop{false};
  REQUIRE(replace_file(path, Json{{"text", std::string(100'000, 'x')}}.dump()));
  std::jthread writer([&] {
    while (!stop) {
      (void)replace_file(path, Json{{"text", std::string(100'000, 'x')}}.dump());
    }
  });
#ifdef EFS_SANITIZED
  constexpr int looks = 50;
#else
  constexpr int looks = 200;
#endif
  for (int i = 0; i < looks; ++i) {
    CHECK(read(path)["text"].get<std::string>().size() == 100'000);
  }
  stop = true;
}

TEST_CASE("a place that cannot be written is told at once, and nothing is left") {
  const Directory d;
  CHECK_FALSE(StatusFile::open((d.path / "absent" / "s.json").string(),
                               [] { return Json::object(); }, [] {}));
  std::filesystem::create_directory(d.path / "dir");
  CHECK_FALSE(replace_file((d.path / "dir").string(), "{}"));
  CHECK(std::distance(std::filesystem::directory_iterator(d.path), {}) == 1);
}

TEST_CASE("what a killed daemon left does not matter") {
  const Directory d;
  const auto path = (d.path / "s.json").string();
  std::filesystem::create_symlink(d.path / "elsewhere", path + ".efs-partial");
  REQUIRE(replace_file(path, "{}"));
  CHECK_FALSE(std::filesystem::exists(d.path / "elsewhere"));
  CHECK(read(path) == Json::object());
}

TEST_CASE("opened later, a place that cannot be written is tried again, and nobody waits for it") {
  const Directory d;
  const auto path = (d.path / "absent" / "s.json").string();
  std::promise<void> go_on;
  std::atomic<int> rounds{0};
  auto file = StatusFile::open_later(
      path, [] { return Json{{"value", 1}}; },
      [&, may = go_on.get_future().share()] {
        if (rounds++ == 0) {
          may.wait();
        }
      });
  // the thread blocks in its first round; the caller does not
  CHECK_FALSE(std::filesystem::exists(path));
  go_on.set_value();
  while (rounds < 2) {
    std::this_thread::yield();  // it has tried to write
  }
  std::filesystem::create_directory(d.path / "absent");
  file->poke();
  for (const int now = rounds; rounds < now + 2;) {
    std::this_thread::yield();
  }
  CHECK(read(path)["value"] == 1);
}

TEST_CASE("opened later, the document is there at the end at the latest") {
  const Directory d;
  const auto path = (d.path / "s.json").string();
  (void)StatusFile::open_later(path, [] { return Json{{"value", 1}}; }, {});
  CHECK(read(path)["value"] == 1);
}
