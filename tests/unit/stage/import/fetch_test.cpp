// SPDX-License-Identifier: BSD-3-Clause
// The fetch of a content that a stage-in has left on the PFS: it is the planned version, whole, or
// the file is as remote as before.
#include "stage/import/fetch.hpp"

#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "stage/buffer.hpp"
#include "stage/import/stage_in.hpp"
#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/live_scene.hpp"

namespace efs::fetch_test {

using namespace efs::stage;
using stage::test::FaultPfs;
using stage::test::LiveScene;
using stage::test::NthCall;
using Kind = FetchOutcome::Kind;

namespace {

struct FetchScene : LiveScene {
  explicit FetchScene(config::StageWhen when = config::StageWhen::on_access) {
    config.resources = {{.path = config.root_dir + "/d", .stage = when}};
  }

  StageReport stage(PfsIo& pfs = posix_pfs()) {
    StagingBuffer sink(*buffer.staging);
    Progress of_stage_in;
    plan = *make_plan(config, posix_pfs());
    return stage_in(plan, sink, pfs, options, of_stage_in);
  }

  FetchOutcome fetch(const std::string& path, PfsIo& pfs = posix_pfs()) {
    Scratch scratch(options.transfer_size);
    return fetch_content(buffer.ino(path), {.staging = *buffer.staging,
                                            .pfs = pfs,
                                            .root_dir = config.root_dir,
                                            .scratch = scratch,
                                            .progress = progress});
  }

  bool is_remote(const std::string& path) const {
    return buffer.staging->find(path)->content.remote;
  }

  std::string source(const std::string& path) const { return config.root_dir + "/" + path; }

  Plan plan;
  Progress progress;
};

}  // namespace

TEST_CASE("a stage-in leaves contents on the PFS, and names have all the rest", "[fetch]") {
  FetchScene s(GENERATE(config::StageWhen::on_access, config::StageWhen::background));
  ::chmod(s.source("d/a").c_str(), 0640);
  const bool has_xattrs = ::setxattr(s.source("d/a").c_str(), "user.a", "b", 1, 0) == 0;
  s.put("d/empty", "");
  ::link(s.source("d/b").c_str(), s.source("d/c").c_str());
  FaultPfs pfs(NthCall{});
  const auto report = s.stage(pfs);
  REQUIRE(report.ok());
  CHECK(report.files == 4);
  CHECK(report.bytes == 70000);  // of the file with two names
  CHECK(s.plan.remote_files == 1);
  CHECK(s.plan.remote_bytes == 3000);
  CHECK(s.is_remote("d/a"));
  CHECK_FALSE(s.is_remote("d/b"));
  CHECK_FALSE(s.is_remote("d/empty"));
  const auto item = s.buffer.staging->find("d/a");
  CHECK(item->attributes.st_size == 3000);
  CHECK((item->attributes.st_mode & 07777) == 0640);
  struct stat st{};
  ::stat(s.source("d/a").c_str(), &st);
  CHECK(FileTime(item->attributes.st_mtim) == FileTime(st.st_mtim));
  CHECK(item->xattrs.contains("user.a") == has_xattrs);
  const bool background = s.plan.entries.front().stage == config::StageWhen::background;
  CHECK(s.buffer.staging->remote_files(true).size() == (background ? 1 : 0));
  const auto outcome = s.fetch("d/a");
  CHECK(outcome.kind == Kind::here);
  CHECK(outcome.bytes == 3000);
  CHECK(s.buffer.read("d/a") == std::string(3000, 'a'));
  CHECK_FALSE(s.is_remote("d/a"));
  CHECK(s.fetch("d/a").kind == Kind::here);
}

TEST_CASE("each failed call of a fetch leaves the file remote, and the next fetch is whole",
          "[fetch]") {
  for (const char* function : {"open", "open_beneath", "fstat", "read"}) {
    for (std::uint64_t number = 0; number < 2; ++number) {
      FetchScene s;
      REQUIRE(s.stage().ok());
      FaultPfs pfs(NthCall{.function = function, .number = number, .code = EIO});
      const auto outcome = s.fetch("d/a", pfs);
      INFO(function << " " << number << " " << outcome.error.what);
      const bool met = pfs.calls_of().contains(function) && pfs.calls_of().at(function) > number;
      CHECK((outcome.kind == Kind::failed) == met);
      CHECK(s.is_remote("d/a") == met);
      if (met) {
        CHECK_FALSE(outcome.error.what.empty());
      }
      CHECK(s.fetch("d/a").kind == Kind::here);
      CHECK(s.buffer.read("d/a") == std::string(3000, 'a'));
    }
  }
}

TEST_CASE("another version on the PFS does not become the content", "[fetch]") {
  FetchScene s;
  REQUIRE(s.stage().ok());
  const auto before = s.buffer.staging->find("d/a");
  SECTION("before the fetch") {
    s.put("d/a", "another");
    const auto outcome = s.fetch("d/a");
    CHECK(outcome.kind == Kind::failed);
    CHECK(outcome.error.what.contains("has changed on the PFS"));
  }
  SECTION("of the same size and time") {
    ::unlink(s.source("d/a").c_str());
    s.put("d/a.new", std::string(3000, 'x'));
    const timespec times[2] = {before->attributes.st_atim, before->attributes.st_mtim};
    ::utimensat(AT_FDCWD, s.source("d/a.new").c_str(), times, 0);
    ::rename(s.source("d/a.new").c_str(), s.source("d/a").c_str());
    CHECK(s.fetch("d/a").kind == Kind::failed);
  }
  SECTION("during the fetch") {
    FaultPfs pfs([&](auto, const std::string& call, const auto&) {
      if (call == "read") {
        s.put("d/a", std::string(3000, 'x'));
        const timespec times[2] = {{.tv_sec = 1, .tv_nsec = 0}, {.tv_sec = 1, .tv_nsec = 0}};
        ::utimensat(AT_FDCWD, s.source("d/a").c_str(), times, 0);
      }
      return 0;
    });
    CHECK(s.fetch("d/a", pfs).kind == Kind::failed);
  }
  CHECK(s.is_remote("d/a"));
  CHECK(s.buffer.staging->find("d/a")->attributes.st_size == 3000);
}

TEST_CASE("another version that the resource accepts becomes the content", "[fetch]") {
  FetchScene s;
  s.config.resources.front().changed = config::Changed::accept;
  REQUIRE(s.stage().ok());
  CHECK(s.buffer.staging->find("d/a")->content.accepts_change);
  std::string expected = "another";
  SECTION("before the fetch") {
    s.put("d/a", expected);
    const auto outcome = s.fetch("d/a");
    CHECK(outcome.kind == Kind::here);
    CHECK((outcome.has_changed && outcome.bytes == expected.size()));
  }
  SECTION("another file") {
    ::unlink(s.source("d/a").c_str());
    expected = std::string(5000, 'x');
    s.put("d/a", expected);
    CHECK(s.fetch("d/a").has_changed);
  }
  SECTION("during the fetch") {
    bool is_first = true;
    expected = std::string(2000, 'x');
    FaultPfs pfs([&](auto, const std::string& call, const auto&) {
      if (call == "read" && std::exchange(is_first, false)) {
        s.put("d/a", expected);
        const timespec times[2] = {{.tv_sec = 1, .tv_nsec = 0}, {.tv_sec = 1, .tv_nsec = 0}};
        ::utimensat(AT_FDCWD, s.source("d/a").c_str(), times, 0);
      }
      return 0;
    });
    auto outcome = s.fetch("d/a", pfs);
    if (outcome.kind == Kind::failed) {  // the file had become shorter than what was to be read
      outcome = s.fetch("d/a");
    }
    CHECK(outcome.has_changed);
  }
  SECTION("none") {
    expected = std::string(3000, 'a');
    CHECK_FALSE(s.fetch("d/a").has_changed);
  }
  const auto item = s.buffer.staging->find("d/a");
  CHECK((!item->content.remote && !item->pfs.dirty));
  CHECK(s.buffer.read("d/a") == expected);
  struct stat st{};
  ::stat(s.source("d/a").c_str(), &st);
  CHECK(item->attributes.st_size == st.st_size);
  CHECK(FileTime(item->attributes.st_mtim) == FileTime(st.st_mtim));
  CHECK(item->pfs.origin->inode == st.st_ino);
}

TEST_CASE("a directory in the place of a file is accepted by none", "[fetch]") {
  FetchScene s;
  s.config.resources.front().changed = config::Changed::accept;
  REQUIRE(s.stage().ok());
  ::unlink(s.source("d/a").c_str());
  ::mkdir(s.source("d/a").c_str(), 0700);
  CHECK(s.fetch("d/a").kind == Kind::failed);
  CHECK(s.is_remote("d/a"));
}

TEST_CASE("a chmod on the PFS is no other version", "[fetch]") {
  FetchScene s;
  REQUIRE(s.stage().ok());
  ::chmod(s.source("d/a").c_str(), 0400);
  CHECK(s.fetch("d/a").kind == Kind::here);
}

TEST_CASE("a content that changes during the fetch, with the times of before, is not mixed",
          "[fetch]") {
  FetchScene s;
  REQUIRE(s.stage().ok());
  struct stat st{};
  ::stat(s.source("d/b").c_str(), &st);
  const bool for_ever = GENERATE(false, true);
  int reads = 0, changes = 0;
  FaultPfs pfs([&](auto, const std::string& call, const auto&) {
    if (call == "read" && (++reads == 3 || for_ever)) {
      const auto letter = static_cast<char>('A' + ++changes % 26);
      const UniqueFd file(::open(s.source("d/b").c_str(), O_WRONLY));
      const std::string text(static_cast<std::size_t>(st.st_size), letter);
      CHECK(::write(file.get(), text.data(), text.size()) == st.st_size);
      const timespec times[2] = {st.st_atim, st.st_mtim};
      ::futimens(file.get(), times);
    }
    return 0;
  });
  pfs.most = 4096;
  const auto outcome = s.fetch("d/b", pfs);
  if (for_ever) {
    CHECK(outcome.kind == Kind::failed);
    CHECK(outcome.error.what == "it is being changed on the PFS");
    CHECK(s.is_remote("d/b"));
  } else {
    CHECK(outcome.kind == Kind::here);
    CHECK(s.buffer.read("d/b") == std::string(static_cast<std::size_t>(st.st_size), 'B'));
  }
}

TEST_CASE("a fetch ends when its file is removed, or all are cancelled", "[fetch]") {
  FetchScene s;
  REQUIRE(s.stage().ok());
  const auto ino = s.buffer.ino("d/b"), directory = s.buffer.ino("d");
  const bool removes = GENERATE(false, true);
  bool is_removed = false;
  FaultPfs pfs([&](auto, const std::string& call, const auto&) {
    if (call == "read" && removes) {
      is_removed = is_removed || s.buffer.filesystem->unlink({}, directory, "b").has_value();
    } else if (call == "read") {
      s.progress.cancel = true;
    }
    return 0;
  });
  pfs.most = 4096;
  CHECK(s.fetch("d/b", pfs).kind == (removes ? Kind::gone : Kind::cancelled));
  CHECK(is_removed == removes);
  if (!removes) {
    CHECK(s.buffer.filesystem->is_remote(ino));
    s.progress.cancel = false;
    CHECK(s.fetch("d/b").kind == Kind::here);
  }
}

TEST_CASE("a load brings the content of a remote file, also a load of a part", "[fetch]") {
  FetchScene s;
  REQUIRE(s.stage().ok());
  LoadRequest request{.names = {"d/a"}};
  if (GENERATE(false, true)) {
    request.part = {.offset = 10, .length = 20};
  }
  const auto report = s.in(request);
  REQUIRE(report.ok());
  CHECK_FALSE(s.is_remote("d/a"));
  CHECK(s.buffer.staging->find("d/a")->pfs.parts.empty());
  CHECK(s.buffer.read("d/a") == std::string(3000, 'a'));
  CHECK(s.leaks_nothing());
}

TEST_CASE("an export writes, replaces and removes nothing because of a remote file", "[fetch]") {
  FetchScene s;
  if (GENERATE(false, true)) {
    s.config.results_dir = s.config.root_dir;
    s.config.in_place = true;
  }
  s.config.resources.front().file_class = config::FileClass::persistent;
  s.config.outputs = {{.pattern = "**", .holds_inputs = true}};
  REQUIRE(s.stage().ok());
  FaultPfs pfs([](auto, const std::string& call, const std::string& object) {
    const bool changes = call == "write" || call == "rename" || call == "unlink" ||
                         call == "truncate" || call == "link";
    CHECK_FALSE((changes && object.contains("b")));
    return 0;
  });
  const auto receipt = s.back({.names = {""}}, pfs);
  for (const auto& entry : receipt.entries) {
    INFO(entry.path << ": " << entry.reason);
    if (entry.path == "d/a" || entry.path == "d/b") {
      CHECK(entry.action == Action::unchanged);
      CHECK(entry.reason.contains("not here"));
    }
  }
  CHECK(efs::test::file_text(s.source("d/a")) == std::string(3000, 'a'));
  CHECK(s.is_remote("d/a"));
}

}  // namespace efs::fetch_test
