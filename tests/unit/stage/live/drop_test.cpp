// SPDX-License-Identifier: BSD-3-Clause
#include "stage/live/drop.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

#include "stage/pfs/forwarding_pfs.hpp"
#include "unit/stage/live_scene.hpp"

namespace efs::stage {
namespace {

/// A PFS that cannot tell what a name leads to.
class StatFails final : public ForwardingPfs {
 public:
  StatFails() : ForwardingPfs(posix_pfs()) {}

  Result<struct stat> fstat(int) override { return fail(EIO); }
};

struct DropScene : test::LiveScene {
  /// Writes files and exports them.
  void home(const std::vector<std::string>& names) {
    for (const auto& name : names) {
      buffer.write(name, "content of " + name);
    }
    const auto receipt = back({.names = names});
    REQUIRE(receipt.totals.staged_out == names.size());
  }

  Dropped drop(const std::vector<OldVersion>& versions, PfsIo& pfs = posix_pfs()) {
    return stage::drop({.config = config,
                        .staging = *buffer.staging,
                        .pfs = pfs,
                        .options = options,
                        .progress = progress},
                       versions);
  }

  /// The errno with which the version "v" of these files stays; 0: it was dropped.
  int refused(const std::vector<std::string>& files, PfsIo& pfs = posix_pfs()) {
    const auto dropped = drop({{.path = "v", .files = files}}, pfs);
    if (dropped.stayed.empty()) {
      CHECK(dropped.entries.size() == files.size());
      return 0;
    }
    CHECK(dropped.entries.empty());
    CHECK(dropped.stayed.front().version == "v");
    for (const auto& file : files) {
      CHECK((buffer.exists(file) || !buffer.exists(files.front())));
    }
    return dropped.stayed.front().why.code;
  }

  std::string result(const std::string& name) const { return config.results_dir + "/" + name; }

  Progress progress;
};

TEST_CASE("what is home is dropped from the buffer and stays at home", "[keep]") {
  DropScene it;
  it.home({"a", "b"});
  const auto a = it.buffer.ino("a"), b = it.buffer.ino("b");
  const auto dropped = it.drop({{.path = "v", .files = {"a", "b"}}});
  (void)it.buffer.filesystem->forget(a, 1);  // as the kernel does when a name is gone
  (void)it.buffer.filesystem->forget(b, 1);
  CHECK(dropped.stayed.empty());
  REQUIRE(dropped.entries.size() == 2);
  CHECK(dropped.entries[0].path == "a");
  CHECK(dropped.entries[0].action == Action::kept);
  CHECK(dropped.entries[0].bytes == 12);
  CHECK(dropped.entries[0].reason.starts_with(removed_from_buffer));
  CHECK_FALSE((it.buffer.exists("a") || it.buffer.exists("b")));
  CHECK(it.out("a") == "content of a");
  CHECK(it.buffer.staging->gone().empty());
  CHECK(it.leaks_nothing());
  it.buffer.open();
  CHECK_FALSE(it.buffer.exists("a"));
  CHECK(it.buffer.staging->gone().empty());
}

TEST_CASE("a name that was dropped is this job's when it is made again", "[keep]") {
  DropScene it;
  it.config.existing = config::Existing::fail;
  it.home({"a"});
  REQUIRE(it.refused({"a"}) == 0);
  it.buffer.open();
  it.buffer.write("a", "again");
  CHECK(it.back({.names = {"a"}}).totals.staged_out == 1);
  CHECK(it.out("a") == "again");
}

TEST_CASE("a result that is not home stays", "[keep]") {
  DropScene it;
  it.buffer.write("new", "1");
  CHECK(it.refused({"new"}) == EBUSY);
  CHECK(it.refused({"none"}) == ENOENT);
  it.home({"a"});
  SECTION("changed") {
    it.buffer.write("a", "2");
    CHECK(it.refused({"a"}) == EBUSY);
  }
  SECTION("with other attributes") {
    REQUIRE(it.buffer.filesystem->setattr({}, it.buffer.ino("a"), {.mode = 0600}));
    CHECK(it.refused({"a"}) == EBUSY);
  }
  SECTION("under another name") {
    REQUIRE(it.buffer.filesystem->rename({}, {fs::root_ino, "a"}, {fs::root_ino, "b"}, 0));
    CHECK(it.refused({"b"}) == EBUSY);
  }
  CHECK(it.out("a") == "content of a");
}

TEST_CASE("an input stays", "[keep]") {
  DropScene it;
  REQUIRE(it.in({.names = {"d/a"}}).ok());
  CHECK(it.refused({"d/a"}) == EBUSY);
}

TEST_CASE("a file with several names stays", "[keep]") {
  DropScene it;
  it.home({"a"});
  REQUIRE(it.buffer.filesystem->link({}, it.buffer.ino("a"), fs::root_ino, "b"));
  CHECK(it.refused({"a"}) == EMLINK);
  REQUIRE(it.back({.names = {"b"}}).totals.failed == 0);
  CHECK(it.refused({"a"}) == EMLINK);
}

TEST_CASE("what is no regular file stays", "[keep]") {
  DropScene it;
  REQUIRE(it.buffer.filesystem->make_node({}, fs::root_ino, "dir", S_IFDIR | 0755, 0));
  CHECK(it.refused({"dir"}) == EMLINK);
}

TEST_CASE("a file that a program has open or mapped stays", "[keep]") {
  DropScene it;
  it.home({"a"});
  const auto ino = it.buffer.ino("a");
  SECTION("open for reading") {
    REQUIRE(it.buffer.filesystem->open({}, ino, O_RDONLY));
    CHECK(it.refused({"a"}) == EBUSY);
    efs::test::release(*it.buffer.filesystem, ino, O_RDONLY);
  }
  SECTION("its container is open in another process, or by passthrough") {
    std::string path;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(it.buffer.directory.path())) {
      struct stat st{};
      if (entry.is_regular_file() && ::stat(entry.path().c_str(), &st) == 0 && st.st_size == 12) {
        path = entry.path();
      }
    }
    UniqueFd reader(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    REQUIRE(reader);
    CHECK(it.refused({"a"}) == EBUSY);
    void* const memory = ::mmap(nullptr, 12, PROT_READ, MAP_SHARED, reader.get(), 0);
    REQUIRE(memory != MAP_FAILED);
    reader.reset();
    CHECK(it.refused({"a"}) == EBUSY);
    ::munmap(memory, 12);
  }
  CHECK(it.refused({"a"}) == 0);
}

TEST_CASE("a version of which results-dir has another one stays", "[keep]") {
  DropScene it;
  it.home({"a"});
  const std::string there = it.result("a");
  SECTION("removed") {
    REQUIRE(::unlink(there.c_str()) == 0);
    CHECK(it.refused({"a"}) == ENOENT);
  }
  SECTION("replaced") {
    const auto before = efs::test::file_text(there);
    std::ofstream(there + ".new") << before;
    REQUIRE(::rename((there + ".new").c_str(), there.c_str()) == 0);
    CHECK(it.refused({"a"}) == ESTALE);
  }
  SECTION("written in place, with its former times") {
    struct stat before{};
    REQUIRE(::stat(there.c_str(), &before) == 0);
    const UniqueFd file(::open(there.c_str(), O_WRONLY));
    REQUIRE(::pwrite(file.get(), "X", 1, 0) == 1);
    const struct timespec times[2] = {before.st_atim, before.st_mtim};
    REQUIRE(::futimens(file.get(), times) == 0);
    CHECK(it.refused({"a"}) == ESTALE);
  }
  SECTION("a directory has its name") {
    REQUIRE(::unlink(there.c_str()) == 0);
    REQUIRE(::mkdir(there.c_str(), 0755) == 0);
    CHECK(it.refused({"a"}) == ESTALE);
  }
  SECTION("no answer") {
    StatFails pfs;
    CHECK(it.refused({"a"}, pfs) == EIO);
  }
  SECTION("results-dir is gone") {
    REQUIRE(::rename(it.config.results_dir.c_str(), (it.config.results_dir + ".away").c_str()) ==
            0);
    CHECK(it.refused({"a"}) == ENOENT);
  }
  CHECK(it.buffer.read("a") == "content of a");
}

TEST_CASE("a version stays whole, and others go", "[keep]") {
  DropScene it;
  it.home({"a", "b", "c"});
  REQUIRE(::unlink(it.result("b").c_str()) == 0);
  const auto dropped =
      it.drop({{.path = "first", .files = {"a", "b"}}, {.path = "second", .files = {"c"}}});
  REQUIRE(dropped.stayed.size() == 1);
  CHECK(dropped.stayed.front().version == "first");
  CHECK(dropped.stayed.front().file == "b");
  CHECK((it.buffer.exists("a") && it.buffer.exists("b") && !it.buffer.exists("c")));
}

TEST_CASE("after a cancel nothing more is dropped", "[keep]") {
  DropScene it;
  it.home({"a"});
  it.progress.cancel = true;
  CHECK(it.refused({"a"}) == ECANCELED);
  CHECK(it.buffer.exists("a"));
}

TEST_CASE("the check and the removal are one step", "[keep]") {
  DropScene it;
  it.home({"a", "b"});
  auto& staging = *it.buffer.staging;
  const auto copy = [&](const char* name) {
    return *staging.find(name)->saved;
  };
  const auto a = it.buffer.ino("a");
  CHECK(staging.drop_unused("a", it.buffer.ino("b"), copy("a")).error().code == ESTALE);
  CHECK(staging.drop_unused("a", a, copy("b")).error().code == ESTALE);
  CHECK(staging.drop_unused("none", a, copy("a")).error().code == ENOENT);
  REQUIRE(it.buffer.filesystem->open({}, a, O_RDONLY));
  CHECK(staging.drop_unused("a", a, copy("a")).error().code == EBUSY);
  efs::test::release(*it.buffer.filesystem, a, O_RDONLY);
  REQUIRE(staging.drop_unused("a", a, copy("a")));
  CHECK_FALSE(it.buffer.exists("a"));
  const auto known = copy("b");
  it.buffer.write("b", "2");
  CHECK(staging.drop_unused("b", it.buffer.ino("b"), known).error().code == EBUSY);
}

}  // namespace
}  // namespace efs::stage
