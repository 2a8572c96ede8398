// SPDX-License-Identifier: BSD-3-Clause
#include "record/summary.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <iterator>

#include "unit/record/fake_tree.hpp"

namespace efs::record {
using Names = std::vector<std::string>;

namespace {

template <typename Entry>
Names names_of(const std::vector<Entry>& entries) {
  Names names;
  std::ranges::transform(entries, std::back_inserter(names), &Entry::path);
  return names;
}

Summary summary_of(const FakeTree& tree, const std::vector<Event>& events) {
  return summarize(events, "/pfs", tree);
}

}  // namespace

TEST_CASE("record: a file that was read is an input", "[record]") {
  FakeTree tree;
  tree.file("/pfs/in/a", 10);
  tree.file("/pfs/never", 10);
  tree.fifo("/pfs/fifo");
  const auto summary =
      summary_of(tree, {event(EFS_EVENT_READ, "/pfs/in/a"), event(EFS_EVENT_READ, "/pfs/in"),
                        event(EFS_EVENT_READ, "/pfs"), event(EFS_EVENT_UPDATE, "/pfs/fifo")});
  CHECK(names_of(summary.inputs) == Names{"in/a"});
  CHECK(summary.inputs[0].bytes == 10);
  CHECK(summary.results.empty());
  CHECK(summary.written_directories.empty());
}

TEST_CASE("record: a file that the program made is a result, though it was read", "[record]") {
  FakeTree tree;
  tree.file("/pfs/made", 5);
  tree.file("/pfs/emptied", 6);
  const auto summary = summary_of(
      tree, {event(EFS_EVENT_CREATE, "/pfs/made"), event(EFS_EVENT_READ, "/pfs/made"),
             event(EFS_EVENT_OVERWRITE, "/pfs/emptied"), event(EFS_EVENT_READ, "/pfs/emptied")});
  CHECK(summary.inputs.empty());
  CHECK(names_of(summary.results) == Names{"emptied", "made"});
  CHECK_FALSE(summary.results[0].is_input);
}

TEST_CASE("record: a file that was changed is an input and a result", "[record]") {
  FakeTree tree;
  tree.file("/pfs/log");
  tree.file("/pfs/state");
  const auto summary =
      summary_of(tree, {event(EFS_EVENT_UPDATE, "/pfs/log"), event(EFS_EVENT_READ, "/pfs/state"),
                        event(EFS_EVENT_CREATE, "/pfs/state.new"),
                        event(EFS_EVENT_RENAME, "/pfs/state.new", "/pfs/state")});
  CHECK(names_of(summary.inputs) == Names{"log", "state"});
  CHECK((summary.inputs[0].is_changed && summary.inputs[1].is_changed));
  CHECK(names_of(summary.results) == Names{"log", "state"});
  CHECK((summary.results[0].is_input && summary.results[1].is_input));
  CHECK(names_of(summary.temporaries) == Names{"state.new"});
}

TEST_CASE("record: a file that is gone is temporary, or an input that is gone", "[record]") {
  FakeTree tree;
  tree.directory("/pfs");
  tree.file("/pfs/moved");
  const auto summary = summary_of(
      tree, {event(EFS_EVENT_CREATE, "/pfs/tmp"), event(EFS_EVENT_REMOVE, "/pfs/tmp", "", 99),
             event(EFS_EVENT_REMOVE, "/pfs/old", "", 50),
             event(EFS_EVENT_RENAME, "/pfs/first", "/pfs/moved")});
  CHECK(names_of(summary.temporaries) == Names{"tmp"});
  CHECK(summary.temporaries[0].bytes == 99);
  CHECK(names_of(summary.inputs) == Names{"first", "old"});
  CHECK((summary.inputs[0].is_gone && summary.inputs[1].is_gone));
  CHECK(summary.inputs[1].bytes == 50);
  CHECK(names_of(summary.results) == Names{"moved"});
}

TEST_CASE("record: a renamed directory takes its files along", "[record]") {
  FakeTree tree;
  tree.file("/pfs/final/a");
  tree.file("/pfs/final/by-a-static-program");
  const auto summary = summary_of(
      tree,
      {event(EFS_EVENT_MAKE_DIRECTORY, "/pfs/draft"), event(EFS_EVENT_CREATE, "/pfs/draft/a"),
       event(EFS_EVENT_RENAME, "/pfs/draft", "/pfs/final"), event(EFS_EVENT_READ, "/pfs/final/a")});
  CHECK(summary.inputs.empty());
  CHECK(names_of(summary.results) == Names{"final/a", "final/by-a-static-program"});
  CHECK(names_of(summary.temporaries) == Names{"draft/a"});
  CHECK(summary.made_directories == Names{"final"});
}

TEST_CASE("record: directories that must exist", "[record]") {
  FakeTree tree;
  tree.file("/pfs/out/r");
  tree.file("/pfs/out/new/deep/r");
  tree.file("/pfs/top");
  const auto summary = summary_of(
      tree, {event(EFS_EVENT_CREATE, "/pfs/out/r"), event(EFS_EVENT_MAKE_DIRECTORY, "/pfs/out/new"),
             event(EFS_EVENT_MAKE_DIRECTORY, "/pfs/out/new/deep"),
             event(EFS_EVENT_CREATE, "/pfs/out/new/deep/r"), event(EFS_EVENT_CREATE, "/pfs/top"),
             event(EFS_EVENT_CREATE, "/pfs/work/t"), event(EFS_EVENT_REMOVE, "/pfs/work/t")});
  CHECK(summary.written_directories == Names{"out", "work"});
  CHECK(summary.made_directories == Names{"out/new", "out/new/deep"});
}

TEST_CASE("record: links are inputs beside the files that they lead to", "[record]") {
  FakeTree tree;
  tree.file("/pfs/data/a");
  tree.link("/pfs/link", "data");
  tree.link("/pfs/far", "/else/x");
  tree.link("/pfs/latest", "data/a");
  tree.file("/else/x");
  const auto summary = summary_of(
      tree, {event(EFS_EVENT_READ, "/pfs/link/a"), event(EFS_EVENT_READ, "/pfs/far"),
             event(EFS_EVENT_CREATE, "/pfs/latest"), event(EFS_EVENT_READ, "/pfs/latest")});
  CHECK(names_of(summary.inputs) == Names{"data/a", "far", "link"});
  CHECK(summary.inputs[1].leads_out);
  CHECK_FALSE(summary.inputs[2].leads_out);
  CHECK(names_of(summary.results) == Names{"latest"});
}

TEST_CASE("record: files outside of root-dir", "[record]") {
  FakeTree tree;
  tree.file("/pfs-other/a");
  tree.file("/home/u/log");
  tree.file("/usr/lib/x");
  const auto summary = summary_of(
      tree, {event(EFS_EVENT_READ, "/pfs-other/a"), event(EFS_EVENT_READ, "/usr/lib/x"),
             event(EFS_EVENT_UPDATE, "/home/u/log"), event(EFS_EVENT_CREATE, "/tmp/gone")});
  CHECK(summary.inputs.empty());
  CHECK(summary.outside_read == Names{"/pfs-other/a"});
  CHECK(summary.outside_written == Names{"/home/u/log"});
}

}  // namespace efs::record
