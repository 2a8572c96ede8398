// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/usage.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "daemon/kept_figures.hpp"

using namespace efs;
using fuse::MissedNames;
using fuse::OpenedFiles;

namespace {

bool contains(const MissedNames& missed, std::uint64_t parent, const std::string& name) {
  return std::ranges::any_of(
      missed.all(), [&](const auto& one) { return one.parent == parent && one.name == name; });
}

}  // namespace

TEST_CASE("usage: an opened file is marked, and no other", "[fuse]") {
  const auto kept = daemon::make_kept_figures();
  OpenedFiles& opened = kept->usage.opened;
  CHECK_FALSE(opened.contains(64));
  opened.mark(64);
  opened.mark(64);
  CHECK(opened.contains(64));
  CHECK_FALSE(opened.contains(63));
  CHECK_FALSE(opened.contains(65));
  CHECK_FALSE(opened.contains(0));
  opened.mark(OpenedFiles::most - 1);
  CHECK(opened.contains(OpenedFiles::most - 1));
  opened.mark(OpenedFiles::most);
  CHECK(opened.contains(OpenedFiles::most));  // not known: counts as opened
}

TEST_CASE("usage: threads mark files of one word", "[fuse]") {
  const auto kept = daemon::make_kept_figures();
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for (std::uint64_t ino = thread; ino < 4096; ino += 4) {
          kept->usage.opened.mark(ino);
        }
      });
    }
  }
  for (std::uint64_t ino = 0; ino < 4096; ++ino) {
    REQUIRE(kept->usage.opened.contains(ino));
  }
}

TEST_CASE("usage: names looked up in vain", "[fuse]") {
  const auto kept = daemon::make_kept_figures();
  MissedNames& missed = kept->usage.missed;
  CHECK(missed.all().empty());
  missed.add(1, "input");
  missed.add(1, "input");
  missed.add(2, "input");
  missed.add(1, "made later");
  missed.remove(1, "made later");
  missed.remove(1, "never asked for");
  CHECK(missed.all().size() == 2);
  CHECK(contains(missed, 1, "input"));
  CHECK(contains(missed, 2, "input"));
  CHECK(missed.not_kept() == 0);
  missed.add(1, std::string(MissedNames::longest, 'n'));
  CHECK(contains(missed, 1, std::string(MissedNames::longest, 'n')));
  missed.add(1, std::string(MissedNames::longest + 1, 'n'));  // no file system has it
  CHECK(missed.all().size() == 3);
}

TEST_CASE("usage: a full set counts the other names", "[fuse]") {
  const auto kept = daemon::make_kept_figures();
  MissedNames& missed = kept->usage.missed;
  constexpr std::size_t names = 4 * MissedNames::most;
  for (std::size_t i = 0; i < names; ++i) {
    missed.add(1, "name" + std::to_string(i));
  }
  const auto all = missed.all();
  CHECK(all.size() <= MissedNames::most);
  CHECK(all.size() > MissedNames::most / 2);
  CHECK(all.size() + missed.not_kept() == names);
  for (std::size_t i = 0; i < names; ++i) {
    missed.remove(1, "name" + std::to_string(i));
  }
  CHECK(missed.all().empty());
}

TEST_CASE("usage: threads that add and remove names leave whole names", "[fuse]") {
  const auto kept = daemon::make_kept_figures();
  MissedNames& missed = kept->usage.missed;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < 2000; ++i) {
          const std::string name = std::string(20, static_cast<char>('a' + i % 26));
          if (thread % 2 == 0) {
            missed.add(7, name);
          } else {
            missed.remove(7, name);
          }
        }
      });
    }
  }
  for (const auto& one : missed.all()) {
    CHECK(one.parent == 7);
    CHECK(one.name.size() == 20);
    CHECK(std::ranges::count(one.name, one.name.front()) == 20);
  }
}
