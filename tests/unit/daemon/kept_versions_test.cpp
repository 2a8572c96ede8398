// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/kept_versions.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include <set>

namespace efs::daemon {
namespace {

using namespace std::chrono_literals;
using FileState = KeptVersions::FileState;
using Reason = KeptVersions::Reason;

const KeptVersions::Time test_start{1000h};

/// Versions of files whose states the test sets. A file without a state is gone.
struct VersionScene {
  VersionScene() {
    config.outputs = {{.pattern = "tmp*", .file_class = config::FileClass::temporary},
                      {.pattern = "one*", .drain = 0s, .keep = 1},
                      {.pattern = "ckpt/*", .drain = 0s, .keep = 2},
                      {.pattern = "**/deep.*/state", .drain = 0s, .keep = 1},
                      {.pattern = "some/*", .drain = 0s, .keep = 2, .send_one_in = 3},
                      {.pattern = "**", .drain = 0s}};
  }

  KeptVersions::Look look() {
    return [this](const std::string& path, std::uint64_t) {
      ++looks;
      const auto state = states.find(path);
      return state == states.end() ? FileState::gone : state->second;
    };
  }

  bool goes(const std::string& path) { return versions.goes(path, look()); }

  /// A file that was closed after all earlier ones.
  void add(const std::string& path, FileState state = FileState::home) {
    states[path] = state;
    versions.named(path, ++ino, ++time);
  }

  void close(const std::string& path) { versions.closed(path, ++time); }

  /// The old versions, as text: "path(files)".
  std::string old(KeptVersions::Time now = test_start) {
    const auto edits = [this](std::uint64_t number) {
      return std::optional(changes[number]);
    };
    chosen = versions.choose(look(), edits, now);
    const bool has_unsent = std::ranges::any_of(
        states, [](const auto& state) { return state.second == FileState::only_here; });
    if (has_unsent && versions.next() == now + KeptVersions::quiet_time) {
      chosen = versions.choose(look(), edits, now + KeptVersions::quiet_time);
    }
    std::string text;
    for (const auto& version : chosen) {
      text += version.path + "(";
      for (const auto& file : version.files) {
        text += (&file == &version.files.front() ? "" : " ") + file.path;
      }
      text += ") ";
    }
    return text;
  }

  config::JobConfig config;
  KeptVersions versions{config};
  std::map<std::string, FileState> states;
  std::map<std::uint64_t, std::uint64_t> changes;  // by the number of the file
  std::vector<stage::OldVersion> chosen;
  std::uint64_t ino = 0;
  Nanoseconds time = 0;
  int looks = 0;
};

TEST_CASE("versions that are older than the newest ones are old", "[drain][keep]") {
  VersionScene it;
  it.add("one.1");
  CHECK(it.old() == "");
  it.add("one.2");
  CHECK(it.old() == "one.1(one.1) ");
  it.add("ckpt/a");
  it.add("ckpt/b");
  it.states.erase("one.1");
  CHECK(it.old() == "");
  it.add("ckpt/c");
  it.add("ckpt/d");
  CHECK(it.old() == "ckpt/a(ckpt/a) ckpt/b(ckpt/b) ");
}

TEST_CASE("the order is that of the last close, not of the names", "[drain][keep]") {
  VersionScene it;
  it.add("one.9");
  it.add("one.1");
  CHECK(it.old() == "one.9(one.9) ");
  it.close("one.9");
  CHECK(it.old() == "one.1(one.1) ");
  it.add("one.1");  // another file of this name
  CHECK(it.old() == "one.9(one.9) ");
  CHECK(it.versions.closed_at("one.1", it.ino) == it.time);
  CHECK_FALSE(it.versions.closed_at("one.1", 1));
  CHECK_FALSE(it.versions.closed_at("one.2", 1));
}

TEST_CASE("only a version that is home as a whole is old", "[drain][keep]") {
  VersionScene it;
  it.add("one.1/a");
  it.add("one.1/d/b", FileState::changed);
  it.add("one.2");
  CHECK(it.old() == "");
  it.states["one.1/d/b"] = FileState::home;
  CHECK(it.old() == "");  // nothing is known to have changed
  it.versions.look_again();
  CHECK(it.old() == "one.1(one.1/a one.1/d/b) ");
}

TEST_CASE("a version that is not home counts", "[drain][keep]") {
  VersionScene it;
  it.add("one.1");
  it.add("one.2", FileState::changed);
  CHECK(it.old() == "one.1(one.1) ");
}

TEST_CASE("a version that a program is writing does not count", "[drain][keep]") {
  VersionScene it;
  it.add("one.1");
  it.add("one.2", FileState::written);
  CHECK(it.old() == "");
  it.add("one.3/a");
  it.add("one.3/b", FileState::written);
  CHECK(it.old() == "");
  it.states["one.2"] = FileState::changed;
  it.close("one.2");
  CHECK(it.old() == "one.1(one.1) ");
}

TEST_CASE("a version that is gone does not count", "[drain][keep]") {
  VersionScene it;
  it.add("one.1");
  it.add("one.2");
  it.add("one.3");
  it.states.erase("one.3");
  it.states.erase("one.2");
  CHECK(it.old() == "");
  it.versions.look_again();
  it.looks = 0;
  CHECK(it.old() == "");
  CHECK(it.looks == 0);  // they were forgotten
}

TEST_CASE("each directory has a series of its own", "[drain][keep]") {
  VersionScene it;
  for (const auto* name : {"deep.1/state", "a/deep.1/state", "a/deep.2/state", "b/deep.1/state"}) {
    it.add(name);
  }
  CHECK(it.old() == "a/deep.1(a/deep.1/state) ");
  it.add("a/deep.1/other");
  it.add("other");
  it.add("tmp1");
  it.add("tmp2");
  CHECK(it.old() == "");
}

TEST_CASE("without a change nothing is looked at", "[drain][keep]") {
  VersionScene it;
  CHECK_FALSE(it.versions.next());
  it.versions.look_again();
  CHECK_FALSE(it.versions.next());
  it.add("one.1");
  it.add("one.2", FileState::changed);
  CHECK(it.versions.next());
  it.old();
  CHECK_FALSE(it.versions.next());
  it.looks = 0;
  it.old(test_start + 24h);
  CHECK(it.looks == 0);
}

TEST_CASE("a version that stayed is tried after growing times", "[drain][keep]") {
  VersionScene it;
  it.add("one.1");
  it.add("one.2");
  REQUIRE(it.old() != "");
  CHECK(it.versions.stayed(it.chosen.front(), Reason::passing, test_start));
  CHECK(it.versions.next() == test_start + 2s);
  it.add("one.2");
  CHECK(it.old(test_start + 1s) == "");
  CHECK(it.versions.next() == test_start + 2s);
  REQUIRE(it.old(test_start + 2s) == "one.1(one.1) ");
  CHECK_FALSE(it.versions.stayed(it.chosen.front(), Reason::passing, test_start + 2s));
  CHECK(it.versions.next() == test_start + 6s);
  for (int i = 0; i < 40; ++i) {
    it.versions.stayed(it.chosen.front(), Reason::program, test_start + 6s);
  }
  CHECK(it.old(test_start + 1min) == "");
  CHECK(it.versions.next() == test_start + 66s);
  for (const auto* name : {"one.7", "x"}) {
    CHECK_FALSE(it.versions.stayed({.path = name, .files = {{.path = name, .ino = 1}}},
                                   Reason::passing, test_start));
  }
}

TEST_CASE("a version that stayed for a lasting reason is tried once an hour", "[drain][keep]") {
  VersionScene it;
  it.add("one.1");
  it.add("one.2");
  REQUIRE(it.old() != "");
  for (int i = 0; i < 40; ++i) {
    it.versions.stayed(it.chosen.front(), Reason::lasting, test_start);
  }
  CHECK(it.old(test_start + 1min) == "");
  CHECK(it.versions.next() == test_start + 1h);
  it.close("one.1");
  it.close("one.2");
  CHECK(it.old(test_start + 1min) == "one.1(one.1) ");  // it has changed
}

TEST_CASE("a reason is told once, also if a program was the first one", "[drain][keep]") {
  VersionScene it;
  it.add("one.1");
  it.add("one.2");
  REQUIRE(it.old() != "");
  CHECK_FALSE(it.versions.stayed(it.chosen.front(), Reason::program, test_start));
  CHECK(it.versions.stayed(it.chosen.front(), Reason::lasting, test_start));
  CHECK_FALSE(it.versions.stayed(it.chosen.front(), Reason::lasting, test_start));
}

TEST_CASE("a choice names the files, and those of the newest versions", "[drain][keep]") {
  VersionScene it;
  it.add("ckpt/1");
  it.add("ckpt/2");
  it.add("ckpt/3/a");
  it.add("ckpt/3/b");
  REQUIRE(it.old() == "ckpt/1(ckpt/1) ");
  CHECK(it.chosen.front().files.front().ino == 1);
  std::set<std::pair<std::string, std::uint64_t>> newer;
  for (const auto& file : *it.chosen.front().newer) {
    newer.emplace(file.path, file.ino);
  }
  CHECK(newer == std::set<std::pair<std::string, std::uint64_t>>{
                     {"ckpt/2", 2}, {"ckpt/3/a", 3}, {"ckpt/3/b", 4}});
}

TEST_CASE("many files are dropped in several steps", "[drain][keep]") {
  VersionScene it;
  for (std::size_t i = 0; i < KeptVersions::most_files + 9; ++i) {
    it.add("one." + std::to_string(i));
  }
  CHECK(it.old() != "");
  CHECK(it.chosen.size() == KeptVersions::most_files);
  REQUIRE(it.versions.next());
  for (const auto& version : it.chosen) {
    it.states.erase(version.path);
  }
  CHECK(it.old() != "");
  CHECK(it.chosen.size() == 8);
}

TEST_CASE("files that are gone are forgotten when asked for", "[drain][keep]") {
  VersionScene it;
  it.add("one.1");
  const auto ino = it.ino;
  it.states.clear();
  it.versions.forget_gone([](const std::string&, std::uint64_t) { return FileState::gone; });
  CHECK_FALSE(it.versions.closed_at("one.1", ino));
}

/// Adds versions that results-dir does not have, and returns which of them go: "g" or ".".
std::string added(VersionScene& it, int from, int to) {
  for (int i = from; i <= to; ++i) {
    it.add("some/" + std::to_string(i), FileState::only_here);
  }
  std::string chosen;
  for (int i = from; i <= to; ++i) {
    chosen += it.goes("some/" + std::to_string(i)) ? "g" : ".";
  }
  return chosen;
}

TEST_CASE("the first version goes, and then one in so many", "[drain][keep]") {
  VersionScene it;
  CHECK(added(it, 1, 8) == "g..g..g.");
  CHECK(it.goes("some/1"));  // as before
  CHECK_FALSE(it.goes("some/2"));
  it.add("one.1", FileState::only_here);
  it.add("one.2", FileState::only_here);
  CHECK((it.goes("one.1") && it.goes("one.2") && it.goes("else")));
}

TEST_CASE("a version that does not go is old when so many newer ones are there", "[drain][keep]") {
  VersionScene it;
  CHECK(added(it, 1, 3) == "g..");
  CHECK(it.old() == "");  // the first one is to go
  CHECK(added(it, 4, 5) == "g.");
  REQUIRE(it.old() == "some/2(some/2) some/3(some/3) ");
  CHECK((it.chosen[0].is_unsent && it.chosen[0].newer->size() == 2));
  it.states["some/1"] = FileState::home;
  it.versions.look_again();
  REQUIRE(it.old() == "some/1(some/1) some/2(some/2) some/3(some/3) ");
  CHECK((!it.chosen[0].is_unsent && it.chosen[2].is_unsent));
  // a user has exported it, or has given it a class
  it.states["some/3"] = FileState::changed;
  it.versions.look_again();
  CHECK(it.old() == "some/1(some/1) some/2(some/2) ");
}

TEST_CASE("a version that a program writes is no newer one of one that does not go",
          "[drain][keep]") {
  VersionScene it;
  CHECK(added(it, 1, 4) == "g..g");
  it.states["some/4"] = FileState::written;
  it.versions.look_again();
  CHECK(it.old() == "");
  it.states["some/4"] = FileState::only_here;
  it.close("some/4");
  CHECK(it.old() == "some/2(some/2) ");
}

TEST_CASE("a version of which results-dir has something goes in any case", "[drain][keep]") {
  VersionScene it;
  CHECK(added(it, 1, 2) == "g.");
  it.add("some/3", FileState::changed);
  CHECK(it.goes("some/3"));
  CHECK(added(it, 4, 8) == "...g.");  // it counts as sent
}

TEST_CASE("a version that is gone before it was sent is replaced by the next one",
          "[drain][keep]") {
  VersionScene it;
  CHECK(added(it, 1, 4) == "g..g");
  it.versions.went_home("some/1");
  it.states.erase("some/1");
  it.states.erase("some/4");
  it.versions.look_again();
  CHECK(it.old() == "");
  CHECK(added(it, 5, 8) == "g..g");
  // another file replaces it
  it.add("some/8", FileState::only_here);
  CHECK(it.goes("some/8"));
}

TEST_CASE("versions that were dropped before count", "[drain][keep]") {
  const auto after = [](std::vector<fs::DroppedResult> dropped) {
    VersionScene it;
    it.versions.count_dropped(dropped);
    return added(it, 11, 17);
  };
  const fs::DroppedResult sent{.path = "some/1/a", .was_sent = true},
      again{.path = "some/1/b", .was_sent = true}, two{.path = "some/2"}, three{.path = "some/3"},
      other{.path = "other"};
  CHECK(after({}) == "g..g..g");
  CHECK(after({sent, again, other}) == "..g..g.");
  CHECK(after({sent, two, other}) == ".g..g..");
  CHECK(after({sent, two, three}) == "g..g..g");
}

TEST_CASE("a version that is never sent must be unchanged for a while before it is old",
          "[drain][keep]") {
  VersionScene it;
  it.add("some/1");
  CHECK(it.goes("some/1"));
  for (const auto* name : {"some/2", "some/3", "some/4"}) {
    it.add(name, FileState::only_here);
    CHECK_FALSE((it.goes(name) && name == std::string("some/2")));
  }
  const auto edits = [&it](std::uint64_t number) {
    return std::optional(it.changes[number]);
  };
  const auto unsent = [&](KeptVersions::Time now) {
    std::string names;
    for (const auto& old : it.versions.choose(it.look(), edits, now)) {
      names += old.is_unsent ? old.path + " " : "";
    }
    return names;
  };
  CHECK(unsent(test_start) == "");
  ++it.changes[2];  // opened for writing: the close is not told yet
  CHECK(unsent(test_start + 1s) == "");
  CHECK(unsent(test_start + 2s) == "some/2 ");
  it.close("some/2");  // now it is the newest
  CHECK(unsent(test_start + 3s) == "");
  CHECK(unsent(test_start + 4s) == "some/3 ");
}

}  // namespace
}  // namespace efs::daemon
