// SPDX-License-Identifier: BSD-3-Clause
// The ledger: when two versions are the same, and whose the file is that has a name.
#include "ledger/ledger.hpp"

#include <catch2/catch_test_macros.hpp>
#include <vector>

namespace efs::ledger {
namespace {

constexpr Name x{.name = 1, .own = 10}, x_of_y{.name = 1, .own = 11};

constexpr File known_file(std::uint64_t inode, Nanoseconds ctime = 5, bool linked = false) {
  return {.version = {.device = 1, .inode = inode, .size = 100, .mtime = 3, .ctime = ctime},
          .linked = linked};
}

WhoseCopy whose(const Ledger& ledger, const File& now, Ctime ctime = Ctime::counts) {
  return ledger.whose(x, now, ctime);
}

Ledger after(const std::vector<Event>& events) {
  Ledger ledger;
  for (const auto& event : events) {
    ledger.apply(event);
  }
  return ledger;
}

TEST_CASE("ledger: what makes another version", "[ledger]") {
  const FileVersion one = known_file(7).version;
  FileVersion other = one;
  SECTION("a mount") {
    other.device = 2;
    CHECK(is_version(one, other, Ctime::counts));
    CHECK(is_same_file(one, other));
  }
  SECTION("a change of attributes, if ctime counts") {
    other.ctime = 6;
    CHECK_FALSE(is_version(one, other, Ctime::counts));
    CHECK(is_version(one, other, Ctime::ignored));
    CHECK(is_same_file(one, other));
    CHECK(is_version({.inode = 7, .size = 100, .mtime = 3, .ctime = FileVersion::any_ctime}, other,
                     Ctime::counts));
    CHECK(is_version(known_file(7, 5, true), known_file(7, 6), Ctime::counts));
    CHECK(is_version(known_file(7), known_file(7, 6, true), Ctime::counts));
    CHECK_FALSE(is_version(known_file(7), known_file(7, 6), Ctime::counts));
  }
  SECTION("inode, size and mtime") {
    for (auto member : {&FileVersion::inode, &FileVersion::size}) {
      FileVersion changed = one;
      changed.*member = 50;
      CHECK_FALSE(is_version(one, changed, Ctime::ignored));
      CHECK_FALSE(is_same_file(one, changed));
    }
    other.mtime = 4;
    CHECK_FALSE(is_version(one, other, Ctime::ignored));
    CHECK_FALSE(is_same_file(one, other));
  }
  SECTION("a version that another node may have is none") {
    CHECK_FALSE(is_version(known_file(7, 0), known_file(7, 0), Ctime::ignored));
  }
}

TEST_CASE("ledger: the states of a directory", "[ledger]") {
  const DirectoryShape shape{.mode = 0750, .uid = 1, .gid = 2, .xattrs = 3};
  const DirectoryState set{.version = 17, .was = shape, .unfinished = true, .applied = 18};
  CHECK(begun(set, {}) ==
        DirectoryState{.version = 17, .interrupted = true, .was = shape, .unfinished = true});
  CHECK(begun({}, shape).was == shape);
  CHECK(applied(begun(set, {}), 19) ==
        DirectoryState{.version = 17, .was = shape, .unfinished = true, .applied = 19});
  CHECK(done(set, 20) == DirectoryState{.version = 20});
  CHECK(done(begun(set, {}), {}) == DirectoryState{.version = 17});
  const Ledger ledger = after({DirectoryGiven{.at = x, .state = set}});
  CHECK(ledger.directory(x) == set);
  CHECK(ledger.directory(x_of_y) == DirectoryState());
  CHECK_FALSE(ledger.knows(x.name));
  CHECK(whose(ledger, known_file(7)) == WhoseCopy::unknown);
  CHECK(after({DirectoryGiven{.at = x, .state = set}, Exported{x, known_file(7)}, Imported{x.name}})
            .directory(x) == set);
}

TEST_CASE("ledger: a deed ends what was announced", "[ledger]") {
  const File before = known_file(6), coming = known_file(7, FileVersion::any_ctime);
  const Ledger exported = after({Announced{x, coming, before}, Exported{x, known_file(7)}});
  CHECK(whose(exported, known_file(7)) == WhoseCopy::ours);
  CHECK(whose(exported, known_file(7, 6)) == WhoseCopy::theirs);
  CHECK(whose(exported, known_file(7, 6), Ctime::ignored) == WhoseCopy::ours);
  CHECK(exported.whose(x_of_y, known_file(7), Ctime::counts) == WhoseCopy::of_another_path);
  const Ledger removed = after(
      {Exported{x, before}, Announced{x, coming, before}, Announced{x, {}, before}, Removed{x}});
  CHECK(whose(removed, before) == WhoseCopy::theirs);
  CHECK(removed.has_removed(x.name));
  const Ledger imported =
      after({DirectoryGiven{.at = x, .state = {.version = 17}}, Announced{x, coming, before},
             Exported{x, known_file(7)}, Announced{x, coming, before}, Imported{x.name}});
  CHECK_FALSE(imported.knows(x.name));
  CHECK(whose(imported, known_file(7)) == WhoseCopy::unknown);
}

TEST_CASE("ledger: files since a loss of events are of unknown origin", "[ledger]") {
  const Ledger ledger = after({Missed{50}, Missed{60}, Exported{x, known_file(7)}});
  CHECK(ledger.is_incomplete());
  CHECK(ledger.unsure_since() == 50);
  CHECK(whose(ledger, known_file(8, 55)) == WhoseCopy::theirs);
  const Name y{.name = 2, .own = 2};
  CHECK(ledger.whose(y, known_file(8, 49), Ctime::counts) == WhoseCopy::unknown);
  CHECK(ledger.whose(y, known_file(8, 50), Ctime::counts) == WhoseCopy::unsure);
}

TEST_CASE("ledger: the newest export is by the ctime of the files that it knows", "[ledger]") {
  CHECK_FALSE(after({Announced{.at = x, .version = known_file(7)}, Removed{x}}).newest_export());
  const Name y{.name = 2, .own = 2}, z{.name = 3, .own = 3};
  const Ledger ledger = after({Exported{x, known_file(7, 60)}, Exported{y, known_file(8, 70)},
                               Exported{z, known_file(9, 0)}, Exported{y, known_file(8, 50)}});
  CHECK(ledger.newest_export() == 60);
}

TEST_CASE("ledger: an import ends what the store knew of the file", "[ledger]") {
  const Ledger ledger = after({Exported{x, known_file(7)}, Announced{.at = x}, Imported{x.name}});
  CHECK_FALSE(ledger.knows(x.name));
  CHECK(ledger.size() == 0);
  CHECK(ledger.copies().empty());
}

}  // namespace
}  // namespace efs::ledger
