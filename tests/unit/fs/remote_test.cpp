// SPDX-License-Identifier: BSD-3-Clause
// Files whose content is only on the PFS: nothing reads their containers, changes or moves them
// before the content was fetched, in this process and in every later one.
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "fs/filesystem.hpp"
#include "fs/staging.hpp"
#include "support/failing_new.hpp"
#include "support/sim_backend.hpp"
#include "support/sim_medium.hpp"

namespace efs::remote_test {

using fs::Filesystem;
using fs::not_here_code;
using fs::root_ino;

namespace {

constexpr std::uint64_t never = 1U << 30U;  // bytes of journal at which a snapshot is made
constexpr fs::Origin version{.device = 1, .inode = 2, .size = 7, .mtime = 4, .ctime = 5};
const std::string content = "content";

struct RemoteScene {
  test::SimWorld world{Durability::page, 1};
  test::SimBackend backend{world};
  std::unique_ptr<Filesystem> filesystem;
  std::unique_ptr<fs::Staging> staging;

  RemoteScene() { open({}); }

  void open(Filesystem::Options options, std::uint64_t smallest_compaction = never) {
    staging.reset();
    filesystem.reset();
    options.medium = std::make_shared<test::SimMedium>(world);
    options.smallest_compaction = smallest_compaction;
    auto opened = Filesystem::open(backend, options);
    REQUIRE(opened);
    filesystem = std::move(*opened);
    staging = std::make_unique<fs::Staging>(*filesystem);
  }

  std::uint64_t make_remote(const std::string& path,
                            const std::map<std::string, std::string>& xattrs = {}) const {
    const auto file = staging->begin_open_file();
    REQUIRE(file);
    REQUIRE(file->container->truncate(version.size));
    REQUIRE(file->container->set_times(FileTime(7), FileTime(version.mtime)));
    const fs::StagedFile staged{.ino = file->ino,
                                .path = path,
                                .attributes = {.mode = 0640, .atime = 7, .mtime = version.mtime},
                                .origin = version,
                                .xattrs = xattrs,
                                .remote = fs::Remote{.version = version,
                                                     .source = "from/" + path,
                                                     .background = path.ends_with("b"),
                                                     .priority = 3}};
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

  std::string read(std::uint64_t ino) const {
    std::string bytes(content.size(), '\0');
    const auto got = filesystem->read(ino, std::as_writable_bytes(std::span(bytes)), 0);
    return got ? bytes.substr(0, *got) : "error " + std::to_string(got.error().code);
  }
};

template <typename T>
int code_of(const Result<T>& result) {
  return result ? 0 : result.error().code;
}

}  // namespace

TEST_CASE("a remote file shows all but its content, and its container is not asked", "[fs]") {
  RemoteScene s;
  const auto ino = s.make_remote("file", {{"user.a", "b"}});
  REQUIRE(s.backend.set_times(ino, FileTime(1), FileTime(2)));  // as a fetch does meanwhile
  const auto entry = s.filesystem->lookup(root_ino, "file");
  REQUIRE(entry);
  CHECK(entry->attributes.st_size == 7);
  CHECK(entry->attributes.st_blocks == 1);
  CHECK(FileTime(entry->attributes.st_mtim) == FileTime(version.mtime));
  CHECK(FileTime(entry->attributes.st_atim) == FileTime(7));
  CHECK((entry->attributes.st_mode & 07777) == 0640);
  CHECK(s.filesystem->getattr(ino)->attributes.st_size == 7);
  CHECK(s.filesystem->getxattr(ino, "user.a") == "b");
  CHECK(s.filesystem->listxattr(ino)->size() == 1);
  const auto item = s.staging->find("file");
  CHECK(item->content.remote);
  CHECK_FALSE(item->pfs.dirty);
  CHECK_FALSE(item->pfs.content);
  CHECK(s.staging->remote_totals().files == 1);
  CHECK(s.staging->remote_totals().bytes == 7);
}

TEST_CASE("every operation that needs the content, changes or moves a remote file is refused",
          "[fs]") {
  RemoteScene s;
  REQUIRE(s.filesystem->make_node({}, root_ino, "other", S_IFREG | 0600, 0));
  REQUIRE(s.filesystem->make_node({}, root_ino, "d", S_IFDIR | 0700, 0));
  const auto ino = s.make_remote("file");
  const auto below = s.make_remote("d/below");
  auto& files = *s.filesystem;
  const std::string value = "v";
  const std::vector<std::function<int()>> operations{
      [&] { return code_of(files.open({}, ino, O_RDONLY)); },
      [&] { return code_of(files.open({}, ino, O_RDWR)); },
      [&] { return code_of(files.open({}, ino, O_WRONLY | O_TRUNC)); },
      [&] { return code_of(files.container(ino)); },
      [&] {
        std::byte byte{};
        return code_of(files.read(ino, std::span(&byte, 1), 0));
      },
      [&] { return code_of(files.write({}, ino, std::as_bytes(std::span(value)), 0)); },
      [&] { return code_of(files.seek(ino, 0, SEEK_DATA)); },
      [&] { return code_of(files.fsync(ino, false)); },
      [&] { return code_of(files.allocate({}, ino, 0, 0, 10)); },
      [&] { return code_of(files.setattr({}, ino, {.size = 0})); },
      [&] { return code_of(files.setattr({}, ino, {.mode = 0600})); },
      [&] { return code_of(files.setattr({}, ino, {.uid = 1})); },
      [&] { return code_of(files.setattr({}, ino, {.mtime = stamp_now})); },
      [&] { return code_of(files.setattr({}, ino, {.atime = stamp_now})); },
      [&] { return code_of(files.setxattr({}, ino, "user.a", "b", 0)); },
      [&] { return code_of(files.link({}, ino, root_ino, "linked")); },
      [&] { return code_of(files.rename({}, {root_ino, "file"}, {root_ino, "moved"}, 0)); },
      [&] {
        return code_of(files.rename({}, {root_ino, "other"}, {root_ino, "file"}, RENAME_EXCHANGE));
      },
      [&] { return code_of(files.rename({}, {root_ino, "d"}, {root_ino, "e"}, 0)); },
      [&] { return code_of(s.staging->open_container(ino)); },
      [&] { return code_of(s.staging->mark_changed(ino, "file")); },
  };
  for (std::size_t i = 0; i < operations.size(); ++i) {
    INFO(i);
    CHECK(operations[i]() == not_here_code);
  }
  CHECK(files.servable({ino}).empty());
  CHECK(files.remote_in_rename({root_ino, "d"}, {root_ino, "e"}, 0) ==
        std::vector<std::uint64_t>{below});
  CHECK_FALSE(s.staging->find("file")->pfs.dirty);
  s.fetch(ino);
  s.fetch(below);
  CHECK_FALSE(files.has_remote());
  for (std::size_t i = 0; i < operations.size(); ++i) {
    INFO(i);
    CHECK(operations[i]() != not_here_code);
  }
}

TEST_CASE("a fetched file is clean, has its content and the times of before", "[fs]") {
  const RemoteScene s;
  const auto ino = s.make_remote("file");
  const auto before = s.filesystem->getattr(ino);
  s.fetch(ino);
  const auto after = s.filesystem->getattr(ino);
  CHECK(FileTime(after->attributes.st_mtim) == FileTime(before->attributes.st_mtim));
  CHECK(FileTime(after->attributes.st_atim) == FileTime(before->attributes.st_atim));
  CHECK(FileTime(after->attributes.st_ctim) == FileTime(before->attributes.st_ctim));
  CHECK(s.read(ino) == content);
  const auto item = s.staging->find("file");
  CHECK_FALSE(item->content.remote);
  CHECK_FALSE(item->pfs.dirty);
  CHECK(item->pfs.content == version);
  CHECK(s.staging->begin_fetch(ino)->has_value() == false);
  CHECK(s.staging->remote_totals().bytes == 0);
}

TEST_CASE("a file is remote to every later process until its content was fetched",
          "[fs][recovery][takeover]") {
  RemoteScene s;
  const auto ino = s.make_remote("file");
  const auto b = s.make_remote("b");
  const bool takeover = GENERATE(false, true), snapshot = GENERATE(false, true);
  for (int process = 0; process < 3; ++process) {
    INFO(process);
    CHECK(s.read(ino) == "error " + std::to_string(not_here_code));
    CHECK(s.filesystem->has_remote());
    const auto fetch = s.staging->begin_fetch(ino);
    REQUIRE(fetch);
    CHECK((*fetch)->remote.source == "from/file");
    CHECK((*fetch)->remote.version == version);
    // a part of the content dies with its worker
    REQUIRE((*fetch)->file.container->write(std::as_bytes(std::span("part", 4)), 0) == 4);
    CHECK(s.staging->remote_files(false).size() == 2);
    const auto background = s.staging->remote_files(true);
    REQUIRE(background.size() == 1);
    CHECK(background[0].ino == b);
    CHECK(background[0].priority == 3);
    s.open({.takeover = takeover}, snapshot ? 1 : never);
    REQUIRE(s.filesystem->make_node({}, root_ino, "new" + std::to_string(process), S_IFREG | 0600,
                                    0));  // makes a snapshot
  }
  CHECK((s.filesystem->recovery().journal.first_sequence > 1) == snapshot);
  s.fetch(ino);
  s.open({.takeover = takeover});
  CHECK(s.read(ino) == content);
  CHECK(s.read(b) == "error " + std::to_string(not_here_code));
}

TEST_CASE("a name of a remote file goes without its content, and its fetch ends", "[fs]") {
  const RemoteScene s;
  const auto file = s.make_remote("file"), target = s.make_remote("target");
  const auto fetch = s.staging->begin_fetch(file);
  REQUIRE(s.filesystem->unlink({}, root_ino, "file"));
  CHECK_FALSE(s.staging->is_remote(file));
  CHECK(code_of(s.staging->end_fetch(**fetch)) == ESTALE);
  CHECK(code_of(s.staging->begin_fetch(file)) == ESTALE);
  REQUIRE(s.filesystem->make_node({}, root_ino, "new", S_IFREG | 0600, 0));
  REQUIRE(s.filesystem->rename({}, {root_ino, "new"}, {root_ino, "target"}, 0));
  CHECK(code_of(s.staging->begin_fetch(target)) == ESTALE);
  const auto gone = s.staging->gone();
  CHECK(std::ranges::find(gone, "file", &fs::WalkItem::path) != gone.end());
}

TEST_CASE("a store with a remote file that was unloaded opens again, whatever its snapshot has",
          "[fs][recovery][takeover]") {
  RemoteScene s;
  const auto ino = s.make_remote("file");
  REQUIRE(s.filesystem->lookup(root_ino, "file"));  // the kernel keeps the inode
  REQUIRE(s.staging->remove_clean("file"));
  const bool takeover = GENERATE(false, true);
  for (int process = 0; process < 3; ++process) {
    INFO(process);
    // each change makes a snapshot
    s.open({.takeover = takeover}, 1);
    CHECK_FALSE(s.staging->find("file"));
    CHECK(s.filesystem->exists(ino) == takeover);
    CHECK(code_of(s.filesystem->setattr({}, ino, {.mode = 0600})) ==
          (takeover ? not_here_code : ENOENT));
    CHECK_FALSE(s.filesystem->link({}, ino, root_ino, "linked"));
    REQUIRE(
        s.filesystem->make_node({}, root_ino, "new" + std::to_string(process), S_IFREG | 0600, 0));
  }
  CHECK(s.filesystem->recovery().journal.first_sequence > 1);
  const auto gone = s.staging->gone();
  CHECK(std::ranges::find(gone, "file", &fs::WalkItem::path) == gone.end());
}

TEST_CASE("an unload that is not completed leaves a remote file that can be fetched whole",
          "[fs][takeover]") {
  bool met = true;
  for (std::uint64_t n = 1; met; ++n) {
    RemoteScene s;
    const auto ino = s.make_remote("file");
    {
      const test::FailingNew failing(n);
      try {
        (void)s.staging->remove_clean("file");
      } catch (const std::bad_alloc&) {
      }
      met = failing.met();
    }
    s.open({.takeover = true}, 1);
    REQUIRE(s.filesystem->make_node({}, root_ino, "new", S_IFREG | 0600, 0));  // makes a snapshot
    s.open({.takeover = true});
    const auto item = s.staging->find("file");
    if (!item) {
      continue;
    }
    INFO(n);
    CHECK(item->content.remote);
    CHECK(item->pfs.origin == version);
    CHECK_FALSE(item->pfs.dirty);
    s.fetch(ino);
    CHECK(s.staging->find("file")->pfs.parts.empty());
    CHECK(s.staging->find("file")->pfs.content == version);
  }
}

TEST_CASE("a name on the PFS that another file has taken leaves a remote file as it was", "[fs]") {
  const RemoteScene s;
  const auto ino = s.make_remote("file");
  const fs::PfsName taken{.path = "file", .by = ino + 1};
  const auto still = s.staging->revoke(std::span(&taken, 1), fs::Side::both, {});
  CHECK(still.contains("file"));
  CHECK(s.staging->gone().empty());
  CHECK(s.staging->find("file")->pfs.content == std::nullopt);
  CHECK(s.staging->find("file")->pfs.origin == version);
  // nor does one without a name, which the kernel still knows, stand in the way of a new file
  REQUIRE(s.filesystem->lookup(root_ino, "file"));
  REQUIRE(s.filesystem->unlink({}, root_ino, "file"));
  CHECK(s.staging->revoke(std::span(&taken, 1), fs::Side::both, {}).empty());
}

TEST_CASE("the room of contents that are not here counts as used", "[fs]") {
  const RemoteScene s;
  const auto before = s.filesystem->statfs();
  const auto file = s.staging->begin_open_file();
  constexpr std::uint64_t size = 40960;
  fs::Origin large = version;
  large.size = size;
  const fs::StagedFile staged{
      .ino = file->ino,
      .path = "large",
      .attributes = {.mode = 0600},
      .origin = large,
      .remote = fs::Remote{.version = large, .source = "large", .room = size}};
  Status failed;
  s.staging->publish_files(std::span(&staged, 1), failed);
  REQUIRE(failed);
  CHECK(before.f_bavail - s.filesystem->statfs().f_bavail == size / 4096);
}

TEST_CASE("programs cannot take the room of contents that are not here", "[fs]") {
  const RemoteScene s;
  Filesystem& files = *s.filesystem;
  const auto made = files.make_node({}, root_ino, "made", S_IFREG | 0600, 0);
  REQUIRE(made);
  const std::uint64_t available = *s.staging->available_bytes();
  fs::Origin large = version;
  large.size = available;
  const auto file = s.staging->begin_open_file();
  fs::StagedFile staged{
      .ino = file->ino,
      .path = "large",
      .attributes = {.mode = 0600},
      .origin = large,
      .remote = fs::Remote{.version = large, .source = "large", .room = available - 65536}};
  Status failed;
  s.staging->publish_files(std::span(&staged, 1), failed);
  REQUIRE(failed);
  const std::vector<std::byte> bytes(131072);
  CHECK(files.write({}, made->attributes.st_ino, std::span(bytes).first(4096), 0) == 4096);
  CHECK(files.write({}, made->attributes.st_ino, bytes, 0).error().code == ENOSPC);
  CHECK(files.allocate({}, made->attributes.st_ino, 0, 0, bytes.size()).error().code == ENOSPC);
  CHECK(files.write({}, made->attributes.st_ino, std::span(bytes).first(4096), 0) == 4096);
  // blocks that the file has need no room
  CHECK(files.allocate({}, made->attributes.st_ino, 0, 0, 4096));
  CHECK(files.allocate({}, made->attributes.st_ino, 0, 1024, 2048));
  CHECK(files.allocate({}, made->attributes.st_ino, 0, 0, 4096 + bytes.size()).error().code ==
        ENOSPC);
  CHECK(files.make_node({}, root_ino, "more", S_IFREG | 0600, 0).error().code == ENOSPC);
  // the bytes that a fetch has copied need no reserve any more
  const auto fetch = s.staging->begin_fetch(file->ino);
  REQUIRE((fetch && *fetch));
  const auto reserved = files.statfs().f_bavail;
  (*fetch)->arrived->add(131072);
  CHECK(files.statfs().f_bavail == reserved + 32);
  (*fetch)->arrived->forget();
  CHECK(files.statfs().f_bavail == reserved);
  REQUIRE(files.unlink({}, root_ino, "large"));
  CHECK(files.write({}, made->attributes.st_ino, bytes, 0) == bytes.size());
}

TEST_CASE("another version that is accepted is that of every later process", "[fs]") {
  RemoteScene s;
  const auto file = s.staging->begin_open_file();
  const fs::StagedFile staged{
      .ino = file->ino,
      .path = "file",
      .attributes = {.mode = 0640, .atime = 7, .mtime = version.mtime},
      .origin = version,
      .remote = fs::Remote{.version = version, .source = "file", .accepts = true, .room = 4096}};
  Status failed;
  s.staging->publish_files(std::span(&staged, 1), failed);
  REQUIRE(failed);
  fs::Origin other = version;
  other.inode += 1;
  other.size = 5000;
  other.mtime += 1'000'000'000;
  const auto free = s.filesystem->statfs().f_bavail;
  {
    auto fetch = s.staging->begin_fetch(file->ino);
    REQUIRE((fetch && *fetch));
    CHECK(s.staging->accept_version(**fetch, other, std::uint64_t{1} << 50).error().code == ENOSPC);
    REQUIRE(s.staging->accept_version(**fetch, other, 8192));
    CHECK((*fetch)->remote.version == other);
    CHECK(free - s.filesystem->statfs().f_bavail == 1);
  }
  for (int i = 0; i < 2; ++i) {
    const auto item = s.staging->find("file");
    CHECK((item->content.remote && item->content.accepts_change && !item->pfs.dirty));
    CHECK(item->attributes.st_size == 5000);
    CHECK(to_ns(item->attributes.st_mtim) == other.mtime);
    CHECK(item->pfs.origin == other);
    CHECK(s.staging->remote_totals().bytes == 5000);
    s.open({});
  }
}

TEST_CASE("a remote file may have many extended attributes", "[fs]") {
  const RemoteScene s;
  std::map<std::string, std::string> many;
  for (int i = 0; i < 20; ++i) {
    many["user." + std::to_string(i)] = std::string(60000, 'x');
  }
  const auto ino = s.make_remote("file", many);
  CHECK(s.filesystem->listxattr(ino)->size() == many.size());
  CHECK(s.staging->find("file")->content.remote);
}

TEST_CASE("power loss takes a remote file that is not settled, and leaves one that is",
          "[fs][recovery]") {
  RemoteScene s;
  const bool settles = GENERATE(false, true);
  const auto ino = s.make_remote("file");
  if (settles) {
    REQUIRE(s.filesystem->settle());
  }
  s.open({.after_power_loss = true});
  CHECK(s.filesystem->is_remote(ino) == settles);
  CHECK(s.staging->find("file").has_value() == settles);
}

}  // namespace efs::remote_test
