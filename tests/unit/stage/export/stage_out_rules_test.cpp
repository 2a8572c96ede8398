// SPDX-License-Identifier: BSD-3-Clause
// The job file's rules for a stage-out: conflicts and verification. Also hard links, and that no
// file is exported twice.

#include <catch2/catch_test_macros.hpp>

#include <sys/xattr.h>

#include <array>

#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/opened.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

namespace {

/// An input in place that the job and another user have changed.
void make_conflict(Scene& scene) {
  scene.config.results_dir = scene.root;
  scene.config.in_place = true;
  write_file(scene.root + "/f", "one");
  scene.resource("f");
  if (!scene.in().ok()) {
    throw std::runtime_error("the scenario itself fails");
  }
  scene.buffer.overwrite("f", "ours");
  write_file(scene.root + "/f", "theirs");
}

FaultPfs::Hook counting(const std::string& counted, std::atomic<int>& count) {
  return [&count, counted](auto, const std::string& call, const auto&) {
    count += call == counted;
    return 0;
  };
}

}  // namespace

TEST_CASE("on-conflict: overwrite replaces, and says so", "[stage][out][conflict]") {
  Scene scene;
  make_conflict(scene);
  scene.config.on_conflict = config::OnConflict::overwrite;
  const Receipt receipt = scene.out();
  CHECK(receipt.verdict == Verdict::complete);
  CHECK(action_of(receipt, "f") == Action::staged_out);
  CHECK(entry_of(receipt, "f")->reason.find("changed on the PFS") != std::string::npos);
  CHECK(content_of(scene.root + "/f") == "ours");
  CHECK(partials_below(scene.root) == 0);
}

TEST_CASE("on-conflict: keep-both leaves theirs and puts ours beside it, once",
          "[stage][out][conflict]") {
  Scene scene;
  make_conflict(scene);
  scene.config.on_conflict = config::OnConflict::keep_both;
  write_file(scene.root + "/f.efs-job", "kept by an earlier run");
  Receipt receipt = scene.out();
  CHECK(receipt.verdict == Verdict::complete);
  CHECK(entry_of(receipt, "f")->placed_as == "f.efs-job.2");
  CHECK(content_of(scene.root + "/f") == "theirs");
  CHECK(content_of(scene.root + "/f.efs-job") == "kept by an earlier run");
  CHECK(content_of(scene.root + "/f.efs-job.2") == "ours");
  receipt = scene.out();
  CHECK(action_of(receipt, "f") == Action::kept);
  CHECK(entry_of(receipt, "f")->placed_as == "f.efs-job.2");
  CHECK(!stdfs::exists(scene.root + "/f.efs-job.3"));
  CHECK(partials_below(scene.root) == 0);
}

TEST_CASE("on-conflict: keep-both takes no name that another run has given meanwhile",
          "[stage][out][conflict]") {
  Scene scene;
  make_conflict(scene);
  scene.config.on_conflict = config::OnConflict::keep_both;
  FaultPfs pfs([](auto, const auto&, const auto&) { return 0; });
  int named = 0;
  pfs.on_naming = [&](const std::string& name) {
    if (named++ < 2) {
      write_file(scene.root + "/" + name, "another run's, kept as " + name);
    }
  };
  const Receipt receipt = scene.out(pfs);
  CHECK(receipt.verdict == Verdict::complete);
  CHECK(named == 3);
  CHECK(content_of(scene.root + "/f") == "theirs");
  CHECK(content_of(scene.root + "/f.efs-job") == "another run's, kept as f.efs-job");
  CHECK(content_of(scene.root + "/f.efs-job.2") == "another run's, kept as f.efs-job.2");
  CHECK(content_of(scene.root + "/f.efs-job.3") == "ours");
  CHECK(partials_below(scene.root) == 0);
}

TEST_CASE("existing: keep-both takes no name that another run has given meanwhile",
          "[stage][out][existing]") {
  Scene scene;
  scene.config.existing = config::Existing::keep_both;
  write_file(scene.results + "/f", "another's");
  scene.buffer.put("f", S_IFREG, "ours");
  FaultPfs pfs([](auto, const auto&, const auto&) { return 0; });
  int named = 0;
  pfs.on_naming = [&](const std::string& name) {
    if (named++ < 2) {
      write_file(scene.results + "/" + name, "another run's, kept as " + name);
    }
  };
  const Receipt receipt = scene.out(pfs);
  CHECK(receipt.verdict == Verdict::complete);
  CHECK(named == 3);
  CHECK(entry_of(receipt, "f")->placed_as == "f.efs-job.3");
  CHECK_FALSE(entry_of(receipt, "f")->replaced);
  CHECK(content_of(scene.results + "/f") == "another's");
  CHECK(content_of(scene.results + "/f.efs-job") == "another run's, kept as f.efs-job");
  CHECK(content_of(scene.results + "/f.efs-job.2") == "another run's, kept as f.efs-job.2");
  CHECK(content_of(scene.results + "/f.efs-job.3") == "ours");
  CHECK(partials_below(scene.results) == 0);
}

TEST_CASE("on-conflict: keep-both also where the change comes while the file is written",
          "[stage][out][conflict]") {
  Scene scene;
  make_conflict(scene);
  scene.config.on_conflict = config::OnConflict::keep_both;
  const auto there = stat_of(scene.root + "/f");
  scene.buffer.nodes.at("f").origin = fs::Origin{.device = there.st_dev,
                                                 .inode = there.st_ino,
                                                 .size = static_cast<std::uint64_t>(there.st_size),
                                                 .mtime = to_ns(there.st_mtim),
                                                 .ctime = to_ns(there.st_ctim)};
  FaultPfs pfs([&](auto, const std::string& call, const auto&) {
    if (call == "write") {
      write_file(scene.root + "/f", "theirs, later");
    }
    return 0;
  });
  const Receipt receipt = scene.out(pfs);
  CHECK(receipt.verdict == Verdict::complete);
  CHECK(content_of(scene.root + "/f") == "theirs, later");
  CHECK(content_of(scene.root + "/f.efs-job") == "ours");
  CHECK(partials_below(scene.root) == 0);
}

TEST_CASE("stage-out: what an interrupted one brought out is kept, not moved again",
          "[stage][out][resume]") {
  Scene scene;
  for (int i = 0; i < 30; ++i) {
    scene.buffer.put("f" + std::to_string(i), S_IFREG, random_text(3000, static_cast<unsigned>(i)));
  }
  std::atomic<int> writes{0};
  FaultPfs failing([&](auto, const std::string& call, const auto&) {
    return call == "write" && ++writes > 20 ? EIO : 0;
  });
  const Receipt first = scene.out(failing);
  REQUIRE(first.totals.staged_out == 20);
  std::atomic<int> again{0};
  FaultPfs pfs(counting("write", again));
  const Receipt second = scene.out(pfs);
  CHECK(second.verdict == Verdict::complete);
  CHECK(second.totals.kept == 20);
  CHECK(second.totals.staged_out == 10);
  CHECK(again == 10);
  for (const auto& entry : second.entries) {
    CHECK(entry.checksum == hash(scene.buffered(entry.path)));
  }
}

TEST_CASE("stage-out: other content of the same size and time is not kept",
          "[stage][out][resume]") {
  Scene scene;
  scene.buffer.put("f", S_IFREG, "ours");
  write_file(scene.results + "/f", "them");
  ::chmod((scene.results + "/f").c_str(), 0644);
  set_mtime(scene.results + "/f", scene.buffer.nodes.at("f").attributes.mtime);
  // The container's own times count.
  set_mtime(scene.buffer.container(scene.buffer.nodes.at("f").ino),
            scene.buffer.nodes.at("f").attributes.mtime);
  const Receipt receipt = scene.out();
  CHECK(action_of(receipt, "f") == Action::staged_out);
  CHECK(content_of(scene.results + "/f") == "ours");
}

TEST_CASE("verify: read-back finds what the PFS does not hold", "[stage][out][verify]") {
  Scene scene;
  scene.options.workers = 1;
  scene.config.verify = config::Verify::read_back;
  scene.buffer.put("good", S_IFREG, "content");
  scene.buffer.put("rotten", S_IFREG, "content");
  // The PFS loses a byte between the sync and the read.
  FaultPfs pfs([&](auto, const std::string& call, const std::string& object) {
    if (call == "open" && object == "rotten.efs-partial" &&
        stdfs::exists(scene.results + "/" + object)) {
      const UniqueFd fd(::open((scene.results + "/" + object).c_str(), O_WRONLY | O_CLOEXEC));
      if (::pwrite(fd.get(), "C", 1, 0) != 1) {
        return EIO;
      }
    }
    return 0;
  });
  const Receipt receipt = scene.out(pfs);
  CHECK(receipt.read_back);
  CHECK(action_of(receipt, "good") == Action::staged_out);
  CHECK(action_of(receipt, "rotten") == Action::failed);
  CHECK(entry_of(receipt, "rotten")->reason.find("other data") != std::string::npos);
  CHECK(!stdfs::exists(scene.results + "/rotten"));
  CHECK(partials_below(scene.results) == 0);
  CHECK(scene.out().totals.staged_out == 1);
}

TEST_CASE("verify: read-back reads what was synced, and past the cache", "[stage][out][verify]") {
  Scene scene;
  scene.options.workers = 1;
  scene.config.verify = config::Verify::read_back;
  scene.buffer.put("f", S_IFREG, "content");
  std::vector<std::string> order;
  FaultPfs pfs([&](auto, const std::string& call, const std::string& object) {
    const bool of_the_file = call == "fsync" || call == "syncfs" || call == "read" ||
                             (call == "rename" && object == "f");
    if (of_the_file && !order.empty() && order.back() != call) {
      order.push_back(call);
    }
    if (call == "write" && order.empty()) {
      order.push_back(call);
    }
    return 0;
  });
  pfs.on_drop_cache = [&] {
    order.emplace_back("drop_cache");
  };
  CHECK(scene.out(pfs).verdict == Verdict::complete);
  REQUIRE(order.size() > 5);
  order.resize(5);
  if (order[1] == "syncfs") {
    order[1] = "fsync";  // of the one file, or of all
  }
  CHECK(order == std::vector<std::string>{"write", "fsync", "drop_cache", "read", "rename"});
}

TEST_CASE("stage-out: several names of one file stay one file", "[stage][out][links]") {
  Scene scene;
  scene.buffer.put("a", S_IFREG, "content");
  scene.buffer.put("d", S_IFDIR, {}, 0755);
  scene.buffer.link("a", "d/b");
  scene.buffer.link("a", "z");
  write_file(scene.results + "/z", "old");
  Receipt receipt = scene.out();
  CHECK(receipt.verdict == Verdict::complete);
  CHECK(receipt.totals.staged_out == 4);
  CHECK(receipt.totals.bytes_staged_out == 7);
  const auto inode = stat_of(scene.results + "/a").st_ino;
  CHECK(stat_of(scene.results + "/d/b").st_ino == inode);
  CHECK(stat_of(scene.results + "/z").st_ino == inode);
  CHECK(stat_of(scene.results + "/a").st_nlink == 3);
  CHECK(partials_below(scene.results) == 0);
  // Again, with nothing to do.
  receipt = scene.out();
  CHECK(receipt.verdict == Verdict::complete);
  CHECK(receipt.totals.kept == 3);
  CHECK(stat_of(scene.results + "/a").st_nlink == 3);
  CHECK(partials_below(scene.results) == 0);
}

TEST_CASE("stage-out: a PFS without links gets a file for each name", "[stage][out][links]") {
  Scene scene;
  scene.buffer.put("a", S_IFREG, "content");
  scene.buffer.link("a", "b");
  for (const int code : {EPERM, EOPNOTSUPP}) {
    stdfs::remove_all(scene.results);
    FaultPfs pfs(
        [&](auto, const std::string& call, const auto&) { return call == "link" ? code : 0; });
    const Receipt receipt = scene.out(pfs);
    CHECK(receipt.verdict == Verdict::complete);
    CHECK(content_of(scene.results + "/b") == "content");
    CHECK(stat_of(scene.results + "/b").st_nlink == 1);
    CHECK(partials_below(scene.results) == 0);
  }
  stdfs::remove_all(scene.results);
  FaultPfs broken(
      [&](auto, const std::string& call, const auto&) { return call == "link" ? EIO : 0; });
  const Receipt receipt = scene.out(broken);
  CHECK(action_of(receipt, "a") == Action::staged_out);
  CHECK(action_of(receipt, "b") == Action::failed);
  CHECK(partials_below(scene.results) == 0);
}

TEST_CASE("staging: extended attributes go both ways; what the PFS does not take is told",
          "[stage][xattr]") {
  Scene scene;
  write_file(scene.root + "/f", "content");
  if (::setxattr((scene.root + "/f").c_str(), "user.colour", "green", 5, 0) != 0) {
    SKIP("no user.* attributes here");
  }
  scene.resource("f");
  REQUIRE(scene.in().ok());
  CHECK(scene.buffer.nodes.at("f").xattrs.at("user.colour") == "green");
  scene.buffer.overwrite("f", "changed");
  scene.buffer.nodes.at("f").xattrs["user.shape"] = std::string("a\0b", 3);
  Receipt receipt = scene.out();
  REQUIRE(action_of(receipt, "f") == Action::staged_out);
  CHECK(entry_of(receipt, "f")->reason.empty());
  const auto there = posix_pfs().xattrs(opened(scene.results + "/f", O_RDONLY)).value();
  CHECK(there == std::map<std::string, std::string>{{"user.colour", "green"},
                                                    {"user.shape", std::string("a\0b", 3)}});

  stdfs::remove_all(scene.results);
  FaultPfs refusing([](auto, const std::string& call, const std::string& object) {
    return call == "setxattr" && object == "user.shape" ? EOPNOTSUPP : 0;
  });
  receipt = scene.out(refusing);
  CHECK(action_of(receipt, "f") == Action::staged_out);
  CHECK(entry_of(receipt, "f")->reason.find("user.shape") != std::string::npos);
  stdfs::remove_all(scene.results);
  FaultPfs broken(
      [](auto, const std::string& call, const auto&) { return call == "setxattr" ? EIO : 0; });
  receipt = scene.out(broken);
  CHECK(action_of(receipt, "f") == Action::failed);
  CHECK(partials_below(scene.results) == 0);
}

TEST_CASE("in place, whom only the directory's default ACL names cannot read a partial either",
          "[stage][out][acl]") {
  Scene scene;
  scene.config.results_dir = scene.root;
  scene.config.in_place = true;
  stdfs::create_directories(scene.root + "/d");
  // Version 2; rwx for the owner, r for user 12345, r for the group, mask r, nothing for others.
  const std::array<std::uint16_t, 22> acl{2,      0,      1,    7, 0xffff, 0xffff, 2,    4,
                                          12345,  0,      4,    4, 0xffff, 0xffff, 0x10, 4,
                                          0xffff, 0xffff, 0x20, 0, 0xffff, 0xffff};
  if (::setxattr((scene.root + "/d").c_str(), "system.posix_acl_default", acl.data(), sizeof acl,
                 0) != 0) {
    SKIP("no ACLs here");
  }
  scene.buffer.put("d", S_IFDIR, {}, 0755);
  scene.buffer.put("d/new", S_IFREG, "new", 0640);
  mode_t mode = 0;
  FaultPfs pfs([&](auto, const std::string& call, const auto&) {
    if (call == "write") {
      mode = stat_of(scene.root + "/d/new.efs-partial").st_mode;
    }
    return 0;
  });
  CHECK(action_of(scene.out(pfs), "d/new") == Action::staged_out);
  CHECK((mode & 07777) == 0600);
  CHECK((stat_of(scene.root + "/d/new").st_mode & 07777) == 0640);
  CHECK(::getxattr((scene.root + "/d/new").c_str(), "system.posix_acl_access", nullptr, 0) == -1);
}

TEST_CASE("stage-out: attributes that came after the content was out are brought out",
          "[stage][out][resume]") {
  Scene scene;
  for (const auto* name : {"attribute", "owner", "same"}) {
    scene.buffer.put(name, S_IFREG, name);
  }
  REQUIRE(scene.out().verdict == Verdict::complete);
  scene.buffer.nodes.at("attribute").xattrs["user.colour"] = "green";
  if (::geteuid() == 0) {
    scene.buffer.nodes.at("owner").attributes.uid = 4711;
  }
  const Receipt receipt = scene.out();
  CHECK(action_of(receipt, "same") == Action::kept);
  CHECK(action_of(receipt, "attribute") == Action::staged_out);
  const auto attributes = posix_pfs().xattrs(opened(scene.results + "/attribute", O_RDONLY));
  CHECK(attributes.value().contains("user.colour"));
  if (::geteuid() == 0) {
    CHECK(stat_of(scene.results + "/owner").st_uid == 4711);
  }
}

TEST_CASE("stage-out: on a PFS that keeps whole seconds one's own results are known",
          "[stage][out][conflict]") {
  Scene scene;
  make_conflict(scene);
  auto& node = scene.buffer.nodes.at("f");
  write_file(scene.root + "/f", "ours");
  ::chmod((scene.root + "/f").c_str(), node.attributes.mode);
  set_mtime(scene.root + "/f", node.attributes.mtime / 1'000'000'000 * 1'000'000'000);
  CHECK(action_of(scene.out(), "f") == Action::kept);
  set_mtime(scene.root + "/f", node.attributes.mtime + 1);
  CHECK(action_of(scene.out(), "f") == Action::conflict);
}

TEST_CASE(
    "stage-out: a symbolic link that was staged in may be replaced while it leads where it led",
    "[stage][out][conflict]") {
  Scene scene;
  scene.config.results_dir = scene.root;
  scene.config.in_place = true;
  for (const auto* name : {"touched", "theirs"}) {
    stdfs::create_symlink("target", scene.root + "/" + name);
  }
  scene.resource("");
  REQUIRE(scene.in().ok());
  for (const auto* name : {"touched", "theirs"}) {
    scene.buffer.nodes.at(name).dirty = true;
    scene.buffer.nodes.at(name).origin = fs::Origin{};
    scene.buffer.nodes.at(name).attributes.mtime = 1'600'000'000'000'000'000;
  }
  stdfs::remove(scene.root + "/theirs");
  stdfs::create_symlink("elsewhere", scene.root + "/theirs");
  const Receipt receipt = scene.out();
  CHECK(action_of(receipt, "touched") == Action::staged_out);
  CHECK(to_ns(stat_of(scene.root + "/touched").st_mtim) == 1'600'000'000'000'000'000);
  CHECK(action_of(receipt, "theirs") == Action::conflict);
}

TEST_CASE("on-conflict: keep-both keeps both of two results whose long names are alike",
          "[stage][out][conflict]") {
  Scene scene;
  scene.options.workers = 1;
  scene.config.results_dir = scene.root;
  scene.config.in_place = true;
  scene.config.on_conflict = config::OnConflict::keep_both;
  const std::string a = std::string(250, 'm') + "a", b = std::string(250, 'm') + "b";
  for (const auto& name : {a, b}) {
    write_file(scene.root + "/" + name, "one");
  }
  scene.resource("");
  REQUIRE(scene.in().ok());
  for (const auto& name : {a, b}) {
    scene.buffer.overwrite(name, "ours, of " + name.substr(250));
    write_file(scene.root + "/" + name, "theirs");
  }
  const Receipt receipt = scene.out();
  CHECK(receipt.verdict == Verdict::complete);
  CHECK(content_of(scene.root + "/" + entry_of(receipt, a)->placed_as) == "ours, of a");
  CHECK(content_of(scene.root + "/" + entry_of(receipt, b)->placed_as) == "ours, of b");
  const auto before = snapshot_of(scene.root);
  CHECK(scene.out().totals.kept == 2);
  CHECK(snapshot_of(scene.root) == before);
}

TEST_CASE(
    "stage-out: a result with the name of the receipt, or of another file of efs's in results-dir, "
    "fails, and says so",
    "[stage][out]") {
  Scene scene;
  scene.options.receipt_name = "efs-receipt-job.json";
  scene.config.status_file = scene.results + "/d/status.json";
  scene.buffer.put("efs-receipt-job.json", S_IFREG, "precious");
  scene.buffer.put("d", S_IFDIR);
  scene.buffer.put("d/status.json", S_IFREG, "precious");
  scene.buffer.put("other", S_IFREG, "other");
  const Receipt receipt = scene.out();
  CHECK(action_of(receipt, "efs-receipt-job.json") == Action::failed);
  CHECK(entry_of(receipt, "efs-receipt-job.json")->reason.find("receipt") != std::string::npos);
  CHECK(action_of(receipt, "other") == Action::staged_out);
  CHECK(!stdfs::exists(scene.results + "/efs-receipt-job.json"));
  CHECK(action_of(receipt, "d/status.json") == Action::failed);
  CHECK(!stdfs::exists(scene.results + "/d/status.json"));
}

TEST_CASE("on-conflict: keep-both does not take the name of another result",
          "[stage][out][conflict]") {
  Scene scene;
  make_conflict(scene);
  scene.config.on_conflict = config::OnConflict::keep_both;
  scene.buffer.put("f.efs-job", S_IFREG, "a result of its own");
  CHECK(scene.out().verdict == Verdict::complete);
  CHECK(content_of(scene.root + "/f.efs-job") == "a result of its own");
  CHECK(content_of(scene.root + "/f.efs-job.2") == "ours");
}

TEST_CASE("as: what is copied is made durable in the buffer before the copy has its name",
          "[stage][out]") {
  Scene scene;
  scene.config.outputs = {{.pattern = "x", .as = "final"}};
  scene.buffer.put("x", S_IFREG, "result");
  std::set<std::uint64_t> secured;
  FaultPfs pfs([](auto, const auto&, const auto&) { return 0; });
  pfs.on_naming = [&](const std::string& name) {
    if (name == "final") {
      secured = scene.buffer.secured;
    }
  };
  REQUIRE(scene.out(pfs).verdict == Verdict::complete);
  CHECK(secured.contains(scene.buffer.nodes.at("x").ino));
}

TEST_CASE("as: a result has another name in results-dir, and its own in the receipt",
          "[stage][out]") {
  Scene scene;
  scene.config.outputs = {{.pattern = "sub/r.h5", .as = "final.h5"},
                          {.pattern = "out", .as = "run12"},
                          {.pattern = "*.log"},
                          {.pattern = "**", .file_class = config::FileClass::temporary}};
  scene.buffer.put("sub", S_IFDIR);
  scene.buffer.put("sub/r.h5", S_IFREG, "result", 0640);
  scene.buffer.put("sub/r.tmp", S_IFREG, "dropped");
  scene.buffer.put("out", S_IFDIR, {}, 0750);
  scene.buffer.put("out/a", S_IFREG, "a");
  scene.buffer.put("out/deep", S_IFDIR);
  scene.buffer.put("out/deep/link", S_IFLNK, "../a");
  scene.buffer.put("x.log", S_IFREG, "log");
  for (const auto action : {Action::staged_out, Action::kept}) {
    const Receipt receipt = scene.out();
    REQUIRE(receipt.verdict == Verdict::complete);
    CHECK(action_of(receipt, "sub/r.h5") == action);
    CHECK(entry_of(receipt, "sub/r.h5")->placed_as == "final.h5");
    CHECK(entry_of(receipt, "out/a")->placed_as == "run12/a");
    CHECK(entry_of(receipt, "x.log")->placed_as.empty());
    CHECK(entry_of(receipt, "final.h5") == nullptr);
    CHECK(action_of(receipt, "sub/r.tmp") == Action::dropped);
    CHECK(content_of(scene.results + "/final.h5") == "result");
    CHECK((stat_of(scene.results + "/final.h5").st_mode & 07777U) == 0640);
    CHECK(content_of(scene.results + "/run12/a") == "a");
    CHECK((stat_of(scene.results + "/run12").st_mode & 07777U) == 0750);
    CHECK(stdfs::read_symlink(scene.results + "/run12/deep/link") == "../a");
    CHECK(content_of(scene.results + "/x.log") == "log");
    CHECK_FALSE(stdfs::exists(scene.results + "/sub"));
    CHECK_FALSE(stdfs::exists(scene.results + "/out"));
  }
}

TEST_CASE("as: two results that change their names with one another", "[stage][out]") {
  Scene scene;
  scene.config.outputs = {{.pattern = "a", .as = "b"}, {.pattern = "b", .as = "a"}};
  scene.buffer.put("a", S_IFREG, "of a");
  scene.buffer.put("b", S_IFREG, "of b");
  CHECK(scene.out().verdict == Verdict::complete);
  CHECK(content_of(scene.results + "/a") == "of b");
  CHECK(content_of(scene.results + "/b") == "of a");
}

TEST_CASE(
    "as: a result whose name something else in the buffer has is not brought out, nor that lost",
    "[stage][out]") {
  for (const bool temporary : {false, true}) {
    Scene scene;
    scene.config.outputs = {{.pattern = "out", .as = "final"}};
    if (temporary) {
      scene.config.outputs.push_back(
          {.pattern = "final", .file_class = config::FileClass::temporary});
    } else {
      scene.config.outputs.push_back({.pattern = "final"});
    }
    scene.buffer.put("out", S_IFDIR);
    scene.buffer.put("out/a", S_IFREG, "of out");
    scene.buffer.put("final", S_IFREG, "of final");
    const Receipt receipt = scene.out();
    CHECK(exit_code(receipt) == 3);
    CHECK(action_of(receipt, "out/a") == Action::conflict);
    CHECK(entry_of(receipt, "out/a")
              ->reason.contains("it is to be final/a in results-dir, and the buffer has something "
                                "else of that name"));
    CHECK(action_of(receipt, "final") == (temporary ? Action::dropped : Action::staged_out));
    CHECK(stdfs::exists(scene.results + "/final") != temporary);
    CHECK_FALSE(stdfs::exists(scene.results + "/out/a"));
  }
}

TEST_CASE(
    "as: an input under another name goes whether the job has changed it or not, and stays where "
    "it came from",
    "[stage][out]") {
  for (const bool in_place : {false, true}) {
    for (const bool changed : {false, true}) {
      Scene scene;
      scene.config.in_place = in_place;
      if (in_place) {
        scene.config.results_dir = scene.root;
      }
      write_file(scene.root + "/a", "before");
      if (in_place) {
        write_file(scene.root + "/b", "of a run before");
      }
      scene.resource("a");
      scene.config.outputs = {{.pattern = "a", .holds_inputs = true, .as = "b"}};
      REQUIRE(scene.in().ok());
      if (changed) {
        scene.buffer.overwrite("a", "after");
      }
      const Receipt receipt = scene.out();
      CHECK(receipt.verdict == Verdict::complete);
      CHECK(action_of(receipt, "a") == Action::staged_out);
      CHECK(content_of(scene.config.results_dir + "/b") == (changed ? "after" : "before"));
      CHECK(content_of(scene.root + "/a") == "before");
    }
  }
}

TEST_CASE("as: no input takes the place of another, by whatever name", "[stage][out]") {
  Scene scene;
  scene.config.in_place = true;
  scene.config.results_dir = scene.root;
  write_file(scene.root + "/a", "of a");
  write_file(scene.root + "/b", "of b");
  scene.resource("a");
  scene.resource("b");
  scene.config.outputs = {{.pattern = "new", .as = "b"}};
  REQUIRE(scene.in().ok());
  scene.buffer.put("new", S_IFREG, "new");
  const Receipt receipt = scene.out();
  CHECK(action_of(receipt, "new") == Action::conflict);
  CHECK(content_of(scene.root + "/b") == "of b");
}
