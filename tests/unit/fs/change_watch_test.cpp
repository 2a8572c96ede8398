// SPDX-License-Identifier: BSD-3-Clause
#include "fs/change_watch.hpp"

#include <fcntl.h>
#include <linux/fs.h>

#include <catch2/catch_test_macros.hpp>

#include <string>

#include "support/live_buffer.hpp"
#include "support/open_handles.hpp"

namespace efs::fs {
namespace {

using efs::test::LiveBuffer;

/// The calls as text.
struct Noted final : ChangeWatch {
  explicit Noted(Filesystem& filesystem) : filesystem_(filesystem) { filesystem.watch(this); }

  ~Noted() override { filesystem_.watch(nullptr); }

  void closed(std::uint64_t ino) noexcept override { text += "closed " + number(ino); }

  void changed(std::uint64_t ino) noexcept override { text += "changed " + number(ino); }

  void named(std::uint64_t ino, std::uint64_t parent, std::string_view name) noexcept override {
    text += "named " + std::to_string(parent) + "/" + std::string(name) + " " + number(ino);
  }

  void moved(std::uint64_t parent, std::string_view name) noexcept override {
    text += "moved " + std::to_string(parent) + "/" + std::string(name) + ";";
  }

  std::string take() { return std::exchange(text, ""); }

  static std::string number(std::uint64_t ino) { return std::to_string(ino) + ";"; }

  std::string text;
  Filesystem& filesystem_;
};

TEST_CASE("the watch learns of names", "[drain]") {
  LiveBuffer buffer;
  auto& files = *buffer.filesystem;
  Noted noted(files);
  const auto f = files.make_node({}, root_ino, "f", S_IFREG | 0644, 0)->ino;
  CHECK(noted.take() == "named 1/f " + Noted::number(f));
  const auto d = files.make_node({}, root_ino, "d", S_IFDIR | 0755, 0)->ino;
  CHECK(noted.take() == "");
  const auto l = files.make_symlink({}, d, "l", "target")->ino;
  CHECK(noted.take() == "named " + std::to_string(d) + "/l " + Noted::number(l));
  REQUIRE(files.link({}, f, d, "g"));
  CHECK(noted.take() == "named " + std::to_string(d) + "/g " + Noted::number(f));
  REQUIRE(files.rename({}, {root_ino, "f"}, {d, "l"}, 0));
  CHECK(noted.take() == "named " + std::to_string(d) + "/l " + Noted::number(f));
  REQUIRE(files.rename({}, {root_ino, "d"}, {root_ino, "e"}, 0));
  CHECK(noted.take() == "moved 1/e;");
  const auto h = files.make_node({}, root_ino, "h", S_IFREG | 0644, 0)->ino;
  (void)noted.take();
  REQUIRE(files.rename({}, {root_ino, "h"}, {root_ino, "e"}, RENAME_EXCHANGE));
  CHECK(noted.take() == "named 1/e " + Noted::number(h) + "moved 1/h;");
  REQUIRE(files.unlink({}, root_ino, "e"));
  CHECK(noted.take() == "");
}

TEST_CASE("the watch learns of the last close for writing, and of attributes", "[drain]") {
  LiveBuffer buffer;
  auto& files = *buffer.filesystem;
  const auto f = files.make_node({}, root_ino, "f", S_IFREG | 0644, 0)->ino;
  Noted noted(files);
  const auto one = files.open({}, f, O_WRONLY)->handle, other = files.open({}, f, O_RDWR)->handle,
             reader = files.open({}, f, O_RDONLY)->handle;
  REQUIRE(files.release(one));
  CHECK(noted.take() == "");
  REQUIRE(files.release(other));
  CHECK(noted.take() == "closed " + Noted::number(f));
  REQUIRE(files.release(reader));
  CHECK(noted.take() == "");
  REQUIRE(files.setattr({}, f, {.mode = 0600}));
  CHECK(noted.take() == "changed " + Noted::number(f));
  REQUIRE(files.setxattr({}, f, "user.a", "1", 0));
  CHECK(noted.take() == "changed " + Noted::number(f));
}

TEST_CASE("the watch learns of an open that makes a clean file dirty, and not of what staging does",
          "[drain]") {
  LiveBuffer buffer;
  auto& files = *buffer.filesystem;
  const auto f = buffer.write("f", "1");
  Noted noted(files);
  REQUIRE(buffer.staging->record_copy("f", {.device = 1, .inode = 2}, false));
  REQUIRE(buffer.staging->mark_saved("f", {.device = 1, .inode = 2}, false));
  CHECK(noted.take() == "");
  const auto handle = files.open({}, f, O_WRONLY)->handle;
  CHECK(noted.take() == "changed " + Noted::number(f));
  files.watch(nullptr);
  REQUIRE(files.release(handle));
  CHECK(noted.take() == "");
}

}  // namespace
}  // namespace efs::fs
