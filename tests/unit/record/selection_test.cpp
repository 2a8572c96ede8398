// SPDX-License-Identifier: BSD-3-Clause
#include "record/selection.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <iterator>

#include "unit/record/fake_tree.hpp"

namespace efs::record {
using Names = std::vector<std::string>;

namespace {

// A root-dir /pfs, and the events of a program on it.
struct RecordedProgram {
  FakeTree tree;
  std::vector<Event> events;

  void read(const std::string& path, std::uint64_t bytes = 1) {
    tree.file("/pfs/" + path, bytes);
    events.push_back(event(EFS_EVENT_READ, "/pfs/" + path));
  }

  void write(const std::string& path, std::uint64_t bytes = 1) {
    tree.file("/pfs/" + path, bytes);
    events.push_back(event(EFS_EVENT_CREATE, "/pfs/" + path));
  }

  void leave(const std::string& path, std::uint64_t bytes = 1) { tree.file("/pfs/" + path, bytes); }

  void make(const std::string& path) {
    tree.directory("/pfs/" + path);
    events.push_back(event(EFS_EVENT_MAKE_DIRECTORY, "/pfs/" + path));
  }

  Summary summary() const { return summarize(events, "/pfs", tree); }

  std::vector<Resource> resources() const { return choose_resources(summary(), "/pfs", tree); }

  Names inputs() const {
    Names names;
    std::ranges::transform(resources(), std::back_inserter(names), &Resource::path);
    return names;
  }

  Names rules() const {
    Names names;
    std::ranges::transform(choose_rules(summary()), std::back_inserter(names),
                           [](const Rule& rule) {
                             return rule.path + (rule.inputs ? " inputs" : "") +
                                    (rule.is_temporary ? " temporary" : "");
                           });
    return names;
  }
};

}  // namespace

TEST_CASE("record: a directory of which most was read", "[record]") {
  RecordedProgram scene;
  scene.read("in/a");
  scene.read("in/sub/b");
  CHECK(scene.inputs() == Names{"in"});
  scene.leave("in/c");
  CHECK(scene.inputs() == Names{"in"});
  CHECK(scene.resources()[0].files == 3);
  CHECK(scene.resources()[0].note == "1 of them not read");
  scene.leave("in/d");
  CHECK(scene.inputs() == Names{"in/a", "in/sub/b"});
}

TEST_CASE("record: a large file that was not read is not imported", "[record]") {
  RecordedProgram scene;
  scene.read("in/a", 10);
  scene.read("in/b", 10);
  scene.read("in/c", 10);
  scene.leave("in/huge", 31);
  CHECK(scene.inputs() == Names{"in/a", "in/b", "in/c"});
}

TEST_CASE("record: a directory with results is not whole, its directories may be", "[record]") {
  RecordedProgram scene;
  scene.read("case/mesh/a");
  scene.read("case/mesh/b");
  scene.read("case/control");
  scene.write("case/result");
  CHECK(scene.inputs() == Names{"case/control", "case/mesh"});
  CHECK(scene.rules() == Names{"case/result inputs"});
}

TEST_CASE("record: root-dir itself is no resource", "[record]") {
  RecordedProgram scene;
  scene.read("a");
  scene.read("b");
  CHECK(scene.inputs() == Names{"a", "b"});
}

TEST_CASE("record: files with one extension are a pattern", "[record]") {
  RecordedProgram scene;
  for (const char* name : {"t/1.nc", "t/2.nc", "t/3.nc", "t/x.dat"}) {
    scene.read(name);
  }
  for (const char* name : {"t/u1", "t/u2", "t/u3", "t/u4"}) {
    scene.leave(name);
  }
  CHECK(scene.inputs() == Names{"t/*.nc", "t/x.dat"});
  scene.leave("t/4.nc");
  CHECK(scene.inputs() == Names{"t/1.nc", "t/2.nc", "t/3.nc", "t/x.dat"});
}

TEST_CASE("record: hidden files are in no pattern", "[record]") {
  RecordedProgram scene;
  for (const char* name : {".a.rc", ".b.rc", ".c.rc"}) {
    scene.read(name);
  }
  CHECK(scene.inputs() == Names{".a.rc", ".b.rc", ".c.rc"});
}

TEST_CASE("record: a directory that the program writes to is a resource", "[record]") {
  RecordedProgram scene;
  scene.leave("out/old", 5);
  scene.write("out/new", 6);
  scene.write("out/sub/x");
  CHECK(scene.inputs() == Names{"out"});
  CHECK(scene.resources()[0].files == 3);
  CHECK(scene.rules() == Names{"out inputs"});
  scene.read("out/in");
  CHECK(scene.inputs() == Names{"out/in", "out/sub"});
}

TEST_CASE("record: directories of the program are rules", "[record]") {
  RecordedProgram scene;
  scene.make("new");
  scene.make("new/deep");
  scene.write("new/deep/r");
  scene.write("new/s");
  scene.write("a.log");
  for (const char* name : {"1.png", "2.png", "3.png"}) {
    scene.write(name);
  }
  CHECK(scene.rules() == Names{"*.png inputs", "a.log inputs", "new inputs"});
  CHECK(scene.inputs().empty());
  CHECK(choose_rules(scene.summary())[2].files == 2);
}

TEST_CASE("record: caches of Python are temporary", "[record]") {
  RecordedProgram scene;
  scene.make("lib/__pycache__");
  scene.write("lib/__pycache__/m.pyc");
  scene.write("z");
  CHECK(scene.rules() == Names{"**/__pycache__/** temporary", "z inputs"});
}

TEST_CASE("record: changed and missing inputs", "[record]") {
  RecordedProgram scene;
  scene.leave("state");
  scene.events.push_back(event(EFS_EVENT_UPDATE, "/pfs/state"));
  scene.events.push_back(event(EFS_EVENT_REMOVE, "/pfs/gone"));
  CHECK(scene.inputs() == Names{"state", "gone"});
  CHECK(scene.resources()[0].note == "the program changed it");
  CHECK(scene.resources()[1].is_gone);
  CHECK(scene.rules() == Names{"state inputs"});
}

TEST_CASE("record: a directory that the program writes to", "[record]") {
  RecordedProgram scene;
  scene.write("out/result", std::uint64_t{1} << 30);  // the run's own result does not count
  scene.leave("out/small");
  CHECK(scene.inputs() == Names{"out"});
  CHECK(scene.resources()[0].files == 2);
  CHECK(scene.resources()[0].bytes == (std::uint64_t{1} << 30) + 1);
  scene.leave("out/large", std::uint64_t{1} << 30);
  CHECK(scene.inputs() == Names{"out/small"});
  CHECK(scene.resources()[0].note == "the program writes to its directory, which must exist");
}

TEST_CASE("record: a directory that existed and was renamed", "[record]") {
  RecordedProgram scene;
  scene.leave("later/a", 5);
  scene.leave("later/sub/b", 6);
  scene.events.push_back(event(EFS_EVENT_RENAME, "/pfs/data", "/pfs/between"));
  scene.events.push_back(event(EFS_EVENT_RENAME, "/pfs/between", "/pfs/later"));
  CHECK(scene.inputs() == Names{"data"});
  CHECK(scene.resources()[0].is_gone);
  CHECK(scene.resources()[0].files == 2);
  CHECK(scene.resources()[0].bytes == 11);
}

TEST_CASE("record: names become paths of a job file", "[record]") {
  CHECK(as_job_path("a/b c") == "a/b c");
  CHECK(as_job_path("back\\slash") == "back\\slash");
  CHECK(as_job_path("d[1]*?\\") == "d[[]1][*][?]\\\\");
  CHECK(as_job_path("\xc3\xa4") == "\xc3\xa4");
  CHECK(as_job_path("x\xff\xc3") == "x??");
}

}  // namespace efs::record
