// SPDX-License-Identifier: BSD-3-Clause
// Two files with the same bytes of a device. No release makes such files yet.
#include "image/check_extents.hpp"

#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <string>

namespace efs::check_extents_test {

namespace {

// Files 2, 3, ..., each with one extent of 10 bytes at its place of the device.
fs::Namespace files_at(const std::vector<std::uint64_t>& devices) {
  fs::Namespace names(0755, 0, 0, 0);
  std::uint64_t ino = 2;
  for (const auto device : devices) {
    REQUIRE(names.apply(fs::MakeNode{.ino = ino,
                                     .parent = fs::root_ino,
                                     .mode = S_IFREG | 0600,
                                     .name = "f" + std::to_string(ino)}));
    REQUIRE(names.apply(fs::SetContent{
        .ino = ino, .size = 10, .physical = 10, .end = 10, .extents = {{0, device, 10}}}));
    ++ino;
  }
  return names;
}

std::optional<unsigned> same_place(std::uint64_t /*ino*/) {
  return 0;
}

using Found = std::vector<image::SharedByte>;

}  // namespace

TEST_CASE("two files whose content is in the same place of a device are found", "[image]") {
  CHECK(image::find_shared_bytes(files_at({4096, 4106}), same_place).empty());
  CHECK(image::find_shared_bytes(files_at({4096, 4105}), same_place) == Found{{3, 2, 4105}});
  CHECK(image::find_shared_bytes(files_at({4105, 8192, 4096}), same_place) == Found{{2, 4, 4105}});
}

TEST_CASE("files in other backends, or without a container, share nothing", "[image]") {
  const auto names = files_at({4096, 4096});
  CHECK(image::find_shared_bytes(names, same_place).size() == 1);
  CHECK(image::find_shared_bytes(names, [](std::uint64_t ino) {
          return std::optional(static_cast<unsigned>(ino));
        }).empty());
  CHECK(image::find_shared_bytes(names, [](std::uint64_t ino) {
          return ino == 2 ? std::optional(0U) : std::nullopt;
        }).empty());
}

}  // namespace efs::check_extents_test
