// SPDX-License-Identifier: BSD-3-Clause
// Load and unload under faults: every call to the PFS fails once, and every allocation of memory.
#include <sys/xattr.h>

#include <catch2/catch_test_macros.hpp>
#include <functional>

#include "support/short_of_memory.hpp"
#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/live_scene.hpp"

using namespace efs;
using namespace efs::stage;
using efs::test::Shortage;
using stage::test::each_call_fails;
using stage::test::FaultPfs;
using stage::test::LiveScene;
using stage::test::NthCall;
namespace stdfs = std::filesystem;

namespace {

using Calls = std::set<std::string>;
/// Longer than what a string holds without memory of its own.
const std::string long_name = "a name that takes memory";

const Calls of_a_load{"open",  "open_beneath", "read",     "fstat",
                      "lstat", "list",         "readlink", "xattrs"};
const Calls of_an_unload{"open",  "open_beneath", "write",     "fstat",
                         "lstat", "rename",       "set_xattr", "fsync"};

Calls operator+(Calls calls, const Calls& more) {
  calls.insert(more.begin(), more.end());
  return calls;
}

/// A load or an unload, and what must hold of it whatever fails.
struct Transfer {
  std::string name;
  Calls calls;  // all that it makes of the PFS
  std::function<void(LiveScene& scene)> prepare;
  std::function<bool(LiveScene& scene, PfsIo& pfs)> run;  // true: it says that all is done
  std::function<void(LiveScene& scene, bool done)> check;
};

bool is_complete(const Receipt& receipt) {
  return receipt.verdict == Verdict::complete;
}

void set_xattr(const std::string& path) {
  REQUIRE(::setxattr(path.c_str(), "user.k", "value", 5, 0) == 0);
}

bool result_has_xattr(const LiveScene& scene) {
  const efs::test::SparedAllocations spared;
  return ::getxattr((scene.config.results_dir + "/" + long_name).c_str(), "user.k", nullptr, 0) ==
         5;
}

Transfer load_of_a_directory() {
  return {.name = "load",
          .calls = of_a_load,
          .prepare =
              [](LiveScene& scene) {
                stdfs::create_hard_link(scene.config.root_dir + "/d/b",
                                        scene.config.root_dir + "/d/the second name of b");
                for (const char* path : {"/d", "/d/a"}) {
                  set_xattr(scene.config.root_dir + path);
                }
              },
          .run = [request = LoadRequest{.names = {"d"}}](
                     LiveScene& scene, PfsIo& pfs) { return scene.in(request, pfs).ok(); },
          .check =
              [](LiveScene& scene, bool done) {
                if (!done) {
                  CHECK_FALSE(scene.buffer.exists("d"));
                  return;
                }
                CHECK(scene.buffer.read("d/a") == std::string(3000, 'a'));
                CHECK(scene.buffer.read("d/b") == std::string(70000, 'b'));
                CHECK(scene.buffer.exists("d/l"));
                CHECK(scene.buffer.ino("d/the second name of b") == scene.buffer.ino("d/b"));
                for (const char* path : {"d", "d/a"}) {
                  CHECK(scene.buffer.staging->find(path)->xattrs.contains("user.k"));
                }
              }};
}

/// Files that replaced another version stay (load.hpp).
Transfer load_of_other_versions() {
  return {.name = "load --replace",
          .calls = of_a_load,
          .prepare =
              [](LiveScene& scene) {
                REQUIRE(scene.in({.names = {"d"}}).ok());
                scene.put("d/a", "another version");
                scene.put("d/b", "another one, too");
                scene.put("d/new", "new");
              },
          .run = [request = LoadRequest{.names = {"d"}, .replace = true}](
                     LiveScene& scene, PfsIo& pfs) { return scene.in(request, pfs).ok(); },
          .check =
              [](LiveScene& scene, bool done) {
                const std::string a = scene.buffer.read("d/a"), b = scene.buffer.read("d/b");
                CHECK((a == "another version" || (!done && a == std::string(3000, 'a'))));
                CHECK((b == "another one, too" || (!done && b == std::string(70000, 'b'))));
                CHECK(scene.buffer.read("d/new") == (done ? "new" : "(not there)"));
                CHECK(scene.buffer.exists("d/l"));
              }};
}

Transfer load_of_a_part() {
  return {
      .name = "load of a part",
      .calls = {"open", "open_beneath", "read", "seek", "fstat", "lstat", "xattrs"},
      .prepare =
          [](LiveScene& scene) {
            set_xattr(scene.config.root_dir + "/d/b");
            REQUIRE(scene.in({.names = {"d/b"}, .part = {.offset = 0, .length = 100}}).ok());
          },
      .run = [request = LoadRequest{.names = {"d/b"}, .part = {.offset = 10000, .length = 5000}}](
                 LiveScene& scene, PfsIo& pfs) { return scene.in(request, pfs).ok(); },
      .check =
          [](LiveScene& scene, bool done) {
            CHECK(scene.buffer.staging->find("d/b")->pfs.parts ==
                  (done ? "0+100,10000+5000" : "0+100"));
            std::string expected(70000, '\0');
            expected.replace(0, 100, 100, 'b');
            if (done) {
              expected.replace(10000, 5000, 5000, 'b');
            }
            CHECK(scene.buffer.read("d/b") == expected);
            CHECK(scene.buffer.staging->find("d/b")->xattrs.contains("user.k"));
          }};
}

/// The first part of a file in a directory that is not there either.
Transfer load_of_a_first_part() {
  return {
      .name = "load of a first part",
      .calls = {"open", "open_beneath", "read", "seek", "fstat", "lstat", "xattrs"},
      .prepare = [](LiveScene&) {},
      .run = [request = LoadRequest{.names = {"d/b"}, .part = {.offset = 10000, .length = 5000}}](
                 LiveScene& scene, PfsIo& pfs) { return scene.in(request, pfs).ok(); },
      .check =
          [](LiveScene& scene, bool done) {
            CHECK(scene.buffer.exists("d") == done);
            if (done) {
              CHECK(scene.buffer.read("d/b").substr(9999, 5002) ==
                    '\0' + std::string(5000, 'b') + '\0');
            }
          }};
}

/// Checks that results-dir has the old version of a file or the whole new one.
void check_result(LiveScene& scene, const std::string& name, const std::string& before,
                  const std::string& now, bool done) {
  const std::string there = scene.out(name);
  CHECK((there == now || (!done && there == before)));
}

Transfer unload_of_all() {
  static const std::string content(70000, 'n');
  return {
      .name = "unload",
      .calls =
          of_an_unload + Calls{"set_times", "symlink", "set_times_name", "link", "list", "xattrs"},
      .prepare =
          [](LiveScene& scene) {
            scene.buffer.write("f", content);
            REQUIRE(
                scene.buffer.filesystem->setxattr({}, scene.buffer.ino("f"), "user.k", "value", 0));
            REQUIRE(scene.buffer.filesystem->link({}, scene.buffer.ino("f"), fs::root_ino,
                                                  "another name of f"));
            REQUIRE(scene.buffer.filesystem->make_symlink({}, fs::root_ino, "l", "f"));
            for (const char* name : {"/f", "/another name of f"}) {
              std::ofstream(scene.config.results_dir + name) << "old";
            }
          },
      .run = [request = UnloadRequest{.names = {"f", "another name of f", "l"}}](
                 LiveScene& scene, PfsIo& pfs) { return is_complete(scene.back(request, pfs)); },
      .check =
          [](LiveScene& scene, bool done) {
            // If only the last report fails, all files are exported and clean. Every clean file is
            // in results-dir.
            const auto is_there = [&](const char* name) {
              return done || !scene.buffer.staging->find(name)->pfs.dirty;
            };
            for (const char* name : {"f", "another name of f"}) {
              check_result(scene, name, "old", content, is_there(name));
            }
            if (is_there("l")) {
              CHECK(stdfs::read_symlink(scene.config.results_dir + "/l") == "f");
            }
          }};
}

/// A file loses its name in the buffer once the PFS has it, and not before.
Transfer unload_and_remove() {
  static const std::string content(70000, 'n');
  return {
      .name = "unload --remove",
      .calls = of_an_unload + Calls{"set_times", "mkdir", "chmod", "xattrs"},
      .prepare =
          [](LiveScene& scene) {
            REQUIRE(scene.in({.names = {"d/a"}}).ok());
            scene.buffer.write("f", content);
            REQUIRE(
                scene.buffer.filesystem->setxattr({}, scene.buffer.ino("f"), "user.k", "value", 0));
            const auto directory =
                scene.buffer.filesystem->make_node({}, fs::root_ino, "made", S_IFDIR | 01750, 0)
                    ->ino;
            const auto file =
                scene.buffer.filesystem->make_node({}, directory, "g", S_IFREG | 0600, 0)->ino;
            // no program has them open
            for (const auto ino : {scene.buffer.ino("f"), file}) {
              (void)scene.buffer.filesystem->forget(ino, 1);
            }
          },
      .run = [request = UnloadRequest{.names = {""}, .remove = true}](
                 LiveScene& scene, PfsIo& pfs) { return is_complete(scene.back(request, pfs)); },
      .check =
          [](LiveScene& scene, bool done) {
            const std::string gone = "(not there)";
            check_result(scene, "f", gone, content, done);
            check_result(scene, "made/g", gone, "", done);
            if (scene.out("f") != content) {
              CHECK(scene.buffer.read("f") == content);
            }
            if (scene.out("made/g") == gone) {
              CHECK(scene.buffer.exists("made/g"));
            }
            CHECK(scene.out("d/a") == gone);  // an unchanged input
            for (const char* name : {"f", "made/g", "d/a"}) {
              CHECK((!scene.buffer.exists(name) || !done ||
                     !scene.buffer.staging->find(name)->pfs.dirty || scene.out(name) != gone));
            }
          }};
}

Transfer unload_in_place() {
  return {
      .name = "unload in place",
      .calls = of_an_unload + Calls{"set_times", "chmod", "readlink", "xattrs", "symlink",
                                    "set_times_name", "list", "rename_noreplace", "unlink"},
      .prepare =
          [](LiveScene& scene) {
            scene.config.results_dir = scene.config.root_dir;
            scene.config.in_place = true;
            scene.config.on_conflict = config::OnConflict::keep_both;
            REQUIRE(scene.in({.names = {"d"}}).ok());
            for (const char* name : {"d/a", "d/b"}) {
              scene.buffer.write(name, std::string(5000, 'n'));
            }
            REQUIRE(scene.buffer.filesystem->setxattr({}, scene.buffer.ino("d/a"), "user.k",
                                                      "value", 0));
            REQUIRE(scene.buffer.filesystem->unlink({}, scene.buffer.ino("d"), "l"));
            REQUIRE(scene.buffer.filesystem->make_symlink({}, scene.buffer.ino("d"), "l", "b"));
            scene.put("d/b", "theirs");
          },
      .run = [request = UnloadRequest{.names = {"d/a", "d/b", "d/l"}}](
                 LiveScene& scene, PfsIo& pfs) { return is_complete(scene.back(request, pfs)); },
      .check =
          [](LiveScene& scene, bool done) {
            check_result(scene, "d/a", std::string(3000, 'a'), std::string(5000, 'n'), done);
            CHECK(scene.out("d/b") == "theirs");
            check_result(scene, "d/b.efs-job", "(not there)", std::string(5000, 'n'), done);
            const std::string target = stdfs::read_symlink(scene.config.results_dir + "/d/l");
            CHECK((target == "b" || (!done && target == "a")));
            CHECK(scene.buffer.staging->find("d/b")->pfs.dirty);  // a stop has to see to it again
          }};
}

Transfer unload_of_a_part(bool in_place) {
  static const std::string before(1000, 'p'), now = std::string(900, 'p') + std::string(300, 'q');
  return {
      .name = in_place ? "unload of a part in place" : "unload of a part",
      .calls = of_an_unload + Calls{"read", "seek", "truncate", "chmod", "xattrs", "unlink",
                                    "remove_xattr", "symlink"},
      .prepare =
          [in_place](LiveScene& scene) {
            scene.config.verify = config::Verify::read_back;
            if (in_place) {
              scene.config.results_dir = scene.config.root_dir;
            }
            scene.config.in_place = in_place;
            scene.put(long_name, before);
            set_xattr(scene.config.root_dir + "/" + long_name);
            if (in_place) {
              REQUIRE(scene.in({.names = {long_name}}).ok());
            } else {
              scene.buffer.write(long_name, before);
            }
            if (!in_place) {
              REQUIRE(is_complete(scene.back({.names = {long_name}})));
            }
            if (!in_place) {
              set_xattr(scene.config.results_dir + "/" + long_name);
            }
            scene.buffer.write(long_name, std::string(2000, 'q'));
          },
      .run =
          [request = UnloadRequest{.names = {long_name}, .part = {.offset = 900, .length = 300}}](
              LiveScene& scene, PfsIo& pfs) {
            const bool had = result_has_xattr(scene);
            const Receipt receipt = scene.back(request, pfs);
            const efs::test::SparedAllocations spared;
            if (had && is_complete(receipt)) {
              CHECK((result_has_xattr(scene) ||
                     receipt.entries.at(0).reason.contains("without user.k")));
            }
            // After this message the user declares in the job file that the file is the job's own.
            const bool told = receipt.entries.size() == 1 &&
                              receipt.entries[0].reason.contains("will report a conflict");
            if (told) {
              scene.config.on_conflict = config::OnConflict::overwrite;
            }
            return is_complete(receipt);
          },
      .check =
          [](LiveScene& scene, bool done) {
            check_result(scene, long_name, before, now, done);
            CHECK(scene.buffer.staging->find(long_name)->pfs.dirty);
          }};
}

std::vector<Transfer> all_transfers() {
  return {load_of_a_directory(),  load_of_other_versions(), load_of_a_part(),
          load_of_a_first_part(), unload_of_all(),          unload_and_remove(),
          unload_in_place(),      unload_of_a_part(false),  unload_of_a_part(true)};
}

/// Once the cause has gone all is done.
void require_done(const Transfer& transfer, LiveScene& scene) {
  INFO("again");
  REQUIRE(transfer.run(scene, posix_pfs()));
  transfer.check(scene, true);
  CHECK(scene.partials() == 0);
  CHECK(scene.leaks_nothing());
}

void each_call_of(const Transfer& transfer, int code) {
  std::size_t failures = 0;
  const auto failed = each_call_fails(code, [&](FaultPfs& pfs, const NthCall& chosen) {
    LiveScene scene;
    transfer.prepare(scene);
    const bool done = transfer.run(scene, pfs);
    INFO(transfer.name << ": call " << chosen.number << " of " << chosen.function << " fails with "
                       << code);
    transfer.check(scene, done);
    if (chosen.function != "unlink") {
      CHECK(scene.partials() == 0);
    }
    CHECK(scene.leaks_nothing());
    if (!done) {
      ++failures;
    }
    require_done(transfer, scene);
  });
  INFO(transfer.name);
  if (efs::test::Sample(0).step == 1) {
    CHECK(failures > 3);
  }
  CHECK(failed == transfer.calls);
}

// (That memory is short for good cannot be tried here: the file system counts on what it keeps
// back.)
void each_allocation_of(const Transfer& transfer) {
  std::size_t failures = 0;
  const auto allocations =
      efs::test::each_allocation_fails(Shortage::once, [&](const auto& short_of_memory) {
        LiveScene scene;
        scene.options.workers = 1;
        transfer.prepare(scene);
        bool done = false;
        short_of_memory([&] { done = transfer.run(scene, posix_pfs()); });
        INFO(transfer.name << (done ? ": done" : ": failed"));
        transfer.check(scene, done);
        CHECK(scene.partials() == 0);
        CHECK(scene.leaks_nothing());
        if (!done) {
          ++failures;
        }
        require_done(transfer, scene);
      });
  INFO(transfer.name);
  CHECK(allocations > 20);
  if (efs::test::Sample(0).step == 1) {
    CHECK(failures > 0);
  }
}

}  // namespace

TEST_CASE(
    "whichever call to the PFS fails, a load or an unload leaves the old version or the whole new "
    "one, loses no space, and says the truth",
    "[stage][faults]") {
  const auto seed = efs::test::seed();
  const efs::test::Sample sample(seed);
  INFO("EFS_SAMPLE=" << sample.step << " EFS_TEST_SEED=" << seed);
  for (const int code : {EIO, ENOSPC}) {
    if (sample.step == 1 || (code == EIO) == (sample.first % 2 == 0)) {
      for (const auto& transfer : all_transfers()) {
        each_call_of(transfer, code);
      }
    }
  }
}

TEST_CASE(
    "whichever allocation of memory fails, a load or an unload leaves the old version or the whole "
    "new one, loses no space, and says the truth",
    "[stage][faults][memory]") {
  for (const auto& transfer : all_transfers()) {
    each_allocation_of(transfer);
  }
}
