// SPDX-License-Identifier: BSD-3-Clause
// Directories that go whole or not at all while programs run (UnloadRequest::sets).

#include <fcntl.h>

#include <catch2/catch_test_macros.hpp>

#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/live_scene.hpp"

namespace efs::stage {
namespace {

const std::vector<std::string> members{"set/a", "set/b", "set/deep/c", "set/deep/d/e", "set/l"};

struct SetScene : test::LiveScene {
  SetScene() {
    options.workers = 1;
    options.partial_tag = ".0123456789ab";
    auto& files = *buffer.filesystem;
    const auto set = files.make_node({}, fs::root_ino, "set", S_IFDIR | 0750, 0)->ino;
    const auto deep = files.make_node({}, set, "deep", S_IFDIR | 0700, 0)->ino;
    const auto deeper = files.make_node({}, deep, "d", S_IFDIR | 0755, 0)->ino;
    place("a", set), place("b", set), place("c", deep), place("e", deeper);
    REQUIRE(files.make_symlink({}, set, "l", "a"));
    buffer.write("other", "other");
  }

  void place(const std::string& name, std::uint64_t directory) {
    buffer.write(name, "content of " + name);
    REQUIRE(buffer.filesystem->rename({}, {fs::root_ino, name}, {directory, name}, 0));
  }

  Receipt send(PfsIo& pfs = posix_pfs()) {
    auto names = members;
    names.emplace_back("other");
    return back({.names = names, .results_only = true, .are_paths = true, .sets = {"set"}}, pfs);
  }

  bool is_whole() const {
    return out("set/a") == "content of a" && out("set/b") == "content of b" &&
           out("set/deep/c") == "content of c" && out("set/deep/d/e") == "content of e" &&
           std::filesystem::is_symlink(config.results_dir + "/set/l");
  }

  bool is_absent() const { return !std::filesystem::exists(config.results_dir + "/set"); }

  bool is_clean() const {
    return std::ranges::none_of(
        members, [&](const auto& path) { return buffer.staging->find(path)->pfs.dirty; });
  }
};

TEST_CASE("a set goes as a whole", "[drain][sets]") {
  SetScene it;
  // It has its name only when all of it is there.
  test::FaultPfs pfs([&](auto, const auto&, const auto&) {
    CHECK((it.is_absent() || it.is_whole()));
    return 0;
  });
  const auto receipt = it.send(pfs);
  INFO(describe(receipt));
  CHECK(receipt.verdict == Verdict::complete);
  CHECK(receipt.totals.staged_out >= members.size() + 1);
  CHECK((it.is_whole() && it.is_clean() && it.partials() == 0));
  CHECK(it.out("other") == "other");
  CHECK((std::filesystem::status(it.config.results_dir + "/set").permissions() ==
         static_cast<std::filesystem::perms>(0750)));
  CHECK((std::filesystem::status(it.config.results_dir + "/set/deep").permissions() ==
         static_cast<std::filesystem::perms>(0700)));
}

TEST_CASE("a set that a program writes to does not go", "[drain][sets]") {
  SetScene it;
  const auto ino = it.buffer.ino("set/deep/c");
  REQUIRE(it.buffer.filesystem->open({}, ino, O_WRONLY));
  const auto receipt = it.send();
  CHECK((it.is_absent() && it.partials() == 0));
  CHECK(it.out("other") == "other");
  for (const auto& entry : receipt.entries) {
    CHECK((entry.path == "other" || entry.code == EBUSY));
  }
  efs::test::release(*it.buffer.filesystem, ino, O_WRONLY);
  CHECK(it.send().verdict == Verdict::complete);
  CHECK(it.is_whole());
}

TEST_CASE("a set that has grown since the request does not go", "[drain][sets]") {
  SetScene it;
  const auto deep = it.buffer.ino("set/deep");
  // while it waits for its turn
  it.options.wait_for_turn = [&](std::uint64_t) -> Status {
    it.place("late", deep);
    return {};
  };
  const auto receipt = it.send();
  CHECK(receipt.totals.staged_out == 1);
  CHECK((it.is_absent() && it.partials() == 0));
  CHECK(it.out("other") == "other");
}

TEST_CASE("a set whose directory results-dir has is left to the stop", "[drain][sets]") {
  SetScene it;
  std::filesystem::create_directory(it.config.results_dir + "/set");
  const auto receipt = it.send();
  CHECK(receipt.totals.conflict == members.size());
  CHECK(it.out("other") == "other");
  CHECK(std::filesystem::is_empty(it.config.results_dir + "/set"));
  CHECK(it.back({.names = {"set"}}).verdict == Verdict::complete);
  CHECK((it.is_whole() && it.is_clean()));
}

TEST_CASE("a set that results-dir cannot take as a whole is not there at all",
          "[drain][sets][faults]") {
  std::uint64_t calls = 0;
  {
    SetScene it;
    test::FaultPfs pfs([](auto, const auto&, const auto&) { return 0; });
    REQUIRE(it.send(pfs).verdict == Verdict::complete);
    calls = pfs.calls();
  }
  // one call fails, or all from one on
  for (const bool for_good : {false, true}) {
    for (std::uint64_t n = 0; n < calls; ++n) {
      SetScene it;
      test::FaultPfs pfs([&](std::uint64_t number, const auto&, const auto&) {
        CHECK((it.is_absent() || it.is_whole()));
        return number == n || (for_good && number > n) ? EIO : 0;
      });
      const auto receipt = it.send(pfs);
      INFO("call " << n << (for_good ? " and all later ones" : "") << ": " << describe(receipt));
      CHECK((it.is_absent() || it.is_whole()));
      CHECK((it.is_clean() <= it.is_whole()));
      // what is left does not hold up the stop
      it.options.has_a_past = true;
      const auto rest = it.back({.names = {"set", "other"}});
      INFO(describe(rest));
      CHECK(rest.verdict == Verdict::complete);
      CHECK((it.is_whole() && it.is_clean() && it.partials() == 0));
    }
  }
}

}  // namespace
}  // namespace efs::stage
