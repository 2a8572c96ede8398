// SPDX-License-Identifier: BSD-3-Clause
// The copies of the buffer's files: lists of names, and what one event changes.
#include "ledger/files.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

namespace efs::ledger {
namespace {

constexpr FileVersion old_version{.device = 1, .inode = 2, .size = 3, .mtime = 4, .ctime = 5};
constexpr FileVersion new_version{.device = 1, .inode = 6, .size = 3, .mtime = 7, .ctime = 8};

FileEntry imported_as(const std::string& names) {
  return {.imported = PfsCopy{old_version, Names(names)}};
}

Files with(const FileEntry& entry) {
  Files files;
  files.apply(FileGiven{7, entry});
  return files;
}

Node node(bool dirty = false, bool linked = false) {
  return {.id = 7, .type = S_IFREG, .dirty = dirty, .linked = linked};
}

const LeadsTo nowhere = [](const std::string&) {
  return false;
};

TEST_CASE("ledger: names remember that there were several", "[ledger]") {
  Names names(std::string("a"));
  CHECK(names.is_only("a"));
  names.add("a");
  CHECK_FALSE(names.had_several());
  names.add("b/c");
  CHECK(names.list() == std::vector<std::string>{"a", "b/c"});
  CHECK(names.contains("b/c"));
  CHECK_FALSE(names.contains("b"));
  CHECK_FALSE(names.contains(""));
  names.remove("x");
  CHECK(names.text() == std::string("a\0b/c", 5));
  names.remove("a");
  CHECK(names.list() == std::vector<std::string>{"b/c"});
  CHECK(names.had_several());
  CHECK_FALSE(names.is_only("b/c"));
  names.remove("b/c");
  CHECK(names.empty());
}

TEST_CASE("ledger: a file is due for export unless the PFS has it", "[ledger]") {
  CHECK(NameEntry{.dirty = true, .origin = old_version}.due_for_export(S_IFREG));
  CHECK(NameEntry{}.due_for_export(S_IFREG));
  CHECK_FALSE(NameEntry{}.due_for_export(S_IFDIR));
  CHECK_FALSE(NameEntry{.origin = old_version}.due_for_export(S_IFREG));
  CHECK_FALSE(NameEntry{.saved = new_version}.due_for_export(S_IFREG));
  CHECK(NameEntry{.origin = old_version, .saved = new_version}.on_pfs() == new_version);
  CHECK(NameEntry{.origin = old_version}.is_as_imported());
  CHECK(NameEntry{.saved = new_version}.is_exported());
  CHECK_FALSE(NameEntry{.dirty = true, .saved = new_version}.is_exported());
}

TEST_CASE("ledger: a file of which nothing is known takes no memory", "[ledger]") {
  Files files = with(imported_as("a"));
  CHECK(files.find(7) != nullptr);
  files.apply(FileGiven{7, {}});
  CHECK(files.find(7) == nullptr);
  files.apply(FileGiven{7, {.parts = "0+0"}});
  files.apply(FileCompleted{7});
  CHECK(files.find(7) == nullptr);
  CHECK(files.of(7).empty());
  CHECK(files.entry_of(node(), "a", nowhere).dirty);
}

TEST_CASE("ledger: an export in place becomes the origin", "[ledger]") {
  const Files files = with(imported_as("a"));
  const Change change =
      files.exported(node(true), "a", {.version = new_version, .in_place = true}, nowhere);
  CHECK(change.entry->imported->version == new_version);
  CHECK(change.entry->exported->version == new_version);
  CHECK_FALSE(change.entry->exported->as_imported);
  CHECK_FALSE(change.dirty);
  CHECK(change.gone.empty());
  const Change elsewhere = files.exported(node(true), "a", {.version = new_version}, nowhere);
  CHECK(elsewhere.entry->imported->version == old_version);
  const Change renamed =
      files.exported(node(true), "b", {.version = new_version, .in_place = true}, nowhere);
  CHECK(renamed.entry->imported->names.is_only("b"));
  CHECK(renamed.gone.at("a")->origin == old_version);
}

TEST_CASE("ledger: an unloaded result has no content of its import", "[ledger]") {
  FileEntry entry = imported_as(std::string("a\0b", 3));
  entry.exported = ExportedCopy{{new_version, Names(std::string("a"))}};
  const Files files = with(entry);
  // its only name: the process may die before the name is gone
  const Change last = files.unloaded(node(), "a", true);
  CHECK_FALSE(last.dirty);
  CHECK(last.entry->empty());
  CHECK(last.gone.at("a")->unloaded);
  CHECK(last.gone.at("a")->saved == new_version);
  CHECK_FALSE(last.gone.at("b")->unloaded);
  const Change one = files.unloaded(node(false, true), "a", false);
  CHECK(one.dirty);
  CHECK(one.entry->imported->names.contains("b"));
  CHECK_FALSE(one.gone.contains("b"));
}

TEST_CASE("ledger: another file's name is revoked", "[ledger]") {
  FileEntry entry = imported_as("a");
  entry.exported = ExportedCopy{{new_version, Names(std::string("b"))}};
  const Files files = with(entry);
  const std::vector<PfsName> names{{.path = "a"}, {.path = "out/b"}};
  const ResultName called = [](const std::string& name) {
    return "out/" + name;
  };
  const auto stale = [&](Side side) {
    return TakenNames(names, side, called).stale(7, entry, nowhere);
  };
  CHECK(stale(Side::inputs).exported.empty());
  CHECK(stale(Side::both).imported == std::vector<std::string>{"a"});
  CHECK(stale(Side::both).exported == std::vector<std::string>{"b"});
  const Change change = files.revoked(node(), stale(Side::both));
  CHECK(change.entry->empty());
  CHECK(change.dirty);
  CHECK(change.gone.at("a")->origin == old_version);
  const std::vector<PfsName> same{{.path = "a", .version = old_version},
                                  {.path = "out/b", .by = 7}};
  CHECK(TakenNames(same, Side::both, called).stale(7, entry, nowhere).empty());
}

TEST_CASE("ledger: a result whose import has lost its names is changed without its copy",
          "[ledger]") {
  FileEntry entry{.imported = PfsCopy{old_version, Names()}};
  entry.exported = ExportedCopy{{new_version, Names(std::string("b"))}, true};
  const Change change = with(entry).revoked(node(), {.imported = {}, .exported = {"b"}});
  CHECK(change.entry->empty());
  CHECK(change.dirty);
}

TEST_CASE("ledger: a result that was never sent is no input of its name", "[ledger]") {
  GoneInput never_sent{.type = S_IFREG, .origin = {.size = 3, .ctime = FileVersion::any_ctime}};
  never_sent.unloaded = true;
  CHECK(never_sent.was_never_sent());
  Files files;
  files.apply(GoneGiven{"a", never_sent});
  const Change change = files.exported(node(true), "a", {.version = new_version}, nowhere);
  CHECK(change.gone.contains("a"));
  CHECK_FALSE(change.gone.at("a"));  // the PFS has a result of this name now
  const auto unloaded = with(*change.entry).unloaded(node(), "a", true).gone.at("a");
  CHECK(unloaded->saved == new_version);
  CHECK_FALSE(unloaded->was_never_sent());
}

}  // namespace
}  // namespace efs::ledger
