// SPDX-License-Identifier: BSD-3-Clause
#include "fs/room_ahead.hpp"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "backends/fsdax.hpp"
#include "fs/filesystem.hpp"
#include "support/open_handles.hpp"
#include "support/temp.hpp"

using namespace efs;
using fs::Filesystem;
using fs::RoomAhead;

namespace {

constexpr std::uint64_t mebibyte = 1U << 20U;

Space room_space(std::uint64_t capacity, std::uint64_t available) {
  return {.capacity = capacity, .used = capacity - available, .available = available};
}

class RoomScene {
 public:
  explicit RoomScene(std::uint64_t capacity = 256 * mebibyte)
      : backend(open_containers(directory.path(), capacity)) {
    begin(false);
  }

  // Files that the kernel may write to.
  static std::unique_ptr<Backend> open_containers(const std::string& path, std::uint64_t capacity) {
    const std::string data = path + "/data";
    ::mkdir(data.c_str(), 0700);
    FsdaxOptions options;
    options.directory.reset(::open(data.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    options.capacity = capacity;
    return std::move(make_fsdax(std::move(options)).value());
  }

  void begin(bool takeover) {
    filesystem.reset();
    filesystem = std::move(
        *Filesystem::open(*backend, {.metadata_directory = metadata.get(), .takeover = takeover}));
  }

  std::uint64_t make(const std::string& name, int flags = O_WRONLY) {
    const auto ino = filesystem->make_node({}, fs::root_ino, name, S_IFREG | 0644, 0)->ino;
    REQUIRE(filesystem->open({}, ino, flags));
    return ino;
  }

  /// A file with `size` bytes, and room of 2 MiB.
  std::uint64_t make_with_room(const std::string& name, int flags = O_WRONLY) {
    const auto ino = make(name, flags);
    append(ino, 0, size, 4096);
    CHECK(filesystem->room().take(ino, 4 * mebibyte) == size + RoomAhead::most);
    CHECK(bytes_of(ino) == size + RoomAhead::most);
    return ino;
  }

  void append(std::uint64_t ino, std::uint64_t from, std::uint64_t bytes, std::size_t step) {
    const std::vector<std::byte> data(step, std::byte{1});
    for (std::uint64_t at = from; at < from + bytes; at += step) {
      const auto n = filesystem->with_room([&] { return filesystem->write({}, ino, data, at); });
      REQUIRE(n == step);
    }
  }

  struct stat look(std::uint64_t ino) { return filesystem->getattr(ino)->attributes; }

  std::uint64_t bytes_of(std::uint64_t ino) {
    return static_cast<std::uint64_t>(look(ino).st_blocks) * 512;
  }

  static constexpr std::uint64_t size = 128U << 10U;  // bytes
  test::TempDirectory directory{"/dev/shm"};
  UniqueFd metadata = directory.open();
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Filesystem> filesystem;
};

}  // namespace

TEST_CASE("room ahead: how much is granted", "[fs][room]") {
  const auto free = room_space(1000 * mebibyte, 600 * mebibyte);
  CHECK(RoomAhead::grant(free, 0, mebibyte) == mebibyte);
  CHECK(RoomAhead::grant(free, 0, 1000 * mebibyte) == 2 * mebibyte);
  CHECK(RoomAhead::grant(free, 49 * mebibyte, 1000 * mebibyte) == mebibyte);
  CHECK(RoomAhead::grant(free, 50 * mebibyte, mebibyte) == 0);
  CHECK(RoomAhead::grant(free, 60 * mebibyte, mebibyte) == 0);
  CHECK(RoomAhead::grant(free, 0, 100) == 0);
  CHECK(RoomAhead::grant(room_space(1000 * mebibyte, 250 * mebibyte), 0, mebibyte) == mebibyte);
  CHECK(RoomAhead::grant(room_space(1000 * mebibyte, 249 * mebibyte), 0, mebibyte) == 0);
  CHECK(RoomAhead::grant(room_space(0, 0), 0, mebibyte) == 0);
}

TEST_CASE("room ahead: is taken for appends and given back at the last close", "[fs][room]") {
  RoomScene scene;
  const auto ino = scene.make_with_room("file");
  const auto before = scene.look(ino);
  CHECK(before.st_size == RoomScene::size);
  CHECK(scene.filesystem->room().has(ino));
  SECTION("as it is") {
    test::release(*scene.filesystem, ino, O_WRONLY);
    const auto after = scene.look(ino);
    CHECK(after.st_size == before.st_size);
    CHECK(FileTime(after.st_mtim) == FileTime(before.st_mtim));
    CHECK(FileTime(after.st_ctim) == FileTime(before.st_ctim));
    CHECK(scene.bytes_of(ino) == RoomScene::size);
  }
  SECTION("with another writer") {
    REQUIRE(scene.filesystem->open({}, ino, O_WRONLY));
    test::release(*scene.filesystem, ino, O_WRONLY);
    CHECK(scene.bytes_of(ino) > 2 * mebibyte);
    test::release(*scene.filesystem, ino, O_WRONLY);
    CHECK(scene.bytes_of(ino) == RoomScene::size);
  }
  SECTION("used up, and taken again") {
    CHECK(scene.filesystem->room().take(ino, mebibyte).error().code == EAGAIN);
    scene.append(ino, RoomScene::size, RoomAhead::most, 65536);
    CHECK(scene.filesystem->room().take(ino, mebibyte) == RoomScene::size + 3 * mebibyte);
    test::release(*scene.filesystem, ino, O_WRONLY);
    CHECK(scene.bytes_of(ino) == RoomScene::size + RoomAhead::most);
  }
  SECTION("all but used up, in pieces that are no pages") {
    scene.append(ino, RoomScene::size, RoomAhead::most - 60000, 1000);
    const auto end = static_cast<std::uint64_t>(scene.look(ino).st_size);
    CHECK(scene.filesystem->room().take(ino, mebibyte).value() >= end + mebibyte);
    test::release(*scene.filesystem, ino, O_WRONLY);
    CHECK(scene.bytes_of(ino) == (end + 4095) / 4096 * 4096);
  }
  SECTION("cut, and appended to again") {
    REQUIRE(scene.filesystem->setattr({}, ino, {.size = 4096}));
    CHECK(scene.filesystem->room().take(ino, mebibyte) == mebibyte + 4096);
    test::release(*scene.filesystem, ino, O_WRONLY);
    CHECK(scene.bytes_of(ino) == 4096);
  }
  SECTION("cut, and longer again") {
    REQUIRE(scene.filesystem->setattr({}, ino, {.size = 4096}));
    REQUIRE(scene.filesystem->setattr({}, ino, {.size = 8 * mebibyte}));
    test::release(*scene.filesystem, ino, O_WRONLY);
    CHECK(scene.bytes_of(ino) == 4096);
  }
  CHECK_FALSE(scene.filesystem->room().has(ino));
}

TEST_CASE("room ahead: the death of the owner gives it back", "[fs][room][opens]") {
  RoomScene scene;
  const auto first = scene.make_with_room("first"), second = scene.make_with_room("second");
  scene.filesystem->close_all({});
  CHECK(scene.bytes_of(first) == RoomScene::size);
  CHECK(scene.bytes_of(second) == RoomScene::size);
  CHECK(scene.filesystem->open_files().count([](const fs::OpenFile&) { return true; }) == 0);
}

// What a program skips of its room is a hole again.
TEST_CASE("room ahead: a program that seeks on gets no more", "[fs][room]") {
  RoomScene scene;
  const auto ino = scene.make_with_room("file");
  scene.append(ino, mebibyte, 4096, 4096);
  CHECK(scene.filesystem->room().take(ino, mebibyte).error().code == EAGAIN);
  scene.append(ino, 5 * mebibyte, 4096, 4096);
  CHECK(scene.filesystem->room().take(ino, mebibyte).error().code == EAGAIN);
  test::release(*scene.filesystem, ino, O_WRONLY);
  CHECK(scene.bytes_of(ino) == RoomScene::size + 8192);
  CHECK(scene.look(ino).st_size == 5 * mebibyte + 4096);
}

// The room stays and counts; a recovery leaves the reservation alone.
TEST_CASE("room ahead: a program that reserves space keeps it", "[fs][room]") {
  RoomScene scene;
  const auto ino = scene.make_with_room("file");
  REQUIRE(scene.filesystem->allocate({}, ino, FALLOC_FL_KEEP_SIZE, 0, 4 * mebibyte));
  CHECK(scene.filesystem->room().take(ino, mebibyte).error().code == EAGAIN);
  test::release(*scene.filesystem, ino, O_WRONLY);
  CHECK(scene.bytes_of(ino) == 4 * mebibyte);
  CHECK(scene.filesystem->room().has(ino));
  scene.begin(false);
  CHECK(scene.bytes_of(ino) == 4 * mebibyte);
}

TEST_CASE("room ahead: only of a file that is open for writing", "[fs][room]") {
  RoomScene scene;
  const auto ino = scene.make("file");
  CHECK(scene.filesystem->room().take(ino, mebibyte) == mebibyte);
  test::release(*scene.filesystem, ino, O_WRONLY);
  CHECK(scene.bytes_of(ino) == 0);
  CHECK(scene.filesystem->room().take(ino, mebibyte).error().code == EAGAIN);
  CHECK_FALSE(scene.filesystem->room().take(fs::root_ino, mebibyte));
}

TEST_CASE("room ahead: all together have a limit, which removed files leave", "[fs][room]") {
  RoomScene scene(100 * mebibyte);
  std::vector<std::uint64_t> files;
  for (int i = 0; i < 5; ++i) {
    files.push_back(scene.make("f" + std::to_string(i)));
  }
  CHECK(scene.filesystem->room().take(files[0], 2 * mebibyte) == 2 * mebibyte);
  CHECK(scene.filesystem->room().take(files[1], 2 * mebibyte) == 2 * mebibyte);
  CHECK(scene.filesystem->room().take(files[2], 2 * mebibyte) == mebibyte);
  CHECK(scene.filesystem->room().take(files[3], 2 * mebibyte).error().code == EAGAIN);
  REQUIRE(scene.filesystem->unlink({}, fs::root_ino, "f0"));
  test::release(*scene.filesystem, files[0], O_WRONLY);
  CHECK(scene.filesystem->forget(files[0], 1).gone);
  scene.filesystem->remove_put_off();
  CHECK(scene.filesystem->room().take(files[3], 2 * mebibyte) == 2 * mebibyte);
}

// While a descriptor can write to the container, by passthrough or by a mapping, nothing is given
// back.
TEST_CASE("room ahead: what may be mapped keeps it until it is not", "[fs][room]") {
  RoomScene scene;
  const auto ino = scene.make_with_room("file", O_RDWR);
  UniqueFd writer;
  for (const auto& one : std::filesystem::recursive_directory_iterator(scene.directory.path())) {
    if (one.is_regular_file() && one.file_size() == RoomScene::size) {
      writer.reset(::open(one.path().c_str(), O_RDWR | O_CLOEXEC));
    }
  }
  REQUIRE(writer);
  test::release(*scene.filesystem, ino, O_RDWR);
  CHECK(scene.bytes_of(ino) > 2 * mebibyte);
  scene.filesystem->free_removed();
  CHECK(scene.bytes_of(ino) > 2 * mebibyte);
  writer.reset();
  scene.filesystem->free_removed();
  CHECK(scene.bytes_of(ino) == RoomScene::size);
}

TEST_CASE("room ahead: a recovery takes back what a dead process left", "[fs][room]") {
  RoomScene scene;
  const auto ino = scene.make_with_room("file");
  SECTION("a takeover leaves it: the file may be open") {
    scene.begin(true);
    CHECK(scene.bytes_of(ino) > 2 * mebibyte);
    CHECK(scene.filesystem->room().take(ino, mebibyte).error().code == EAGAIN);
    const auto other = scene.make("other");
    CHECK(scene.filesystem->room().take(other, mebibyte) == mebibyte);
    scene.filesystem->free_removed();
    CHECK(scene.bytes_of(ino) > 2 * mebibyte);
    scene.begin(false);
  }
  SECTION("a start") {
    scene.begin(false);
  }
  CHECK(scene.bytes_of(ino) == RoomScene::size);
  CHECK(scene.look(ino).st_size == RoomScene::size);
}
