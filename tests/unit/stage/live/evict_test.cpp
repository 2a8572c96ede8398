// SPDX-License-Identifier: BSD-3-Clause
#include "stage/live/evict.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <filesystem>

#include "stage/import/fetch.hpp"
#include "stage/pfs/forwarding_pfs.hpp"
#include "unit/stage/live_scene.hpp"

namespace efs::stage {
namespace {

/// A PFS that has nothing of what it is asked for.
class LostPfs final : public ForwardingPfs {
 public:
  LostPfs() : ForwardingPfs(posix_pfs()) {}

  Result<struct stat> fstat(PfsRef) override {
    ++calls;
    return fail(EIO);
  }

  int calls = 0;
};

struct EvictScene : test::LiveScene {
  EvictScene() {
    config.outputs.push_back(
        {.pattern = "**", .drain = std::chrono::seconds(0), .evict = config::Evict::when_full});
  }

  std::string content(const std::string& name) const {
    return std::string(20'000, name.front()) + name;
  }

  void home(const std::vector<std::string>& names) {
    for (const auto& name : names) {
      buffer.write(name, content(name));
      REQUIRE(back({.names = {name}}).totals.staged_out == 1);
    }
  }

  Eviction evict(std::uint64_t bytes, PfsIo& pfs = posix_pfs()) {
    return stage::evict({.config = config,
                         .staging = *buffer.staging,
                         .pfs = pfs,
                         .options = options,
                         .progress = progress},
                        bytes, refusals);
  }

  /// Inputs of a resource whose contents may leave, as a load copies them.
  void load_inputs() {
    config.resources.push_back({.path = config.root_dir + "/d", .evict = config::Evict::when_full});
    REQUIRE(in({.names = {"d"}}).ok());
  }

  bool here(const std::string& name) const { return !buffer.staging->is_remote(buffer.ino(name)); }

  FetchOutcome fetch(const std::string& name) {
    ScratchPool buffers(options.transfer_size);
    const ScratchPool::Loan scratch(buffers);
    return fetch_content(buffer.ino(name), {.staging = *buffer.staging,
                                            .pfs = posix_pfs(),
                                            .root_dir = config.root_dir,
                                            .scratch = *scratch,
                                            .progress = progress});
  }

  std::string result(const std::string& name) const { return config.results_dir + "/" + name; }

  Progress progress;
  Refusals refusals;
};

}  // namespace

TEST_CASE("results that are home give their room, the oldest first, and come again", "[evict]") {
  EvictScene it;
  it.home({"a", "b", "c"});
  const auto done = it.evict(1);
  CHECK(done.files == 1);
  CHECK(done.bytes >= 20'000);
  CHECK_FALSE(it.here("a"));
  CHECK(it.here("b"));
  CHECK(it.evict(~std::uint64_t{0}).files == 2);
  CHECK(it.evict(1).files == 0);
  for (const auto* name : {"a", "b", "c"}) {
    CHECK_FALSE(it.here(name));
    CHECK(it.fetch(name).kind == FetchOutcome::Kind::here);
    CHECK(it.buffer.read(name) == it.content(name));
    CHECK(it.out(name) == it.content(name));
  }
}

TEST_CASE("what no rule gives away, or has changed since, keeps its room", "[evict]") {
  EvictScene it;
  it.config.outputs.insert(it.config.outputs.begin(),
                           {.pattern = "kept", .drain = std::chrono::seconds(0)});
  it.home({"a", "kept", "changed"});
  it.buffer.write("changed", "other");
  it.buffer.write("new", "new");
  CHECK(it.evict(~std::uint64_t{0}).files == 1);
  CHECK_FALSE(it.here("a"));
  CHECK((it.here("kept") && it.here("changed") && it.here("new")));
}

TEST_CASE("the PFS is asked for the very version", "[evict]") {
  EvictScene it;
  it.home({"a", "b", "c"});
  SECTION("another file has the name") {
    std::filesystem::copy_file(it.result("a"), it.result("a") + ".new");
    std::filesystem::rename(it.result("a") + ".new", it.result("a"));
    CHECK(::unlink(it.result("b").c_str()) == 0);
    const auto done = it.evict(~std::uint64_t{0});
    CHECK(done.files == 1);
    CHECK(done.stayed == 2);
    CHECK((it.here("a") && it.here("b")));
    CHECK_FALSE(it.here("c"));
  }
  SECTION("it was touched") {
    CHECK(::chmod(it.result("a").c_str(), 0600) == 0);
    CHECK(it.evict(~std::uint64_t{0}).files == 2);
    CHECK(it.here("a"));
  }
  SECTION("it does not answer") {
    LostPfs pfs;
    const auto done = it.evict(~std::uint64_t{0}, pfs);
    CHECK(done.files == 0);
    CHECK(done.stayed == 3);
    CHECK(pfs.calls == 3);
    CHECK(done.why.starts_with("c: "));
    CHECK((it.here("a") && it.here("b") && it.here("c")));
  }
}

TEST_CASE("inputs that were copied at the start or by a load give their room, too", "[evict]") {
  EvictScene it;
  it.load_inputs();
  const auto done = it.evict(~std::uint64_t{0});
  CHECK(done.files == 2);
  CHECK(done.stayed == 0);
  CHECK_FALSE((it.here("d/a") || it.here("d/b")));
  CHECK(it.fetch("d/a").kind == FetchOutcome::Kind::here);
  CHECK(it.buffer.read("d/a") == std::string(3000, 'a'));
  CHECK(it.fetch("d/b").kind == FetchOutcome::Kind::here);
  CHECK(it.buffer.read("d/b") == std::string(70000, 'b'));
  CHECK(it.evict(~std::uint64_t{0}).files == 2);
}

TEST_CASE("an input whose PFS file has changed since, or that a program has changed, stays",
          "[evict]") {
  EvictScene it;
  it.load_inputs();
  SECTION("even with its size and times") {
    struct stat st{};
    const std::string path = it.config.root_dir + "/d/a";
    REQUIRE(::stat(path.c_str(), &st) == 0);
    it.put("d/a", std::string(3000, 'x'));
    const std::array times{st.st_atim, st.st_mtim};
    REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times.data(), 0) == 0);
    CHECK(it.evict(~std::uint64_t{0}).why == "d/a: the PFS has another version");
    CHECK(it.buffer.read("d/a") == std::string(3000, 'a'));
  }
  SECTION("it is gone") {
    REQUIRE(::unlink((it.config.root_dir + "/d/a").c_str()) == 0);
    CHECK(it.evict(~std::uint64_t{0}).stayed == 1);
  }
  SECTION("changed in the buffer") {
    it.buffer.write("d/a", "other");
    CHECK(it.evict(~std::uint64_t{0}).stayed == 0);
  }
  SECTION("an export gives it another name") {
    it.config.outputs.push_back({.pattern = "d/a", .holds_inputs = true, .as = "e"});
    CHECK(it.evict(~std::uint64_t{0}).stayed == 0);
  }
  SECTION("another resource keeps it") {
    it.config.resources.push_back({.path = it.config.root_dir + "/d/a"});
    CHECK(it.evict(~std::uint64_t{0}).stayed == 0);
  }
  CHECK(it.here("d/a"));
  CHECK_FALSE(it.here("d/b"));
}

TEST_CASE("the PFS is not asked again for what it has refused lately", "[evict]") {
  EvictScene it;
  it.home({"a", "b"});
  CHECK(::unlink(it.result("a").c_str()) == 0);
  CHECK(::chmod(it.result("b").c_str(), 0600) == 0);
  const auto first = it.evict(~std::uint64_t{0});
  CHECK((first.files == 0 && first.stayed == 2));
  LostPfs pfs;
  const auto again = it.evict(~std::uint64_t{0}, pfs);
  CHECK((again.stayed == 2 && again.why == first.why));
  CHECK(pfs.calls == 0);
  // a new version is another matter
  it.home({"a"});
  CHECK(it.evict(~std::uint64_t{0}).files == 1);
  it.refusals = {};
  CHECK(it.evict(~std::uint64_t{0}, pfs).stayed == 1);
  CHECK(pfs.calls == 1);
}

TEST_CASE("refusals end after a while, and are so many at most", "[evict]") {
  using Clock = Refusals::Clock;
  Refusals refusals;
  const Clock::time_point begin{};
  Refusals::Candidate one{.ino = 1, .path = {}, .since = FileTime(7)};
  CHECK(refusals.of(one, begin) == 0);
  refusals.note(one, ENOENT, begin);
  CHECK(refusals.of(one, begin) == ENOENT);
  CHECK(refusals.of(one, begin + Refusals::lasting) == 0);
  refusals.note(one, ENOENT, begin);
  one.since = FileTime(8);
  CHECK(refusals.of(one, begin) == 0);
  Refusals::Candidate other;
  for (other.ino = 1; other.ino <= Refusals::most + 1; ++other.ino) {
    refusals.note(other, ESTALE, begin);
  }
  other.ino = Refusals::most;
  CHECK(refusals.of(other, begin) == ESTALE);
  other.ino = Refusals::most + 1;
  CHECK(refusals.of(other, begin) == 0);
  refusals.note(other, ESTALE, begin + Refusals::lasting);
  CHECK(refusals.of(other, begin + Refusals::lasting) == ESTALE);
}

TEST_CASE("an eviction gives up when the PFS fails again and again", "[evict]") {
  EvictScene it;
  std::vector<std::string> names;
  for (char name = 'a'; name <= 'z'; ++name) {
    names.emplace_back(1, name);
  }
  it.home(names);
  LostPfs pfs;
  CHECK(it.evict(~std::uint64_t{0}, pfs).stayed == 16);
  CHECK(pfs.calls == 16);
  it.progress.cancel = true;
  CHECK(it.evict(~std::uint64_t{0}).files == 0);
}

}  // namespace efs::stage
