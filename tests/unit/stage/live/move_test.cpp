// SPDX-License-Identifier: BSD-3-Clause
// Contents that move between two backends while programs run.
#include "stage/live/move.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>

#include "backends/virtual_device.hpp"
#include "unit/stage/live_scene.hpp"

namespace efs::stage::test {
namespace {

constexpr efs::test::StoreKind in_two_places{
    "two places", [](const std::string& directory) {
      VirtualDeviceOptions options{.members = {}, .new_containers = 0, .spill = false};
      for (const char* name : {"one", "two"}) {
        const std::string path = directory + "/" + name;
        ::mkdir(path.c_str(), 0700);
        options.members.push_back({.id = name, .backend = efs::test::open_containers(path)});
      }
      return std::move(*make_virtual_device(std::move(options)));
    }};

struct MoveScene : LiveScene {
  MoveScene() : LiveScene(in_two_places) {}

  Moves move(const std::vector<std::string>& names, unsigned place) {
    Progress progress;
    return move_files({.config = config,
                       .staging = *buffer.staging,
                       .pfs = posix_pfs(),
                       .options = options,
                       .progress = progress},
                      names, place);
  }

  unsigned place_of(const std::string& path) const {
    return buffer.staging->find(path)->content.place;
  }

  struct stat seen(const std::string& path) const {
    return buffer.filesystem->getattr(buffer.ino(path))->attributes;
  }
};

bool has_same_times(const struct stat& one, const struct stat& two) {
  return FileTime(one.st_atim) == FileTime(two.st_atim) &&
         FileTime(one.st_mtim) == FileTime(two.st_mtim) &&
         FileTime(one.st_ctim) == FileTime(two.st_ctim);
}

}  // namespace

TEST_CASE("contents move to another backend and back, and the files stay what they are",
          "[stage][move]") {
  MoveScene s;
  const std::string text(5U << 20U, 'r');
  s.buffer.write("result", text);
  (void)s.in({.names = {"d"}});
  REQUIRE(s.buffer.exists("d/a"));
  const auto before = s.seen("result"), input = s.seen("d/a");
  const auto number = s.buffer.ino("result");
  const auto moved = s.move({"result", "d"}, 1);
  CHECK(moved.files == 3);
  CHECK(moved.failed.empty());
  CHECK(moved.bytes >= text.size());
  for (const char* path : {"result", "d/a", "d/b"}) {
    CHECK(s.place_of(path) == 1);
  }
  CHECK(s.buffer.ino("result") == number);
  CHECK(has_same_times(before, s.seen("result")));
  CHECK(has_same_times(input, s.seen("d/a")));
  CHECK(s.buffer.read("result") == text);
  CHECK(s.buffer.read("d/a") == std::string(3000, 'a'));
  CHECK(s.seen("result").st_size == before.st_size);
  CHECK_FALSE(s.buffer.staging->find("d/a")->due_for_export());
  CHECK(s.move({"result"}, 1).unchanged == 1);
  CHECK(s.leaks_nothing());

  s.buffer.open();
  CHECK(s.place_of("result") == 1);
  CHECK(s.buffer.read("result") == text);
  CHECK(s.leaks_nothing());
  CHECK(s.move({"result"}, 0).files == 1);
  CHECK(s.place_of("result") == 0);
  CHECK(s.buffer.read("result") == text);
  s.buffer.write("result", "new");
  CHECK(s.move({"result"}, 1).files == 1);
  CHECK(s.buffer.read("result") == "new");
  s.buffer.open();
  CHECK(s.buffer.read("result") == "new");
  REQUIRE(s.buffer.filesystem->unlink({}, fs::root_ino, "result"));
  CHECK(s.leaks_nothing());
}

TEST_CASE("holes and reserved space move, too", "[stage][move]") {
  MoveScene s;
  const auto ino = s.buffer.write("sparse", "begin");
  const std::string end = "end";
  {
    const auto opened = s.buffer.filesystem->open({}, ino, O_WRONLY);
    REQUIRE(opened);
    REQUIRE(s.buffer.filesystem->write({}, ino, std::as_bytes(std::span(end)), 64U << 20U));
    efs::test::release(*s.buffer.filesystem, ino, O_WRONLY);
  }
  const auto before = s.seen("sparse");
  REQUIRE(s.move({"sparse"}, 1).files == 1);
  const auto after = s.seen("sparse");
  CHECK(after.st_size == before.st_size);
  CHECK(after.st_blocks < 8192);
  const std::string content = s.buffer.read("sparse");
  CHECK(content.starts_with(std::string("begin\0", 6)));
  CHECK(content.ends_with(std::string("\0end", 4)));
}

TEST_CASE("a file that a program may use stays where it is", "[stage][move]") {
  MoveScene s;
  const auto ino = s.buffer.write("open", "text");
  for (const int flags : {O_RDONLY, O_WRONLY, O_RDWR}) {
    REQUIRE(s.buffer.filesystem->open({}, ino, flags));
    const auto moved = s.move({"open"}, 1);
    REQUIRE(moved.failed.size() == 1);
    CHECK(moved.failed[0].path == "open");
    CHECK(moved.failed[0].error.code == EBUSY);
    efs::test::release(*s.buffer.filesystem, ino, flags);
  }
  CHECK(s.place_of("open") == 0);
  {
    const auto held = s.buffer.backend->open(ino, CachePolicy::only_read);  // as by passthrough
    REQUIRE(held);
    CHECK(s.move({"open"}, 1).failed.at(0).error.code == EBUSY);
  }
  CHECK(s.move({"absent"}, 1).failed.at(0).error.code == ENOENT);
  CHECK(s.move({"open"}, 1).files == 1);
  CHECK(s.leaks_nothing());
}

TEST_CASE("a program that comes during the copy wins", "[stage][move]") {
  MoveScene s;
  const auto ino = s.buffer.write("file", "first");
  const auto begin = [&] {
    auto begun = s.buffer.staging->begin_move("file", 1);
    REQUIRE(begun);
    REQUIRE(*begun);
    return std::move(**begun);
  };
  {
    auto move = begin();
    REQUIRE(s.buffer.filesystem->setattr({}, ino, {.size = 2}));
    CHECK(s.buffer.staging->end_move(std::move(move)).error().code == ESTALE);
    CHECK(s.buffer.read("file") == "fi");
  }
  {
    auto move = begin();
    REQUIRE(s.buffer.filesystem->open({}, ino, O_RDONLY));
    CHECK(s.buffer.staging->end_move(std::move(move)).error().code == EBUSY);
    efs::test::release(*s.buffer.filesystem, ino, O_RDONLY);
  }
  {
    auto move = begin();
    s.buffer.write("file", "second");
    CHECK(s.buffer.staging->end_move(std::move(move)).error().code == ESTALE);
    CHECK(s.buffer.read("file") == "second");
  }
  {
    auto move = begin();
    REQUIRE(s.buffer.filesystem->unlink({}, fs::root_ino, "file"));
    CHECK(s.buffer.staging->end_move(std::move(move)).error().code == ENOENT);
    (void)s.buffer.filesystem->forget(ino, 1);
  }
  s.buffer.write("file", "third");
  auto move = begin();
  s.buffer.staging->abandon_move(std::move(move));
  CHECK(s.buffer.read("file") == "third");
  CHECK(s.place_of("file") == 0);
  CHECK(s.leaks_nothing());
}

TEST_CASE("a pinned file is no candidate for a move, also after a restart", "[stage][move]") {
  MoveScene s;
  s.buffer.write("a", "1");
  s.buffer.write("b", "2");
  REQUIRE(s.buffer.staging->set_pinned("a", true));
  CHECK(s.buffer.staging->set_pinned("absent", true).error().code == ENOENT);
  for (const bool again : {false, true}) {
    if (again) {
      s.buffer.open();
    }
    const auto found = s.buffer.staging->move_candidates(0);
    REQUIRE(found.size() == 1);
    CHECK(found[0].path == "b");
    CHECK(found[0].bytes > 0);
    CHECK(s.buffer.staging->move_candidates(1).empty());
    CHECK(s.buffer.staging->find("a")->content.pinned);
  }
  REQUIRE(s.buffer.staging->set_pinned("a", false));
  CHECK(s.buffer.staging->move_candidates(0).size() == 2);
}

}  // namespace efs::stage::test
