// SPDX-License-Identifier: BSD-3-Clause
#include "stage/import/stage_in.hpp"

#include <sys/xattr.h>
#include <catch2/catch_test_macros.hpp>

#include <set>

#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

TEST_CASE("stage-in: content, modes, nanosecond times, links, empty directories, long names",
          "[stage][in]") {
  Scene scene;
  const std::string long_name(250, 'n');
  write_file(scene.root + "/d/f", random_text(200'000, 1));
  write_file(scene.root + "/d/empty", "");
  write_file(scene.root + "/d/" + long_name, "long");
  stdfs::create_directory(scene.root + "/d/sub");
  stdfs::create_symlink("f", scene.root + "/d/link");
  stdfs::create_hard_link(scene.root + "/d/f", scene.root + "/d/hard");
  ::chmod((scene.root + "/d/f").c_str(), 04751);
  set_mtime(scene.root + "/d/f", 1'111'111'111'222'333'444);
  set_mtime(scene.root + "/d/link", 1'111'111'111'222'333'445);
  set_mtime(scene.root + "/d/sub", 1'111'111'111'222'333'446);
  set_mtime(scene.root + "/d", 1'111'111'111'222'333'447);
  scene.resource("d");
  const auto before = snapshot_of(scene.root);
  const auto report = scene.in();
  REQUIRE(report.ok());
  CHECK(report.files == 4);
  CHECK(report.directories == 2);
  CHECK(report.symlinks == 1);
  CHECK((snapshot_of(scene.root) == before));
  auto& nodes = scene.buffer.nodes;
  CHECK((scene.buffered("d/f") == content_of(scene.root + "/d/f")));
  CHECK((scene.buffered("d/hard") == content_of(scene.root + "/d/f")));
  CHECK(scene.buffered("d/empty").empty());
  CHECK(scene.buffered("d/" + long_name) == "long");
  CHECK(nodes.at("d/f").attributes.mode == 04751);
  CHECK(nodes.at("d/f").attributes.mtime == 1'111'111'111'222'333'444);
  CHECK(nodes.at("d/link").target == "f");
  CHECK(nodes.at("d/link").attributes.mtime == 1'111'111'111'222'333'445);
  CHECK(nodes.at("d/sub").attributes.mtime == 1'111'111'111'222'333'446);
  CHECK(nodes.at("d").attributes.mtime == 1'111'111'111'222'333'447);
  CHECK(nodes.at("d/f").origin->ctime == to_ns(stat_of(scene.root + "/d/f").st_ctim));
  CHECK(scene.buffer.pending() == 0);
}

TEST_CASE("stage-in: a sparse file of 300 MiB with 4 KiB of data stays sparse and whole",
          "[stage][in]") {
  Scene scene;
  write_file(scene.root + "/sparse", random_text(4096, 1));
  ::truncate((scene.root + "/sparse").c_str(), 300 << 20);
  scene.resource("sparse");
  REQUIRE(scene.in().ok());
  const auto staged = stat_of(scene.buffer.container(scene.buffer.nodes.at("sparse").ino));
  CHECK(staged.st_size == 300 << 20);
  CHECK(staged.st_blocks <= 16);
  CHECK((scene.buffered("sparse").substr(0, 8192) ==
         content_of(scene.root + "/sparse").substr(0, 8192)));
}

TEST_CASE("stage-in: a plan with problems is refused before anything moves", "[stage][in]") {
  Scene scene;
  write_file(scene.root + "/f", "x");
  scene.resource("f");
  scene.resource("missing");
  const auto report = scene.in();
  REQUIRE(!report.ok());
  CHECK(report.failure->error.code == EINVAL);
  CHECK(scene.buffer.nodes.empty());
}

TEST_CASE("stage-in: a file that vanishes, changes or shrinks fails by name and stops the rest",
          "[stage][in]") {
  Scene scene;
  for (int i = 0; i < 20; ++i) {
    write_file(scene.root + "/d/f" + std::to_string(i), random_text(5000, 1));
  }
  scene.resource("d");
  const std::string victim = scene.root + "/d/f7";
  std::string expected;
  FaultPfs::Hook hook;
  SECTION("vanishes") {
    expected = "vanished";
    hook = [&](auto, const std::string& call, const std::string& object) {
      if (call == "open" && object == "f7") {
        ::unlink(victim.c_str());
      }
      return 0;
    };
  }
  SECTION("is replaced") {
    expected = "changed while it was being read";
    hook = [&](auto, const std::string& call, const std::string& object) {
      if (call == "open" && object == "f7") {
        ::unlink(victim.c_str()), write_file(victim, random_text(5000, 2));
      }
      return 0;
    };
  }
  SECTION("shrinks") {
    expected = "changed while it was being read";
    hook = [&](auto, const std::string& call, const std::string& object) {
      if (call == "open" && object == "f7") {
        ::truncate(victim.c_str(), 100);
      }
      return 0;
    };
  }
  FaultPfs pfs(hook);
  Progress progress;
  const auto report = stage_in(scene.plan(), scene.buffer, pfs, scene.options, progress);
  REQUIRE(!report.ok());
  CHECK(report.failure->path == "d/f7");
  CHECK(report.failure->error.what.find(expected) != std::string::npos);
  CHECK(!scene.buffer.nodes.contains("d/f7"));
  CHECK(scene.buffer.pending() == 0);
}

TEST_CASE("stage-in: a chmod of an input while it is read is no change", "[stage][in]") {
  Scene scene;
  write_file(scene.root + "/f", "content");
  scene.resource("f");
  FaultPfs pfs([&](auto, const std::string& call, const auto&) {
    if (call == "read") {
      ::chmod((scene.root + "/f").c_str(), 0600);
    }
    return 0;
  });
  REQUIRE(scene.in(pfs).ok());
  CHECK(scene.buffer.nodes.at("f").origin->ctime == to_ns(stat_of(scene.root + "/f").st_ctim));
}

TEST_CASE("stage-in: cancelled in the middle", "[stage][in]") {
  Scene scene;
  for (int i = 0; i < 200; ++i) {
    write_file(scene.root + "/d/f" + std::to_string(i), random_text(3000, 1));
  }
  scene.resource("d");
  Progress progress;
  std::atomic<int> reads{0};
  FaultPfs pfs([&](auto, const std::string& call, const auto&) {
    if (call == "read" && ++reads == 50) {
      progress.cancel = true;
    }
    return 0;
  });
  const auto report = stage_in(scene.plan(), scene.buffer, pfs, scene.options, progress);
  REQUIRE(!report.ok());
  CHECK(report.failure->error.code == ECANCELED);
  CHECK(report.files < 200);
  CHECK(scene.buffer.pending() == 0);
}

TEST_CASE(
    "stage-in: every PFS call fails once; what is published is whole, the inputs are as before",
    "[stage][in][faults]") {
  for (const int code : {EIO, ENOSPC}) {
    const auto failed = each_call_fails(code, [&](FaultPfs& pfs, const NthCall& chosen) {
      INFO("call " << chosen.number << " of " << chosen.function << " fails with " << chosen.code);
      Scene scene;
      scene.options.workers = 1;
      write_file(scene.root + "/d/a", random_text(150'000, 1));
      stdfs::create_hard_link(scene.root + "/d/a", scene.root + "/d/another name");
      ::setxattr((scene.root + "/d/a").c_str(), "user.k", "value", 5, 0);
      ::setxattr((scene.root + "/d").c_str(), "user.k", "value", 5, 0);
      write_file(scene.root + "/d/b", "small");
      ::truncate((scene.root + "/d/b").c_str(), 50'000);
      stdfs::create_symlink("a", scene.root + "/d/l");
      scene.resource("d");
      scene.resource("d/?");
      write_file(scene.root + "/listed", "what the list names");
      write_file(scene.top + "/list", "listed\n");
      scene.resource("");
      scene.config.resources.back().path = scene.top + "/list";
      scene.config.resources.back().is_list = true;
      const auto before = snapshot_of(scene.root);
      const Plan plan = make_plan(scene.config, pfs).value();
      Progress progress;
      const auto report = stage_in(plan, scene.buffer, pfs, scene.options, progress);
      for (const auto& [path, node] : scene.buffer.nodes) {
        if (node.type == S_IFREG) {
          REQUIRE((scene.buffered(path) == content_of(scene.root + "/" + path)));
        }
      }
      REQUIRE((snapshot_of(scene.root) == before));
      REQUIRE(scene.buffer.pending() == 0);
      if (report.ok()) {
        REQUIRE(scene.buffer.nodes.size() == 6);
      }
      if (report.ok()) {
        REQUIRE((scene.buffer.nodes.at("d/a").xattrs.contains("user.k") &&
                 scene.buffer.nodes.at("d").xattrs.contains("user.k")));
      }
    });
    const std::set<std::string> all{"open",  "open_beneath", "read", "seek",     "fstat",
                                    "lstat", "access",       "list", "readlink", "xattrs"};
    CHECK(failed == all);
  }
}

TEST_CASE("stage-in: what has a higher priority comes first, whatever its size", "[stage][in]") {
  Scene scene;
  scene.options.workers = 1;
  write_file(scene.root + "/a/large", random_text(3'000'000, 1));
  write_file(scene.root + "/b/small", "x");
  write_file(scene.root + "/c/small", "x");
  scene.resource("");
  scene.resource("b");
  scene.resource("c/*");
  scene.config.resources[1].priority = 5;
  scene.config.resources[2].priority = 7;
  std::vector<std::string> order;
  FaultPfs pfs([&](auto, const std::string& call, const std::string& object) {
    if (call == "open" && (object == "large" || object == "small")) {
      order.push_back(object);
    }
    if (call == "open" && object.size() == 1) {
      order.push_back(object);  // a directory on the way
    }
    return 0;
  });
  const Plan plan = scene.plan();
  Progress progress;
  REQUIRE(stage_in(plan, scene.buffer, pfs, scene.options, progress).ok());
  REQUIRE(order.size() > 6);
  order.resize(6);  // behind the files directories are opened for their attributes
  CHECK(order == std::vector<std::string>{"c", "small", "b", "small", "a", "large"});
}

TEST_CASE("stage-in: what an interrupted one brought in is not read again", "[stage][in][resume]") {
  Scene scene;
  for (int i = 0; i < 30; ++i) {
    write_file(scene.root + "/d/f" + std::to_string(i),
               random_text(3000, static_cast<unsigned>(i)));
  }
  stdfs::create_symlink("f0", scene.root + "/d/l");
  scene.resource("d");
  std::atomic<int> reads{0};
  FaultPfs failing([&](auto, const std::string& call, const auto&) {
    return call == "read" && ++reads > 20 ? EIO : 0;
  });
  const auto first = scene.in(failing);
  REQUIRE(!first.ok());
  const auto published = first.files;
  REQUIRE(published > 0);
  reads = 0;
  FaultPfs counting([&](auto, const std::string& call, const auto&) {
    reads += call == "read";
    return 0;
  });
  const auto second = scene.in(counting);
  REQUIRE(second.ok());
  CHECK(second.kept == published);
  CHECK(second.files == 30 - published);
  CHECK(reads == static_cast<int>(30 - published));
  for (int i = 0; i < 30; ++i) {
    CHECK(scene.buffered("d/f" + std::to_string(i)) ==
          content_of(scene.root + "/d/f" + std::to_string(i)));
  }
}
