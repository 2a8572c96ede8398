// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/stage_out.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <set>
#include <thread>

#include "stage/export/results_tree.hpp"
#include "stage/pfs/partial_name.hpp"
#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

TEST_CASE("stage-out: new files with modes, nanosecond times, links, empty directories",
          "[stage][out]") {
  Scene scene;
  const std::string data = random_text(300'000, 1);
  scene.buffer.put("d", S_IFDIR, {}, 0750);
  scene.buffer.put("d/closed", S_IFDIR, {}, 0555);
  scene.buffer.put("d/closed/f", S_IFREG, data, 0640);
  scene.buffer.put("d/empty", S_IFREG, {}, 0600);
  scene.buffer.put("d/link", S_IFLNK, "closed/f");
  scene.buffer.put("d/none", S_IFDIR, {}, 0700);
  scene.buffer.put(std::string(250, 'n'), S_IFREG, "long");
  scene.buffer.nodes["hard"] = scene.buffer.nodes["d/closed/f"];
  const Receipt receipt = scene.out();
  REQUIRE(receipt.verdict == Verdict::complete);
  CHECK(exit_code(receipt) == 0);
  CHECK(receipt.totals.staged_out == 8);
  // before its content is read, which moves atime
  const auto file = stat_of(scene.results + "/d/closed/f");
  CHECK((content_of(scene.results + "/d/closed/f") == data));
  CHECK((content_of(scene.results + "/hard") == data));
  CHECK(content_of(scene.results + "/" + std::string(250, 'n')) == "long");
  CHECK((file.st_mode & 07777U) == 0640);
  CHECK(to_ns(file.st_mtim) == 1'600'000'000'987'654'321);
  CHECK(to_ns(file.st_atim) == 1'500'000'000'123'456'789);
  CHECK(file.st_nlink == 2);  // "hard" is another name of it
  CHECK((stat_of(scene.results + "/d/closed").st_mode & 07777U) == 0555);
  CHECK(to_ns(stat_of(scene.results + "/d").st_mtim) == 1'600'000'000'987'654'321);
  CHECK(to_ns(stat_of(scene.results + "/d/none").st_mtim) == 1'600'000'000'987'654'321);
  CHECK(stdfs::read_symlink(scene.results + "/d/link") == "closed/f");
  CHECK(to_ns(stat_of(scene.results + "/d/link").st_mtim) == 1'600'000'000'987'654'321);
  CHECK(entry_of(receipt, "d/closed/f")->checksum == hash(data));
  CHECK(partials_below(scene.results) == 0);
}

TEST_CASE("stage-out: a sparse file of 300 MiB with 4 KiB of data stays sparse and whole",
          "[stage][out]") {
  Scene scene;
  scene.buffer.put("sparse", S_IFREG, random_text(4096, 1));
  ::truncate(scene.buffer.container(scene.buffer.nodes.at("sparse").ino).c_str(), 300 << 20);
  const Receipt receipt = scene.out();
  REQUIRE(receipt.verdict == Verdict::complete);
  CHECK(stat_of(scene.results + "/sparse").st_size == 300 << 20);
  CHECK(stat_of(scene.results + "/sparse").st_blocks <= 16);
  FileChecksum dense(SumKind::xxh3_sparse);
  const std::string content = content_of(scene.results + "/sparse");
  dense.update(std::as_bytes(std::span(content)));
  CHECK(entry_of(receipt, "sparse")->checksum == dense.finish());
}

TEST_CASE("stage-out: a result of 1 TiB of hole costs what its data cost", "[stage][out]") {
  constexpr off_t size = off_t{1} << 40U;
  Scene scene;
  for (const auto verify : {config::Verify::stream, config::Verify::read_back}) {
    scene.config.verify = verify;
    scene.buffer.put("hole", S_IFREG, "", 0644);
    const std::string container = scene.buffer.container(scene.buffer.nodes.at("hole").ino);
    REQUIRE(::truncate(container.c_str(), size) == 0);
    {
      const UniqueFd fd(::open(container.c_str(), O_WRONLY | O_CLOEXEC));
      REQUIRE(::pwrite(fd.get(), "data", 4, size / 2) == 4);
    }
    std::atomic<std::uint64_t> calls{0};
    Progress progress;
    FaultPfs pfs([&](auto, const std::string& call, const auto&) {
      // The test counts calls: reading the hole would add one call a mebibyte.
      if ((call == "read" || call == "write") && ++calls == 1000) {
        progress.cancel = true;
      }
      return 0;
    });
    const Receipt receipt = stage_out(scene.config, scene.buffer, pfs, scene.options, progress);
    REQUIRE(receipt.verdict == Verdict::complete);
    CHECK(calls < 100);
    CHECK(progress.bytes_done == progress.bytes_total);
    CHECK(progress.bytes_total <= 64U << 10U);
    CHECK(entry_of(receipt, "hole")->bytes == static_cast<std::uint64_t>(size));
    CHECK(entry_of(receipt, "hole")->checksum->kind == SumKind::xxh3_sparse);
    CHECK(stat_of(scene.results + "/hole").st_blocks <= 16);
    // Comparing the files of a killed stage-out costs the same.
    const Receipt again = scene.out(pfs);
    CHECK(action_of(again, "hole") == Action::kept);
    CHECK(calls < 200);
  }
}

TEST_CASE("stage-out: where time may run out, what is small goes first", "[stage][out]") {
  Scene scene;
  scene.options = {.workers = 1, .transfer_size = 64U << 10U, .batch_bytes = 8, .by_rank = true};
  scene.buffer.put("a-large", S_IFREG, std::string(300'000, 'x'));
  scene.buffer.put("b-sparse", S_IFREG, "x");
  REQUIRE(::truncate(scene.buffer.container(scene.buffer.nodes.at("b-sparse").ino).c_str(),
                     300 << 20) == 0);
  scene.buffer.put("c-small", S_IFREG, "");
  std::string order;
  FaultPfs pfs([](auto, const auto&, const auto&) { return 0; });
  pfs.on_naming = [&](const std::string& name) {
    order += name + " ";
  };
  REQUIRE(scene.out(pfs).verdict == Verdict::complete);
  CHECK(order == "c-small b-sparse a-large ");
}

TEST_CASE("stage-out: only what is dirty goes; what is dropped is listed", "[stage][out]") {
  Scene scene;
  write_file(scene.root + "/in/changed", "before");
  write_file(scene.root + "/in/clean", "clean");
  write_file(scene.root + "/scratch/changed", "before");
  scene.resource("in");
  scene.resource("scratch", config::FileClass::temporary);
  scene.config.outputs.push_back(
      {.pattern = "out/*.dat", .file_class = config::FileClass::persistent});
  REQUIRE(scene.in().ok());
  const auto before = snapshot_of(scene.root);
  scene.buffer.overwrite("in/changed", "after");
  scene.buffer.overwrite("scratch/changed", "after");
  scene.buffer.put("out", S_IFDIR);
  scene.buffer.put("out/a.dat", S_IFREG, "result");
  scene.buffer.put("out/a.log", S_IFREG, "log");
  scene.buffer.put("out/pipe", S_IFIFO);
  const Receipt receipt = scene.out();
  CHECK(receipt.verdict == Verdict::complete);
  CHECK(action_of(receipt, "in/changed") == Action::staged_out);
  CHECK(action_of(receipt, "in/clean") == Action::unchanged);
  CHECK(action_of(receipt, "scratch/changed") == Action::dropped);
  CHECK(action_of(receipt, "out/a.dat") == Action::staged_out);
  CHECK(action_of(receipt, "out/a.log") == Action::dropped);
  CHECK(action_of(receipt, "out/pipe") == Action::skipped);
  CHECK(content_of(scene.results + "/in/changed") == "after");
  CHECK(!stdfs::exists(scene.results + "/in/clean"));
  CHECK(!stdfs::exists(scene.results + "/scratch"));
  CHECK(!stdfs::exists(scene.results + "/out/a.log"));
  CHECK((snapshot_of(scene.root) == before));
}

TEST_CASE(
    "stage-out: not in place, no result takes the place of an input, wherever results-dir leads",
    "[stage][out]") {
  Scene scene;
  write_file(scene.root + "/d/same", "input");
  write_file(scene.root + "/d/changed", "input");
  write_file(scene.root + "/d/second", "input");
  write_file(scene.root + "/d/stranger", "no input");
  stdfs::create_symlink("nowhere", scene.root + "/d/link");
  scene.resource("d/same");
  scene.resource("d/changed");
  scene.resource("d/second");
  REQUIRE(scene.in().ok());
  scene.config.results_dir = scene.root + "/d";  // the planner would refuse this if it knew
  write_file(scene.root + "/d/changed", "input, changed since");
  scene.buffer.put("first", S_IFREG, "ours");
  REQUIRE(scene.buffer.link_files("first", std::array<std::string, 1>{"second"}));
  for (const auto* name : {"same", "changed", "stranger", "link", "new"}) {
    scene.buffer.put(name, S_IFREG, "ours");
  }
  const Receipt receipt = scene.out();
  CHECK(receipt.verdict == Verdict::partial);
  for (const auto* name : {"same", "changed", "second"}) {
    INFO(name);
    CHECK(action_of(receipt, name) == Action::conflict);
    CHECK(entry_of(receipt, name)->reason.contains("an input of this job"));
    CHECK(content_of(scene.root + "/d/" + name).starts_with("input"));
  }
  for (const auto* name : {"first", "stranger", "link", "new"}) {
    INFO(name);
    CHECK(action_of(receipt, name) == Action::staged_out);
    CHECK(content_of(scene.root + "/d/" + name) == "ours");
  }
  CHECK(partials_below(scene.root) == 0);
}

TEST_CASE("stage-out: in place, a changed PFS copy is a conflict and stays", "[stage][out]") {
  Scene scene;
  scene.config.results_dir = scene.root;
  scene.config.in_place = true;
  write_file(scene.root + "/mine", "one");
  write_file(scene.root + "/theirs", "one");
  write_file(scene.root + "/gone", "one");
  scene.resource("");
  REQUIRE(scene.in().ok());
  for (const auto* name : {"mine", "theirs", "gone"}) {
    scene.buffer.overwrite(name, "two");
  }
  write_file(scene.root + "/theirs", "three");
  ::unlink((scene.root + "/gone").c_str());
  const Receipt receipt = scene.out();
  CHECK(receipt.verdict == Verdict::partial);
  CHECK(exit_code(receipt) == 3);
  CHECK(action_of(receipt, "mine") == Action::staged_out);
  CHECK(action_of(receipt, "theirs") == Action::conflict);
  CHECK(action_of(receipt, "gone") == Action::staged_out);
  CHECK(content_of(scene.root + "/mine") == "two");
  CHECK(content_of(scene.root + "/theirs") == "three");
  CHECK(scene.buffered("theirs") == "two");
  CHECK(partials_below(scene.root) == 0);
  // The second call recognises the exports of the first. The conflict stays.
  const Receipt again = scene.out();
  CHECK(action_of(again, "mine") == Action::kept);
  CHECK(entry_of(again, "mine")->checksum == hash("two"));
  CHECK(action_of(again, "theirs") == Action::conflict);
}

TEST_CASE("stage-out: in place, a change while the file is written is a conflict too",
          "[stage][out]") {
  Scene scene;
  scene.config.results_dir = scene.root;
  scene.config.in_place = true;
  write_file(scene.root + "/f", "one");
  scene.resource("f");
  REQUIRE(scene.in().ok());
  scene.buffer.overwrite("f", "two");
  FaultPfs pfs([&](auto, const std::string& call, const auto&) {
    if (call == "write") {
      write_file(scene.root + "/f", "three");
    }
    return 0;
  });
  const Receipt receipt = scene.out(pfs);
  CHECK(action_of(receipt, "f") == Action::conflict);
  CHECK(content_of(scene.root + "/f") == "three");
  CHECK(partials_below(scene.root) == 0);
}

TEST_CASE("stage-out: never through a symbolic link that someone put below results-dir",
          "[stage][out]") {
  Scene scene;
  stdfs::create_directory(scene.results);
  stdfs::create_directory(scene.top + "/elsewhere");
  stdfs::create_directory_symlink(scene.top + "/elsewhere", scene.results + "/d");
  write_file(scene.top + "/elsewhere/target", "theirs");
  stdfs::create_symlink(scene.top + "/elsewhere/target", scene.results + "/f");
  stdfs::create_symlink(scene.top + "/elsewhere/target", scene.results + "/f.efs-partial");
  scene.buffer.put("d", S_IFDIR);
  scene.buffer.put("d/x", S_IFREG, "x");
  scene.buffer.put("f", S_IFREG, "ours");
  const Receipt receipt = scene.out();
  CHECK(action_of(receipt, "d") == Action::failed);
  CHECK(action_of(receipt, "d/x") == Action::failed);
  CHECK(action_of(receipt, "f") == Action::staged_out);
  CHECK(content_of(scene.top + "/elsewhere/target") == "theirs");
  CHECK(!stdfs::exists(scene.top + "/elsewhere/x"));
  CHECK(content_of(scene.results + "/f") == "ours");
}

TEST_CASE("stage-out: a result called like another's partial", "[stage][out]") {
  Scene scene;
  scene.buffer.put("x", S_IFREG, "one");
  scene.buffer.put("x.efs-partial", S_IFREG, "two");
  CHECK(scene.out().verdict == Verdict::complete);
  CHECK(content_of(scene.results + "/x") == "one");
  CHECK(content_of(scene.results + "/x.efs-partial") == "two");
  CHECK(partial_name(std::string(250, 'a')).size() <= 255);
  CHECK(partial_name(std::string(250, 'a')) != partial_name(std::string(250, 'b')));
}

TEST_CASE("stage-out: a full PFS stops new files; the rest is listed as not saved",
          "[stage][out]") {
  Scene scene;
  scene.options.workers = 1;
  for (int i = 0; i < 40; ++i) {
    scene.buffer.put("f" + std::to_string(100 + i), S_IFREG, "content");
  }
  int writes = 0;
  const int code = GENERATE(ENOSPC, EDQUOT);
  FaultPfs pfs([&](auto, const std::string& call, const auto&) {
    return call == "write" && ++writes > 10 ? code : 0;
  });
  const Receipt receipt = scene.out(pfs);
  CHECK(receipt.verdict == Verdict::partial);
  CHECK(receipt.totals.staged_out == 10);
  CHECK(receipt.totals.failed == 1);
  CHECK(receipt.totals.not_saved == 29);
  CHECK(partials_below(scene.results) == 0);
  CHECK(describe(receipt).find("still in the buffer") != std::string::npos);
  const Receipt again = scene.out();
  CHECK(again.verdict == Verdict::complete);
  CHECK(again.totals.staged_out == 30);
  CHECK(again.totals.kept == 10);
}

TEST_CASE("stage-out: parallel partials do not take the last space from one another",
          "[stage][out]") {
  constexpr std::uint64_t mib = 1U << 20U;
  constexpr std::uint64_t room = 12 * mib;
  Scene scene;
  const std::vector<std::string> large{"large1", "large2", "large3"};
  for (const auto& name : large) {
    scene.buffer.put(name, S_IFREG, random_text(9 * mib, 1));
  }
  for (int i = 0; i < 40; ++i) {
    scene.buffer.put("small" + std::to_string(100 + i), S_IFREG, "content");
  }
  // A PFS with `room`, on which no file is written before a second large one is begun (there may be
  // no more threads).
  const auto used = [&] {
    std::uint64_t bytes = 0;
    std::error_code gone;
    for (const auto& entry : stdfs::directory_iterator(scene.results)) {
      if (const auto size = entry.file_size(gone); !gone) {
        bytes += size;
      }
    }
    return bytes;
  };
  std::atomic<unsigned> begun{0};
  FaultPfs pfs([&](auto, const std::string& call, const std::string& name) {
    if (call == "open" && name.starts_with("large")) {
      ++begun;
    }
    if (call != "write") {
      return 0;
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (begun < 2 && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return used() + scene.options.transfer_size > room ? ENOSPC : 0;
  });
  const Receipt receipt = scene.out(pfs);
  INFO(describe(receipt));
  CHECK(receipt.verdict == Verdict::partial);
  for (const auto& [path, node] : scene.buffer.nodes) {
    if (path.starts_with("small")) {
      CHECK(action_of(receipt, path) == Action::staged_out);
    }
    if (action_of(receipt, path) == Action::staged_out) {
      CHECK(content_of(scene.results + "/" + path) == scene.buffered(path));
    }
  }
  CHECK(std::ranges::count_if(large, [&](const auto& name) {
          return action_of(receipt, name) == Action::staged_out;
        }) == 1);
  CHECK(partials_below(scene.results) == 0);
  CHECK(scene.out().verdict == Verdict::complete);
}

TEST_CASE("stage-out: a failed syncfs is believed for none of the batch", "[stage][out]") {
  Scene scene;
  for (int i = 0; i < 40; ++i) {
    scene.buffer.put("f" + std::to_string(i), S_IFREG, "content");
  }
  FaultPfs pfs(
      [&](auto, const std::string& call, const auto&) { return call == "syncfs" ? EIO : 0; });
  const Receipt receipt = scene.out(pfs);
  CHECK(receipt.verdict == Verdict::failed);
  CHECK(receipt.totals.failed == 40);
  CHECK(stdfs::is_empty(scene.results));
}

TEST_CASE("stage-out: where syncfs tells nothing, every file is synced by itself", "[stage][out]") {
  Scene scene;
  for (int i = 0; i < 40; ++i) {
    scene.buffer.put("f" + std::to_string(i), S_IFREG, "content");
  }
  std::atomic<int> fsyncs{0};
  FaultPfs pfs([&](auto, const std::string& call, const auto&) {
    return call == "syncfs" ? EIO : (fsyncs += call == "fsync", 0);
  });
  pfs.trust_syncfs = false;
  CHECK(scene.out(pfs).totals.staged_out == 40);
  CHECK(fsyncs >= 41);
}

TEST_CASE("stage-out: what lies on another file system below results-dir is synced by itself",
          "[stage][out]") {
  Scene scene;
  constexpr int many = 40;
  scene.buffer.put("mounted", S_IFDIR, {}, 0755);
  for (int i = 0; i < many; ++i) {
    const std::string directory = "mounted/d" + std::to_string(i);
    scene.buffer.put(directory, S_IFDIR, {}, 0755);
    scene.buffer.put(directory + "/f", S_IFREG, "content");
    scene.buffer.put("f" + std::to_string(i), S_IFREG, "content");
  }
  std::atomic<int> fsyncs{0};
  FaultPfs pfs(
      [&](auto, const std::string& call, const auto&) { return fsyncs += call == "fsync", 0; });
  pfs.on_fstat = [&](PfsRef file, struct stat& attributes) {
    if (posix_pfs().path_of(file).value().starts_with(scene.results + "/mounted")) {
      ++attributes.st_dev;
    }
  };
  CHECK(scene.out(pfs).totals.staged_out >= 2 * many);
  CHECK(fsyncs >= 3 * many);  // each file, its directory with the name, and that with its mode
}

TEST_CASE("stage-out: durable before named, named before reported", "[stage][out]") {
  Scene scene;
  scene.options.workers = 1;
  for (int i = 0; i < 3; ++i) {
    scene.buffer.put("f" + std::to_string(i), S_IFREG, "content");
  }
  std::string order;
  FaultPfs pfs([&](auto, const std::string& call, const auto&) {
    if (call == "write" || call == "fsync" || call == "rename") {
      order += call[0];
    }
    return 0;
  });
  REQUIRE(scene.out(pfs).verdict == Verdict::complete);
  CHECK(order == "fwfwfwfrrrf");  // the first fsync: results-dir was made
}

TEST_CASE("stage-out: a results-dir that is moved away meanwhile is no success", "[stage][out]") {
  for (const bool made_again : {true, false}) {
    Scene scene;
    for (int i = 0; i < 3; ++i) {
      scene.buffer.put("f" + std::to_string(i), S_IFREG, "content");
    }
    const std::string away = scene.results + ".away";
    FaultPfs pfs([&](auto, const std::string& call, const auto&) {
      if (call == "rename" && !std::filesystem::exists(away)) {
        std::filesystem::rename(scene.results, away);
        if (made_again) {
          std::filesystem::create_directory(scene.results);
        }
      }
      return 0;
    });
    const auto receipt = scene.out(pfs);
    CHECK(receipt.verdict == Verdict::failed);
    CHECK(receipt.reason.contains("moved away"));
  }
}

TEST_CASE(
    "stage-out: a directory that is opened to its owner is shut again, also where an exception "
    "ends it",
    "[stage][out]") {
  Scene scene;
  const std::string directory = scene.results + "/d";
  const auto mode = [&] {
    return std::filesystem::status(directory).permissions();
  };
  std::filesystem::create_directories(directory);
  std::filesystem::permissions(directory, std::filesystem::perms{0555});
  for (const bool said : {true, false}) {
    ResultsTree tree(posix_pfs());
    REQUIRE(tree.open(scene.results));
    CHECK(tree.grant_owner_access("d"));
    CHECK(mode() == std::filesystem::perms{0755});
    if (said) {
      CHECK(tree.restore_access());
    }
    CHECK((mode() == std::filesystem::perms{0555}) == said);
  }
  CHECK(mode() == std::filesystem::perms{0555});
}

TEST_CASE("stage-out: cancelled in the middle, what is reported is whole", "[stage][out]") {
  Scene scene;
  for (int i = 0; i < 300; ++i) {
    scene.buffer.put("f" + std::to_string(i), S_IFREG, random_text(2000, 1));
  }
  Progress progress;
  std::atomic<int> writes{0};
  FaultPfs pfs([&](auto, const std::string& call, const auto&) {
    if (call == "write" && ++writes == 60) {
      progress.cancel = true;
    }
    return 0;
  });
  const Receipt receipt = stage_out(scene.config, scene.buffer, pfs, scene.options, progress);
  CHECK(receipt.verdict == Verdict::partial);
  CHECK(receipt.totals.not_saved > 0);
  CHECK(receipt.totals.staged_out + receipt.totals.not_saved == 300);
  CHECK(partials_below(scene.results) == 0);
  for (const auto& entry : receipt.entries) {
    CHECK(stdfs::exists(scene.results + "/" + entry.path) == (entry.action == Action::staged_out));
  }
}

TEST_CASE("stage-out: nothing to do, no results-dir, unreachable results-dir", "[stage][out]") {
  Scene scene;
  CHECK(scene.out().verdict == Verdict::complete);
  CHECK(stdfs::is_directory(scene.results));  // for the receipt
  scene.buffer.put("f", S_IFREG, "x");
  write_file(scene.top + "/file", "x");
  scene.config.results_dir = scene.top + "/file/out";
  const Receipt receipt = scene.out();
  CHECK(exit_code(receipt) == 1);
  CHECK(receipt.reason.find(scene.config.results_dir) != std::string::npos);
  CHECK(action_of(receipt, "f") == Action::not_saved);
}

TEST_CASE(
    "stage-out: where time may run out, what the job file names first is back first, and the rest "
    "is listed",
    "[stage][out]") {
  Scene scene;
  scene.config.outputs = {{.pattern = "z-first"}, {.pattern = "m-second"}, {.pattern = "**"}};
  // a batch each
  scene.options = {.workers = 1, .transfer_size = 64U << 10U, .batch_bytes = 8, .by_rank = true};
  std::set<std::string> first, all;
  for (const char* directory : {"a-third", "m-second", "z-first"}) {
    scene.buffer.put(directory, S_IFDIR);
    for (int i = 0; i < 5; ++i) {
      const std::string path = std::string(directory) + "/" + directory[0] + std::to_string(i);
      scene.buffer.put(path, S_IFREG, path);
      all.insert(path);
      if (path.starts_with("z")) {
        first.insert(path);
      }
    }
  }
  Progress progress;
  std::size_t published = 0;
  FaultPfs pfs([&](auto, const std::string& call, const auto&) {
    if (call == "rename" && ++published == first.size()) {
      progress.cancel = true;
    }
    return 0;
  });
  const Receipt receipt = stage_out(scene.config, scene.buffer, pfs, scene.options, progress);
  CHECK(receipt.verdict == Verdict::partial);
  for (const auto& path : all) {
    INFO(path);
    REQUIRE(entry_of(receipt, path) != nullptr);
    CHECK(action_of(receipt, path) ==
          (first.contains(path) ? Action::staged_out : Action::not_saved));
    CHECK(stdfs::exists(scene.results + "/" + path) == first.contains(path));
  }
  CHECK(receipt.totals.not_saved == all.size() - first.size());
  CHECK(partials_below(scene.results) == 0);
  // And in full: the second before the third.
  std::string order;
  FaultPfs watching([&](auto, const std::string& call, const std::string& object) {
    if (call == "rename") {
      order += object.front();
    }
    return 0;
  });
  Progress again;
  CHECK(stage_out(scene.config, scene.buffer, watching, scene.options, again).verdict ==
        Verdict::complete);
  CHECK(order == "mmmmmaaaaa");
}
