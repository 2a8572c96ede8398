// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch_test_macros.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/line_file.hpp"
#include "support/no_threads.hpp"

using efs::LineFile;

namespace {

struct Directory {
  std::filesystem::path path;

  Directory() {
    std::string name = (std::filesystem::temp_directory_path() / "efs-lines-XXXXXX").string();
    path = mkdtemp(name.data());
  }

  ~Directory() { std::filesystem::remove_all(path); }
};

std::string text_of(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("lines behind a header; what was there stays") {
  const Directory d;
  const auto path = (d.path / "log").string();
  std::ofstream(path) << "old\n";
  {
    auto file = LineFile::open(path, "# header");
    REQUIRE(file);
    (*file)->append("one");
    (*file)->flush();
    CHECK(text_of(path) == "old\n# header\none\n");
    (*file)->append("two");
  }
  CHECK(text_of(path) == "old\n# header\none\ntwo\n");
}

TEST_CASE("a bound is kept by two files") {
  const Directory d;
  const auto path = (d.path / "log").string();
  constexpr std::uint64_t most = 1000;
  auto file = LineFile::open(path, "", most);
  REQUIRE(file);
  for (int i = 0; i < 200; ++i) {
    (*file)->append("a line of twenty-two " + std::to_string(i));
    (*file)->flush();
    std::uint64_t size = std::filesystem::file_size(path);
    if (std::filesystem::exists(path + ".1")) {
      size += std::filesystem::file_size(path + ".1");
    }
    REQUIRE(size <= most);
  }
  CHECK(text_of(path).ends_with("two 199\n"));
  CHECK(std::filesystem::exists(path + ".1"));
  CHECK((*file)->failure().has_value());
}

TEST_CASE("lines of many threads stay whole") {
  const Directory d;
  const auto path = (d.path / "log").string();
  {
    auto file = LineFile::open(path, "");
    REQUIRE(file);
    std::vector<std::jthread> threads;
    for (char t = 'a'; t < 'e'; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 2000; ++i) {
          (*file)->append(std::string(20, t));
        }
      });
    }
  }
  std::ifstream stream(path);
  int lines = 0;
  for (std::string line; std::getline(stream, line); ++lines) {
    REQUIRE(line == std::string(20, line.empty() ? 'x' : line[0]));
  }
  CHECK(lines == 8000);
}

TEST_CASE("what is appended gets into the file by itself") {
  const Directory d;
  const auto path = (d.path / "log").string();
  const auto file = LineFile::open(path, "# header");
  REQUIRE(file);
  for (const std::string line : {"one", "two"}) {
    (*file)->append(line);
    while (!text_of(path).ends_with(line + "\n")) {
      std::this_thread::yield();
    }
  }
  (*file)->append(std::string(1u << 20, 'x'));
  while (std::filesystem::file_size(path) < 1u << 20) {
    std::this_thread::yield();
  }
  CHECK((*file)->lost() == 0);
}

TEST_CASE("without a thread it is written when there is much of it, and at the end") {
  const Directory d;
  const auto path = (d.path / "log").string();
  {
    const efs::test::NoThreads none;
    const auto file = LineFile::open(path, "");
    REQUIRE(file);
    (*file)->append("little");
    CHECK(text_of(path).empty());
    for (int i = 0; i < 100; ++i) {
      (*file)->append(std::string(999, 'x'));
    }
    CHECK(std::filesystem::file_size(path) > 60'000);
  }
  CHECK(std::filesystem::file_size(path) == 7 + 100 * 1000);
}

TEST_CASE("much at once is spread over two files with a bound") {
  const Directory d;
  const auto path = (d.path / "log").string();
  {
    const efs::test::NoThreads none;
    const auto file = LineFile::open_later(path, "# header", 1000);
    file->flush();
    for (int i = 0; i < 60; ++i) {
      file->append("a line of twenty-two " + std::to_string(i % 10));
    }
  }
  CHECK(text_of(path).starts_with("# header\na line"));
  CHECK(std::filesystem::file_size(path) <= 500);
  CHECK(std::filesystem::file_size(path + ".1") <= 500);
}

TEST_CASE("only a regular file is taken") {
  const Directory d;
  REQUIRE(mkfifo((d.path / "fifo").c_str(), 0600) == 0);
  std::filesystem::create_symlink("target", d.path / "link");
  for (const char* name : {"fifo", "link", ".", "absent/x"}) {
    INFO(name);
    CHECK_FALSE(LineFile::open((d.path / name).string(), ""));
  }
  CHECK_FALSE(std::filesystem::exists(d.path / "target"));
}

TEST_CASE("an error ends the writing and is told") {
  auto file = LineFile::open("/dev/full", "");
  CHECK_FALSE(file);  // no regular file
  const Directory d;
  const auto path = (d.path / "log").string();
  auto bounded = LineFile::open(path, "", 100);
  REQUIRE(bounded);
  std::filesystem::create_directories(d.path / "log.1" / "in-the-way");
  for (int i = 0; i < 10; ++i) {
    (*bounded)->append("a line of twenty-two bytes");
    (*bounded)->flush();
  }
  CHECK_FALSE((*bounded)->failure().has_value());
  CHECK(efs::describe((*bounded)->failure().error()).contains("log.1"));
}

TEST_CASE(
    "a file that is opened later has what was said before, and is tried again until it can be "
    "had") {
  const Directory d;
  const auto path = (d.path / "absent" / "log").string();
  const auto file = LineFile::open_later(path, "# header");
  file->append("before");
  CHECK(file->failure().has_value());
  CHECK_FALSE(file->is_open());
  file->flush();
  CHECK_FALSE(file->failure().has_value());
  file->append("lost: nobody knows for how long");
  file->flush();
  CHECK_FALSE(file->is_open());
  std::filesystem::create_directory(d.path / "absent");
  file->flush();
  CHECK(file->is_open());
  CHECK(file->failure().has_value());
  file->append("after");
  file->flush();
  CHECK(text_of(path) == "# header\nbefore\nafter\n");
}

TEST_CASE("what waits for a file that is not open has a bound") {
  const Directory d;
  const auto path = (d.path / "log").string();
  const auto file = LineFile::open_later(path, "");
  for (int i = 0; i < 3000; ++i) {
    file->append(std::string(999, 'x'));
  }
  file->flush();
  CHECK(std::filesystem::file_size(path) <= 1u << 20);
  CHECK(std::filesystem::file_size(path) > 1'000'000);
}
