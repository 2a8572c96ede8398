// SPDX-License-Identifier: BSD-3-Clause
#include "stage/live/evict.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
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
                        bytes);
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
