// SPDX-License-Identifier: BSD-3-Clause
// Contents that leave the buffer: which may, and what is left of them.
#include <fcntl.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <string>

#include "fs/filesystem.hpp"
#include "fs/staging.hpp"
#include "support/sim_backend.hpp"
#include "support/sim_medium.hpp"

namespace efs::evict_test {

using fs::Filesystem;
using fs::root_ino;

namespace {

constexpr fs::Origin version{.device = 1, .inode = 2, .size = 7, .mtime = 4, .ctime = 5};
const std::string content = "content";

struct EvictScene {
  test::SimWorld world{Durability::page, 1};
  test::SimBackend backend{world};
  std::unique_ptr<Filesystem> filesystem;
  std::unique_ptr<fs::Staging> staging;

  EvictScene() { open(); }

  void open(std::uint64_t smallest_compaction = 1U << 30U) {
    staging.reset();
    filesystem.reset();
    Filesystem::Options options;
    options.medium = std::make_shared<test::SimMedium>(world);
    options.smallest_compaction = smallest_compaction;
    auto opened = Filesystem::open(backend, options);
    REQUIRE(opened);
    filesystem = std::move(*opened);
    staging = std::make_unique<fs::Staging>(*filesystem);
  }

  std::uint64_t make_remote(const std::string& path, bool evictable = true) const {
    const auto file = staging->begin_open_file();
    REQUIRE(file);
    REQUIRE(file->container->truncate(version.size));
    const fs::StagedFile staged{.ino = file->ino,
                                .path = path,
                                .attributes = {.mode = 0640, .atime = 7, .mtime = version.mtime},
                                .origin = version,
                                .remote = fs::Remote{.version = version,
                                                     .source = "in/" + path,
                                                     .room = evictable ? 0U : 1U << 20U,
                                                     .evictable = evictable}};
    Status failed;
    staging->publish_files(std::span(&staged, 1), failed);
    REQUIRE(failed);
    return file->ino;
  }

  void fetch(std::uint64_t ino) const {
    const auto begun = staging->begin_fetch(ino);
    REQUIRE(begun);
    REQUIRE(*begun);
    REQUIRE((*begun)->file.container->write(std::as_bytes(std::span(content)), 0) ==
            content.size());
    REQUIRE(staging->end_fetch(**begun));
  }

  std::uint64_t make_here(const std::string& path) const {
    const auto ino = make_remote(path);
    fetch(ino);
    return ino;
  }

  std::string read(std::uint64_t ino) const {
    std::string bytes(content.size(), '\0');
    const auto got = filesystem->read(ino, std::as_writable_bytes(std::span(bytes)), 0);
    return got ? bytes.substr(0, *got) : "error " + std::to_string(got.error().code);
  }

  int evict(const std::string& path, std::uint64_t ino, const fs::Origin& of = version) const {
    const Status done =
        staging->evict_unused(path, ino, fs::Remote{.version = of, .source = "in/" + path});
    return done ? 0 : done.error().code;
  }
};

}  // namespace

TEST_CASE("a content leaves the buffer and comes again, and the attributes stay", "[fs]") {
  EvictScene s;
  const auto ino = s.make_here("a");
  const auto before = s.filesystem->getattr(ino)->attributes;
  CHECK(s.read(ino) == content);
  REQUIRE(s.evict("a", ino) == 0);
  CHECK(s.filesystem->is_remote(ino));
  CHECK(s.read(ino) == "error " + std::to_string(fs::not_here_code));
  CHECK(s.world.find(ino)->visible == content);  // until the record is durable
  REQUIRE(s.staging->free_evicted(std::span(&ino, 1)));
  CHECK(s.world.find(ino)->visible.empty());
  const auto without = s.filesystem->getattr(ino)->attributes;
  CHECK(without.st_size == before.st_size);
  CHECK(FileTime(without.st_mtim) == FileTime(before.st_mtim));
  CHECK(FileTime(without.st_atim) == FileTime(before.st_atim));
  CHECK(FileTime(without.st_ctim) == FileTime(before.st_ctim));
  s.fetch(ino);
  CHECK(s.read(ino) == content);
  const auto again = s.filesystem->getattr(ino)->attributes;
  CHECK(FileTime(again.st_mtim) == FileTime(before.st_mtim));
  CHECK(FileTime(again.st_ctim) == FileTime(before.st_ctim));
}

TEST_CASE("a fetch that comes before the container is emptied keeps its content", "[fs]") {
  EvictScene s;
  const auto ino = s.make_here("a");
  REQUIRE(s.evict("a", ino) == 0);
  s.fetch(ino);
  const auto freed = s.staging->free_evicted(std::span(&ino, 1));
  REQUIRE(freed);
  CHECK(*freed == 0);
  CHECK(s.read(ino) == content);
}

TEST_CASE("what has changed, is open or has further names keeps its content", "[fs]") {
  EvictScene s;
  const auto ino = s.make_here("a");
  CHECK(s.evict("b", ino) == ENOENT);
  fs::Origin other = version;
  other.mtime = 9;
  CHECK(s.evict("a", ino, other) == ESTALE);
  CHECK(s.evict("a", ino + 100) == ESTALE);
  SECTION("open for reading") {
    const auto opened = s.filesystem->open({}, ino, O_RDONLY);
    REQUIRE(opened);
    CHECK(s.evict("a", ino) == EBUSY);
    CHECK(s.staging->eviction_candidates().empty());
    s.filesystem->release(opened->handle);
    REQUIRE(s.evict("a", ino) == 0);
  }
  SECTION("changed") {
    const auto opened = s.filesystem->open({}, ino, O_WRONLY);
    REQUIRE(opened);
    s.filesystem->release(opened->handle);
    CHECK(s.evict("a", ino) == EBUSY);
    CHECK(s.staging->eviction_candidates().empty());
  }
  SECTION("two names") {
    REQUIRE(s.filesystem->link({}, ino, root_ino, "b"));
    CHECK(s.evict("a", ino) == EMLINK);
    CHECK(s.staging->eviction_candidates().empty());
  }
  SECTION("another name") {
    REQUIRE(s.filesystem->rename({}, {root_ino, "a"}, {root_ino, "b"}, 0));
    CHECK(s.evict("b", ino) != 0);
  }
}

TEST_CASE("only files of which the PFS has the content are candidates", "[fs]") {
  EvictScene s;
  const auto input = s.make_here("input");
  const auto other = s.make_remote("other", false);
  s.fetch(other);
  s.make_remote("remote");
  REQUIRE(s.filesystem->make_node({}, root_ino, "new", S_IFREG | 0600, 0));
  auto candidates = s.staging->eviction_candidates();
  REQUIRE(candidates.size() == 2);
  std::ranges::sort(candidates, {}, &fs::Staging::EvictionCandidate::ino);
  CHECK(candidates[1].ino == other);
  CHECK((candidates[1].is_input && !candidates[1].remote));
  CHECK(candidates[0].ino == input);
  CHECK(candidates[0].path == "input");
  REQUIRE((candidates[0].is_input && candidates[0].remote));
  CHECK(candidates[0].remote->source == "in/input");
  CHECK(candidates[0].was_used);  // it has just come
  const auto was_used = [&] {
    const auto now = s.staging->eviction_candidates();
    return std::ranges::find(now, input, &fs::Staging::EvictionCandidate::ino)->was_used;
  };
  CHECK_FALSE(was_used());
  const auto opened = s.filesystem->open({}, input, O_RDONLY);
  REQUIRE(opened);
  s.filesystem->release(opened->handle);
  CHECK(was_used());
  CHECK_FALSE(was_used());
}

TEST_CASE("an eviction and the way back survive a start, by journal and by snapshot", "[fs]") {
  EvictScene s;
  const auto gone = s.make_here("gone"), here = s.make_here("here");
  REQUIRE(s.evict("gone", gone) == 0);
  REQUIRE(s.staging->free_evicted(std::span(&gone, 1)));
  for (int i = 0; i < 2; ++i) {
    INFO(i);
    s.open(1);  // a snapshot comes with the next change
    CHECK(s.filesystem->is_remote(gone));
    CHECK(s.filesystem->getattr(gone)->attributes.st_size == 7);
    CHECK(s.read(here) == content);
    const auto candidates = s.staging->eviction_candidates();
    REQUIRE(candidates.size() == 1);
    CHECK(candidates[0].ino == here);
    REQUIRE(candidates[0].remote);
    CHECK(candidates[0].remote->source == "in/here");
    REQUIRE(s.filesystem->make_node({}, root_ino, "d" + std::to_string(i), S_IFDIR | 0755, 0));
  }
  s.fetch(gone);
  CHECK(s.read(gone) == content);
}

TEST_CASE("df keeps no room for contents that give theirs to others", "[fs]") {
  EvictScene s;
  const auto before = s.filesystem->statfs().f_bavail;
  s.make_remote("a");
  CHECK(s.filesystem->statfs().f_bavail == before);
  s.make_remote("b", false);
  CHECK(s.filesystem->statfs().f_bavail < before);
}

TEST_CASE("a directory moves if half of the buffer holds its evictable contents", "[fs]") {
  EvictScene s;
  const auto d = s.filesystem->make_node({}, root_ino, "d", S_IFDIR | 0755, 0)->ino;
  const auto fits = [&] {
    return s.filesystem->fit_at_once({root_ino, "d"}, {root_ino, "e"}, 0);
  };
  const auto half = s.backend.space().capacity / 2;
  const fs::Origin much{.device = 1, .inode = 3, .size = half, .mtime = 4, .ctime = 5};
  const auto make = [&](const std::string& path, const fs::Origin& of) {
    const auto file = s.staging->begin_open_file();
    REQUIRE(file);
    const fs::StagedFile staged{
        .ino = file->ino,
        .path = path,
        .attributes = {.mode = 0640},
        .origin = of,
        .remote = fs::Remote{.version = of, .source = path, .evictable = true}};
    Status failed;
    s.staging->publish_files(std::span(&staged, 1), failed);
    REQUIRE(failed);
    return file->ino;
  };
  CHECK(fits());
  make("d/a", much);
  CHECK(fits());
  const auto small = make("d/b", version);
  CHECK_FALSE(fits());
  s.fetch(small);  // what is here may leave
  CHECK_FALSE(fits());
  CHECK(s.filesystem->fit_at_once({d, "a"}, {d, "c"}, 0));
}

}  // namespace efs::evict_test
