// SPDX-License-Identifier: BSD-3-Clause
// Load and unload on a real file system without a mount.
#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include "fs/kernel_view.hpp"
#include "stage/buffer.hpp"
#include "stage/export/stage_out.hpp"
#include "stage/pfs/merge.hpp"
#include "stage/pfs/merging_publisher.hpp"
#include "stage/pfs/posix_handle.hpp"
#include "support/open_handles.hpp"
#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/live_scene.hpp"
#include "unit/stage/opened.hpp"
#include "unit/stage/pfs/published.hpp"

using namespace efs;
using namespace efs::stage;
using stage::test::FaultPfs;
using stage::test::LiveScene;
namespace stdfs = std::filesystem;

namespace {

/// Acts as programs do when they see a name.
struct NamesTold final : fs::KernelView {
  NamesTold(fs::Filesystem& filesystem, std::function<void(const std::string&)> told)
      : filesystem_(filesystem), told_(std::move(told)) {
    filesystem_.attach(this);
  }

  ~NamesTold() override { filesystem_.attach(nullptr); }

  void name_changed(std::uint64_t, const std::string& name) override { told_(name); }

  void name_removed(std::uint64_t, const std::string&, std::uint64_t, bool) override {}

  void name_doubted(std::uint64_t, const std::string&, std::uint64_t) override {}

  void attributes_changed(std::uint64_t) override {}

  void space_given_back(std::uint64_t) override {}

  void write_back(std::uint64_t) override {}

  void let_go(std::uint64_t) override {}

  void container_removed(std::uint64_t, std::uint64_t) override {}

  bool removes_later() override { return false; }

  void removals_wait() override {}

  void release_space() override {}

  void await_received() override {}

  fs::Filesystem& filesystem_;
  std::function<void(const std::string&)> told_;
};

}  // namespace

TEST_CASE(
    "a file that is opened for writing while it is copied does not go out, or goes out "
    "unverified") {
  LiveScene scene;
  const auto ino = scene.buffer.write("f", std::string(200000, 'x'));
  FaultPfs pfs([&](std::uint64_t, const std::string& call, const std::string&) {
    // Through the kernel: the daemon sees the open, and neither size nor time changes.
    if (call == "write" && scene.buffer.staging->writers(ino)->open == 0) {
      (void)scene.buffer.filesystem->open({}, ino, O_WRONLY);
    }
    return 0;
  });
  const Receipt refused = scene.back({.names = {"f"}}, pfs);
  CHECK(refused.verdict == Verdict::failed);
  CHECK(scene.out("f") == "(not there)");
  CHECK(scene.partials() == 0);
  efs::test::release(*scene.buffer.filesystem, ino, O_WRONLY);
  const Receipt as_is = scene.back({.names = {"f"}, .as_is = true}, pfs);
  REQUIRE(as_is.entries.size() == 1);
  CHECK(as_is.entries[0].action == Action::staged_out);
  CHECK(as_is.entries[0].unverified);
  CHECK(scene.buffer.staging->find("f")->pfs.dirty);
  efs::test::release(*scene.buffer.filesystem, ino, O_WRONLY);
  const Receipt good = scene.back({.names = {"f"}});
  CHECK(good.entries[0].action == Action::kept);  // the copy turns out to have been the file
  CHECK_FALSE(good.entries[0].unverified);
  CHECK_FALSE(scene.buffer.staging->find("f")->pfs.dirty);
}

TEST_CASE(
    "of all that is there only what a stop would bring out goes out where that is asked for") {
  LiveScene scene;
  REQUIRE(scene.in({.names = {"d"}}).ok());
  scene.buffer.write("result", "result");
  scene.buffer.write("scratch", "scratch");
  const auto busy = scene.buffer.write("busy", "half");
  REQUIRE(scene.buffer.staging->set_keep("scratch", fs::Keep::temporary));
  REQUIRE(scene.buffer.filesystem->open({}, busy, O_WRONLY));
  const Receipt receipt = scene.back({.names = {""}, .results_only = true});
  efs::test::release(*scene.buffer.filesystem, busy, O_WRONLY);
  CHECK(scene.out("result") == "result");
  CHECK(scene.out("scratch") == "(not there)");
  CHECK(scene.out("busy") == "(not there)");
  CHECK_FALSE(stdfs::exists(scene.config.results_dir + "/d"));  // an input, which is clean
  CHECK(receipt.totals.staged_out == 1);
  CHECK(receipt.totals.failed == 1);
  CHECK_FALSE(scene.buffer.staging->find("result")->pfs.dirty);
  CHECK(scene.buffer.staging->find("busy")->pfs.dirty);
  const Receipt all = scene.back({.names = {""}});
  CHECK(scene.out("scratch") == "scratch");
  CHECK(scene.out("busy") == "half");
}

TEST_CASE("beside programs a large file is moved by a thread less than there are processors") {
  LiveScene scene;
  const std::size_t size = 40U << 20U;
  std::mutex mutex;
  std::set<std::thread::id> threads;
  FaultPfs pfs([&](std::uint64_t, const std::string& call, const std::string&) {
    const std::lock_guard lock(mutex);
    if (call == "read" || call == "write") {
      threads.insert(std::this_thread::get_id());
    }
    return 0;
  });
  scene.options.beside_programs = true;
  const std::size_t all = std::max(1U, std::thread::hardware_concurrency()),
                    ours = std::max<std::size_t>(1, all - 1);
  CHECK(scene.options.processors() == ours);
  CHECK(Options().processors() == all);
  std::ofstream(scene.config.root_dir + "/large") << std::string(size, 'x');
  REQUIRE(scene.in({.names = {"large"}}, pfs).ok());
  CHECK(threads.size() <= ours);
  threads.clear();
  scene.buffer.write("result", std::string(size, 'y'));
  CHECK(scene.back({.names = {"result"}}, pfs).verdict == Verdict::complete);
  CHECK(threads.size() <= ours);
}

TEST_CASE("a name that a program takes during a load stays the program's") {
  LiveScene scene;
  std::atomic<bool> made = false;
  FaultPfs pfs([&](std::uint64_t, const std::string& call, const std::string&) {
    if (call == "read" && !made.exchange(true)) {
      const auto directory =
          scene.buffer.filesystem->make_node({}, fs::root_ino, "d", S_IFDIR | 0700, 0)->ino;
      (void)scene.buffer.filesystem->make_node({}, directory, "b", S_IFREG | 0600, 0);
    }
    return 0;
  });
  const LoadReport report = scene.in({.names = {"d"}}, pfs);
  REQUIRE_FALSE(report.ok());
  CHECK(report.failure->error.code == EEXIST);
  CHECK(report.failure->path == "d/b");
  CHECK(report.files == 0);
  CHECK(scene.buffer.read("d/b").empty());
  CHECK_FALSE(scene.buffer.exists("d/a"));
  CHECK(scene.buffer.containers() == 1);
}

TEST_CASE(
    "a load whose names fail in the last step takes back those that it gave, but for what has "
    "changed or took another's place") {
  enum class Meanwhile { nothing, changed, replaced };
  for (const auto meanwhile : {Meanwhile::nothing, Meanwhile::changed, Meanwhile::replaced}) {
    INFO("case " << static_cast<int>(meanwhile));
    LiveScene scene;
    stdfs::create_directory(scene.config.root_dir + "/d/sub");
    stdfs::create_hard_link(scene.config.root_dir + "/d/a", scene.config.root_dir + "/d/a0");
    if (meanwhile == Meanwhile::replaced) {
      REQUIRE(scene.in({.names = {"d/a"}}).ok());
      scene.put("d/a", "another version");
    }
    auto& filesystem = *scene.buffer.filesystem;
    // Once d/a is there a program takes the next name.
    NamesTold kernel(filesystem, [&](const std::string& name) {
      if (name != "a" || scene.buffer.exists("d/b")) {
        return;
      }
      (void)filesystem.make_node({}, scene.buffer.ino("d"), "b", S_IFREG | 0600, 0);
      if (meanwhile == Meanwhile::changed) {
        (void)filesystem.open({}, scene.buffer.ino("d/a"), O_WRONLY);
      }
    });
    const LoadReport report = scene.in(
        {.names = {"d/a", "d/b", "d/l", "d/sub"}, .replace = meanwhile == Meanwhile::replaced});
    REQUIRE_FALSE(report.ok());
    CHECK(report.failure->path == "d/b");
    const bool stays = meanwhile != Meanwhile::nothing;
    CHECK(report.failure->error.what.contains("1 other files were loaded") == stays);
    CHECK(report.files == (stays ? 1 : 0));
    CHECK(scene.buffer.exists("d/a") == stays);
    CHECK(scene.buffer.read("d/b").empty());
    CHECK_FALSE(scene.buffer.exists("d/l"));
    CHECK_FALSE(scene.buffer.exists("d/sub"));
    CHECK(scene.buffer.containers() == (stays ? 2 : 1));
    CHECK(scene.buffer.staging->gone().empty());
  }
}

TEST_CASE("a file that changes on the PFS while it is loaded is not loaded") {
  LiveScene scene;
  FaultPfs pfs([&](std::uint64_t, const std::string& call, const std::string&) {
    if (call == "read") {
      stdfs::resize_file(scene.config.root_dir + "/d/b", 10);
    }
    return 0;
  });
  const LoadReport report = scene.in({.names = {"d/b"}}, pfs);
  REQUIRE_FALSE(report.ok());
  CHECK(report.failure->error.code == ESTALE);
  CHECK_FALSE(scene.buffer.exists("d"));
  CHECK(scene.buffer.containers() == 0);
}

TEST_CASE("unload --remove removes only what results-dir has for sure") {
  LiveScene scene;
  REQUIRE(scene.in({.names = {"d"}}).ok());
  const auto held = scene.buffer.write("held", "h");
  scene.buffer.write("free", "f");
  REQUIRE(scene.buffer.filesystem->open({}, held, O_WRONLY));
  const Receipt receipt = scene.back({.names = {""}, .as_is = true, .remove = true});
  CHECK(receipt.verdict == Verdict::complete);
  CHECK(scene.out("free") == "f");
  CHECK(scene.out("held") == "h");
  CHECK_FALSE(scene.buffer.exists("free"));
  CHECK(scene.buffer.exists("held"));
  CHECK_FALSE(scene.buffer.exists("d/a"));  // a clean input: the PFS has it
  CHECK(scene.out("d/a") == "(not there)");
  CHECK(scene.buffer.exists("d/l"));
}

TEST_CASE("a clean file stays where the PFS does not have its version any more") {
  LiveScene scene;
  REQUIRE(scene.in({.names = {"d"}}).ok());
  scene.put("d/a", "another version");
  scene.buffer.write("f", "x");
  REQUIRE(scene.back({.names = {"f"}}).verdict == Verdict::complete);
  stdfs::remove(scene.config.results_dir + "/f");
  const Receipt receipt = scene.back({.names = {"d/a", "d/b", "f"}, .remove = true});
  CHECK(receipt.verdict == Verdict::complete);
  CHECK(scene.buffer.exists("d/a"));
  CHECK_FALSE(scene.buffer.exists("d/b"));
  CHECK(scene.buffer.exists("f"));
  CHECK(describe_unload(receipt).find("any more") != std::string::npos);
}

TEST_CASE("a part that is unloaded in place is the job's own version to what comes next") {
  LiveScene scene;
  scene.config.results_dir = scene.config.root_dir;
  scene.config.in_place = true;
  const std::string file = scene.config.root_dir + "/p";
  const auto unload_part = [&] {
    return scene.back({.names = {"p"}, .part = {.offset = 0, .length = 4}}).verdict;
  };
  for (const bool theirs : {false, true}) {
    scene.put("p", std::string(1000, 'p'));
    REQUIRE(::setxattr(file.c_str(), "user.k", "v", 1, 0) == 0);
    REQUIRE(::chmod(file.c_str(), 02640) == 0);
    REQUIRE(scene.in({.names = {"p"}, .replace = theirs, .force = theirs}).ok());
    CHECK(unload_part() == Verdict::complete);  // of what the PFS has: nothing to do
    scene.buffer.write("p", std::string(1000, 'q'));
    scene.config.on_conflict = theirs ? config::OnConflict::overwrite : config::OnConflict::fail;
    if (theirs) {
      scene.put("p", std::string(1000, 't'));
    }
    REQUIRE(unload_part() == Verdict::complete);
    CHECK(scene.out("p") == "qqqq" + std::string(996, theirs ? 't' : 'p'));
    struct stat st{};
    REQUIRE(::stat(file.c_str(), &st) == 0);
    CHECK((st.st_mode & 07777U) == 02640U);
    CHECK(::getxattr(file.c_str(), "user.k", nullptr, 0) == 1);
    CHECK(scene.buffer.staging->find("p")->pfs.dirty);
    scene.config.on_conflict = config::OnConflict::fail;
    CHECK(scene.back({.names = {"p"}}).entries.at(0).action ==
          (theirs ? Action::conflict : Action::staged_out));
  }
}

TEST_CASE("a part goes into nobody else's version unless the job file says so") {
  LiveScene scene;
  scene.config.results_dir = scene.config.root_dir;
  scene.config.in_place = true;
  scene.put("p", std::string(1000, 'p'));
  REQUIRE(scene.in({.names = {"p"}}).ok());
  scene.buffer.write("p", std::string(1000, 'q'));
  scene.put("p", std::string(1000, 't'));
  const auto part_of_p = [&](PfsIo& pfs) {
    return scene.back({.names = {"p"}, .part = {.offset = 0, .length = 4}}, pfs).entries.at(0);
  };
  for (const auto policy : {config::OnConflict::fail, config::OnConflict::keep_both}) {
    scene.config.on_conflict = policy;
    const auto entry = part_of_p(posix_pfs());
    CHECK(entry.action == Action::conflict);
    CHECK(entry.reason.contains("changed on the PFS"));
    CHECK(entry.reason.contains("unload all of it") == (policy == config::OnConflict::keep_both));
    CHECK(scene.out("p") == std::string(1000, 't'));
  }
  scene.config.on_conflict = config::OnConflict::overwrite;
  CHECK(part_of_p(posix_pfs()).reason.contains("laid over a version that changed"));
  CHECK(scene.out("p") == "qqqq" + std::string(996, 't'));
}

TEST_CASE(
    "a part does not take the place of a version that comes while it is laid over the old one") {
  // Or later: when the name is claimed.
  for (const auto& [in_place, moment] :
       {std::pair{false, "fsync"}, {true, "fsync"}, {false, "symlink"}, {true, "symlink"}}) {
    LiveScene scene;
    if (in_place) {
      scene.config.results_dir = scene.config.root_dir;
    }
    scene.config.in_place = in_place;
    scene.config.on_conflict = config::OnConflict::overwrite;
    scene.put("p", std::string(1000, 'p'));
    REQUIRE(scene.in({.names = {"p"}}).ok());
    scene.buffer.write("p", std::string(1000, 'q'));
    if (!in_place) {
      REQUIRE(scene.back({.names = {"p"}}).verdict == Verdict::complete);
    }
    if (!in_place) {
      scene.buffer.write("p", std::string(1000, 'r'));
    }
    FaultPfs pfs([&](std::uint64_t, const std::string& call, const std::string&) {
      if (call == moment) {
        std::ofstream(scene.config.results_dir + "/p", std::ios::binary) << "theirs";
      }
      return 0;
    });
    const Receipt receipt = scene.back({.names = {"p"}, .part = {.offset = 0, .length = 4}}, pfs);
    CHECK(receipt.entries.at(0).action == Action::conflict);
    CHECK(error_code(receipt) == ESTALE);
    CHECK(scene.out("p") == "theirs");
    CHECK(scene.partials() == 0);
  }
}

// If the worker dies between the record and the rename, a later worker would take the job's own
// result for another user's.
TEST_CASE(
    "what is about to get its name is known for ours before it has it, whole or with a part laid "
    "over") {
  LiveScene scene;
  scene.config.results_dir = scene.config.root_dir;
  scene.config.in_place = true;
  scene.put("p", std::string(1000, 'p'));
  REQUIRE(scene.in({.names = {"p"}}).ok());
  for (const auto& part : {Part{}, Part{.offset = 0, .length = 4}}) {
    scene.buffer.write("p", std::string(1000, part.whole() ? 'q' : 'r'));
    std::optional<fs::Origin> known;
    FaultPfs pfs(stage::test::NthCall{});
    pfs.on_naming = [&](const std::string&) {
      known = scene.buffer.staging->find("p")->pfs.saved;
    };
    REQUIRE(scene.back({.names = {"p"}, .part = part}, pfs).verdict == Verdict::complete);
    struct stat there{};
    REQUIRE(::stat((scene.config.root_dir + "/p").c_str(), &there) == 0);
    REQUIRE(known);
    CHECK(known->inode == there.st_ino);
    CHECK(known->ctime == fs::Origin::any_ctime);
  }
}

TEST_CASE(
    "of several nodes what is about to get its name is known for another one's as well where that "
    "has the same there") {
  LiveScene scene;
  scene.config.nodes = 2;
  scene.config.merge_since = pfs_now(scene.config.results_dir).value();
  FaultPfs pfs(stage::test::NthCall{});
  const auto others = merging_publisher(scene.config.merge_since),
             ours = merging_publisher(scene.config.merge_since);
  scene.options.publisher = ours.get();
  scene.buffer.write("f", std::string(1000, 'f'));
  REQUIRE(scene.buffer.filesystem->link({}, scene.buffer.ino("f"), fs::root_ino, "g"));
  const auto attributes = scene.buffer.staging->find("f")->attributes;
  const auto brings = [&](const std::string& name) {
    std::ofstream(scene.config.results_dir + "/p") << std::string(1000, 'f');
    const PfsHandle top = opened(scene.config.results_dir);
    const std::array times{attributes.st_atim, attributes.st_mtim};
    REQUIRE((::fchmodat(fd_of(top), "p", attributes.st_mode & 07777U, 0) == 0 &&
             ::fchownat(fd_of(top), "p", attributes.st_uid, attributes.st_gid, 0) == 0));
    REQUIRE(::utimensat(fd_of(top), "p", times.data(), 0) == 0);
    REQUIRE(published(*others, top, "p", name));
  };
  brings("g");
  scene.buffer.write("h", std::string(1000, 'f'));
  std::mutex mutex;
  std::map<std::string, Nanoseconds> known;
  pfs.on_naming = [&](const std::string& name) {
    const std::lock_guard lock(mutex);
    const auto item = scene.buffer.staging->find(name);
    if (item && item->pfs.saved) {
      known[name] = item->pfs.saved->ctime;
    }
  };
  REQUIRE(scene.back({.names = {"f", "g", "h"}}, pfs).verdict == Verdict::complete);
  REQUIRE(known.size() == 3);
  CHECK(known["f"] == fs::Origin::any_ctime);
  CHECK(known["g"] == 0);
  CHECK(known["h"] == fs::Origin::any_ctime);
}

TEST_CASE("no part goes into an input where results-dir leads to one") {
  LiveScene scene;
  REQUIRE(scene.in({.names = {"d"}}).ok());
  scene.config.results_dir = scene.config.root_dir + "/d";
  scene.buffer.write("a", std::string(10, 'x'));
  const auto entry = scene.back({.names = {"a"}, .part = {.offset = 0, .length = 4}}).entries.at(0);
  CHECK(entry.action == Action::conflict);
  CHECK(entry.reason.contains("an input of this job"));
  CHECK(scene.back({.names = {"a"}}).entries.at(0).action == Action::conflict);
  CHECK(scene.out("a") == std::string(3000, 'a'));
}

TEST_CASE(
    "verify: read-back holds for a part, too, and its receipt has the checksum of the whole") {
  LiveScene scene;
  scene.config.verify = config::Verify::read_back;
  scene.buffer.write("p", std::string(1000, 'p'));
  REQUIRE(scene.back({.names = {"p"}}).verdict == Verdict::complete);
  scene.buffer.write("p", std::string(2000, 'q'));
  // The PFS loses a byte between the sync and the read.
  bool rot = true;
  FaultPfs pfs([&](std::uint64_t, const std::string& call, const std::string& object) {
    const std::string partial = scene.config.results_dir + "/p.efs-partial";
    if (rot && call == "open" && object == "p.efs-partial" && stdfs::exists(partial) &&
        stdfs::file_size(partial) == 1200) {
      std::fstream file(partial, std::ios::binary | std::ios::in | std::ios::out);
      file << "R";
    }
    return 0;
  });
  const UnloadRequest request{.names = {"p"}, .part = {.offset = 900, .length = 300}};
  const Receipt rotten = scene.back(request, pfs);
  CHECK(rotten.read_back);
  CHECK(rotten.entries.at(0).action == Action::failed);
  CHECK(rotten.entries.at(0).reason.contains("other data"));
  CHECK(scene.out("p") == std::string(1000, 'p'));
  CHECK(scene.partials() == 0);
  rot = false;
  const Receipt good = scene.back(request, pfs);
  const std::string whole = std::string(900, 'p') + std::string(300, 'q');
  CHECK(scene.out("p") == whole);
  CHECK(good.entries.at(0).checksum == checksum(std::as_bytes(std::span(whole))));
}

TEST_CASE("the partial of one result takes no other result's name") {
  LiveScene scene;
  scene.buffer.write("x.efs-partial", "precious");
  scene.buffer.write("x", "x");
  REQUIRE(scene.back({.names = {"x.efs-partial"}}).verdict == Verdict::complete);
  REQUIRE(scene.back({.names = {"x"}}).verdict == Verdict::complete);
  REQUIRE(scene.back({.names = {"x"}, .part = {.offset = 0, .length = 1}}).verdict ==
          Verdict::complete);
  CHECK(scene.out("x.efs-partial") == "precious");
}

TEST_CASE("a stop brings out again what results-dir does not have any more") {
  LiveScene scene;
  for (const auto* name : {"gone", "there"}) {
    scene.buffer.write(name, name);
    REQUIRE(scene.back({.names = {name}}).verdict == Verdict::complete);
  }
  stdfs::remove(scene.config.results_dir + "/gone");
  StagingBuffer buffer(*scene.buffer.staging);
  Progress progress;
  const Receipt receipt = stage_out(scene.config, buffer, posix_pfs(), scene.options, progress);
  CHECK(receipt.totals.staged_out == 1);
  CHECK(receipt.totals.unchanged == 1);
  CHECK(scene.out("gone") == "gone");
}
