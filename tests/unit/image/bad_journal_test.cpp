// SPDX-License-Identifier: BSD-3-Clause
// Journals that were exchanged, truncated, copied or restored. efs reports those that it can
// detect, and removes nothing. (Random damage: bad_image_test.cpp.)
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <filesystem>
#include <fstream>

#include "support/dead_image_looks.hpp"
#include "support/journal_file.hpp"

using namespace efs;
using image::Severity;
using stage::Action;
using test::brought_out;
using test::damage_in;
using test::DeadImage;
using test::findings;
using test::record_offsets;
using test::Started;
using test::write_over;
namespace stdfs = std::filesystem;

TEST_CASE("a journal whose records were exchanged or left out is refused, and nothing is removed",
          "[image][journal]") {
  const DeadImage dead;
  const std::string whole = test::text_of(dead.journal());
  const auto at = record_offsets(whole);
  REQUIRE(at.size() > 20);
  std::string bad = whole;
  SECTION("two exchanged") {
    const std::string one = whole.substr(at[10], at[11] - at[10]),
                      other = whole.substr(at[11], at[12] - at[11]);
    bad.replace(at[10], one.size() + other.size(), other + one);
  }
  SECTION("one twice") {
    bad.insert(at[10], whole.substr(at[9], at[10] - at[9]));
    bad.resize(whole.size());
  }
  SECTION("one left out") {
    bad.erase(at[10], at[11] - at[10]);
    bad.resize(whole.size());
  }
  SECTION("one damaged") {
    bad[at[10] + 20] = static_cast<char>(bad[at[10] + 20] ^ 1);
  }
  write_over(dead.journal(), bad);
  CHECK(damage_in(dead).contains(
      "journal: the data behind record 10 does not verify, and good records follow"));
  CHECK(image::repair_image(dead.store()).error().code == EUCLEAN);
  const auto before = test::everything_below(dead.store());
  {
    const Started started(dead);
    REQUIRE_FALSE(started.filesystem);
    CHECK(started.filesystem.error().code == EUCLEAN);
    CHECK(started.filesystem.error().what.contains("damaged behind record 10"));
  }
  CHECK((test::everything_below(dead.store() + "/meta") == [&] {
    std::map<std::string, std::string> meta;
    for (const auto& [path, text] : before) {
      if (path.starts_with("/meta/")) {
        meta[path.substr(5)] = text;
      }
    }
    return meta;
  }()));
  CHECK(stdfs::exists(dead.container("d/big")));
  const auto receipt = brought_out(dead);
  CHECK(receipt.note.contains(
      "10 records verified; the data behind the last of them does not verify"));
  CHECK(receipt.note.contains("files may be missing"));
  CHECK(receipt.verdict != stage::Verdict::complete);
  CHECK(test::told_of(receipt, ".").action == Action::failed);
  // efs recovers from possible effects of power loss.
  const Started after(dead, true);
  CHECK(after.filesystem);
}

TEST_CASE(
    "of a snapshot that is cut short a salvage brings out what is left, and does not call it all",
    "[image][journal]") {
  const DeadImage dead({.snapshot = true});
  CHECK(damage_in(dead) == "");
  const std::string whole = test::text_of(dead.journal());
  const auto at = record_offsets(whole);
  const auto header = test::header_of(whole);
  const std::size_t records = header.complete_to - header.first_sequence + 1;
  REQUIRE(records > 10);
  write_over(dead.journal(), test::cut_at(whole, at[records - 1], false));
  CHECK(damage_in(dead).contains("it ends at record "));
  CHECK(image::repair_image(dead.store()).error().code == EUCLEAN);
  const auto receipt = brought_out(dead);
  CHECK(receipt.verdict == stage::Verdict::partial);
  CHECK(test::told_of(receipt, ".").action == Action::failed);
  CHECK(receipt.note.contains("files may be missing"));
  CHECK(test::told_of(receipt, "linked").action == Action::staged_out);
  CHECK(test::text_of(dead.results() + "/linked") == "with two names");
}

TEST_CASE(
    "what a death may leave behind the last record is left out, and what was a whole one is damage",
    "[image][journal]") {
  const DeadImage dead;
  const std::string whole = test::text_of(dead.journal());
  const auto at = record_offsets(whole);
  std::string bad = whole;
  const std::string last = whole.substr(at[at.size() - 2], at.back() - at[at.size() - 2]);
  bool whole_once = true;
  SECTION("the last one twice") {
    bad.replace(at.back(), last.size(), last);
  }
  SECTION("the head of one") {
    bad.replace(at.back(), last.size() / 2, last.substr(0, last.size() / 2));
  }
  SECTION("one without its length, which is stored last") {
    bad.replace(at.back() + 8, last.size() / 2, last.substr(8, last.size() / 2));
    whole_once = false;
  }
  write_over(dead.journal(), bad);
  if (whole_once) {
    CHECK(damage_in(dead).contains("and was whole once"));
    CHECK(image::repair_image(dead.store()).error().code == EUCLEAN);
    CHECK(brought_out(dead).verdict != stage::Verdict::complete);
    const Started refused(dead);
    REQUIRE_FALSE(refused.filesystem);
    CHECK(refused.filesystem.error().code == EUCLEAN);
    CHECK(Started(dead, true).filesystem);
    return;
  }
  CHECK(damage_in(dead) == "");
  CHECK(findings(dead, Severity::leftover).contains("journal: the data behind record"));
  CHECK(brought_out(dead).verdict == stage::Verdict::complete);
  const Started started(dead);
  REQUIRE(started.filesystem);
  CHECK((*started.filesystem)->recovery().journal.torn);
}

// Two stores of the same job with the same files and sizes differ only in their id.
TEST_CASE(
    "a journal, containers or a manifest of another instance are refused, and nothing is changed",
    "[image][journal]") {
  const bool snapshot = GENERATE(false, true);
  const DeadImage dead({.snapshot = snapshot}), other({.snapshot = snapshot});
  std::string part;
  SECTION("the journal") {
    part = "/meta/journal";
  }
  SECTION("the containers") {
    part = "/data";
  }
  SECTION("the manifest") {
    part = "/meta/instance.json";
  }
  stdfs::rename(dead.store() + part, dead.store() + part + ".own");
  stdfs::copy(other.store() + part, dead.store() + part,
              stdfs::copy_options::recursive | stdfs::copy_options::copy_symlinks);
  // all but the id is right
  if (part == "/meta/instance.json") {
    dead.write_manifest_of(other.instance());
  }
  CHECK(damage_in(dead).contains(
      "another instance (" +
      store::to_string(part == "/meta/instance.json" ? dead.instance() : other.instance())));
  CHECK(image::repair_image(dead.store()).error().code == EUCLEAN);
  const auto before = test::everything_below(dead.store());
  const auto image = image::open_image(dead.store());
  REQUIRE_FALSE(image);
  CHECK(image.error().code == EUCLEAN);
  if (part == "/meta/journal") {
    const Started started(dead);
    REQUIRE_FALSE(started.filesystem);
    CHECK(started.filesystem.error().code == EUCLEAN);
  }
  CHECK(test::everything_below(dead.store()) == before);
  stdfs::remove_all(dead.store() + part);
  stdfs::rename(dead.store() + part + ".own", dead.store() + part);
  CHECK(damage_in(dead) == "");
  CHECK(brought_out(dead).verdict == stage::Verdict::complete);
}

TEST_CASE(
    "a journal that is older than the numbers of the containers is refused, and nothing is removed",
    "[image][journal]") {
  const DeadImage dead;
  stdfs::remove(dead.journal() + ".last");  // only the numbers show it
  const std::string whole = test::text_of(dead.journal());
  std::string older = whole;
  SECTION("the one of the start") {
    older = whole.substr(0, record_offsets(whole)[1]);
    older.resize(whole.size());
    write_over(dead.journal(), older);
  }
  SECTION("one of some hundred files ago") {
    write_over(dead.store() + "/data/ff/0000000000000fff",
               "of a file that only a later journal knew");
  }
  CHECK(damage_in(dead).contains("has a number above the last of the journal"));
  CHECK(image::repair_image(dead.store()).error().code == EUCLEAN);
  const auto before = test::everything_below(dead.store() + "/data");
  {
    const Started started(dead);
    REQUIRE_FALSE(started.filesystem);
    CHECK(started.filesystem.error().code == EUCLEAN);
    CHECK(started.filesystem.error().what.contains("older than its store"));
  }
  CHECK(test::everything_below(dead.store() + "/data") == before);
  CHECK(test::text_of(dead.journal()) == older);
  const auto receipt = brought_out(dead);
  CHECK(receipt.verdict != stage::Verdict::complete);
  CHECK(test::told_of(receipt, ".").reason.contains("older than its store"));
  const Started after(dead, true);  // which takes records, and may bring back what was removed
  CHECK(after.filesystem);
}

TEST_CASE(
    "an older journal of the same instance is refused, or, after a restart, told where containers "
    "do not fit it",
    "[image][journal]") {
  const DeadImage dead;
  const std::string whole = test::text_of(dead.journal());
  const auto at = record_offsets(whole);
  std::string older = whole.substr(0, at[at.size() - 3]);
  older.resize(whole.size());
  write_over(dead.journal(), older);
  CHECK(damage_in(dead).contains("older than its store"));
  {
    const Started refused(dead);
    REQUIRE_FALSE(refused.filesystem);
    CHECK(refused.filesystem.error().code == EUCLEAN);
  }
  stdfs::remove(dead.journal() + ".last");
  CHECK(damage_in(dead) == "");
  CHECK(
      (findings(dead, Severity::leftover) + findings(dead, Severity::note)).contains("container"));
}
