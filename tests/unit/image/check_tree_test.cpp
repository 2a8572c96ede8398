// SPDX-License-Identifier: BSD-3-Clause
// A namespace that replay would never make, since it enforces all this: made by hand.
#include "image/check_tree.hpp"

#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>

namespace efs {
namespace {

enum : std::uint64_t { a_directory = 2, a_file, within, a_link };

// /d/in, /file and /d/again (the same file), /link
fs::Namespace small_tree() {
  fs::Namespace names(0755, 0, 0, 0);
  REQUIRE(names.apply(fs::MakeNode{
      .ino = a_directory, .parent = fs::root_ino, .mode = S_IFDIR | 0755, .name = "d"}));
  REQUIRE(names.apply(
      fs::MakeNode{.ino = a_file, .parent = fs::root_ino, .mode = S_IFREG | 0644, .name = "file"}));
  REQUIRE(names.apply(
      fs::MakeNode{.ino = within, .parent = a_directory, .mode = S_IFDIR | 0755, .name = "in"}));
  REQUIRE(names.apply(fs::MakeNode{.ino = a_link,
                                   .parent = fs::root_ino,
                                   .mode = S_IFLNK | 0777,
                                   .name = "link",
                                   .target = "to"}));
  REQUIRE(names.apply(fs::Link{.ino = a_file, .parent = a_directory, .name = "again"}));
  return names;
}

using Damage = std::vector<std::pair<std::string, std::string>>;

TEST_CASE("names that fit their inodes are counted, and each inode has a path", "[image]") {
  const auto tree = image::check_tree(small_tree());
  CHECK(tree.damage.empty());
  CHECK(tree.files == 1);
  CHECK(tree.directories == 3);
  CHECK(tree.others == 1);
  CHECK(tree.paths.at(within) == "d/in");
}

TEST_CASE("link counts that are not the number of names are found", "[image]") {
  const auto names = small_tree();
  names.find(a_file)->nlink = 3;
  CHECK(image::check_tree(names).damage ==
        Damage{{"file", "has 3 links by the records and 2 by the names"}});
  names.find(a_file)->nlink = 2;
  names.find(a_directory)->nlink = 2;
  CHECK(image::check_tree(names).damage ==
        Damage{{"d", "has 2 links by the records and 3 by the names"}});
  names.find(a_directory)->nlink = 3;
  names.find(a_link)->nlink = 0;
  CHECK(image::check_tree(names).damage ==
        Damage{{"link", "has 0 links by the records and 1 by the names"}});
}

TEST_CASE(
    "a name that leads nowhere, an inode that no name leads to and a directory with two names are "
    "found",
    "[image]") {
  const auto nowhere = small_tree();
  nowhere.root().directory->insert("astray", 77);
  CHECK(image::check_tree(nowhere).damage ==
        Damage{{"astray", "leads to inode 77, which does not exist"}});
  const auto lost = small_tree();
  lost.root().directory->erase("link");
  CHECK(image::check_tree(lost).damage == Damage{{"inode 5", "cannot be reached from the root"}});
  const auto twice = small_tree();
  twice.root().directory->insert("other", within);
  twice.root().nlink += 1;
  CHECK(image::check_tree(twice).damage == Damage{{"d/in", "a directory with two names"}});
  const auto circle = small_tree();
  circle.find(within)->directory->insert("up", fs::root_ino);
  circle.find(within)->nlink += 1;
  CHECK(image::check_tree(circle).damage == Damage{{"d/in/up", "a directory with two names"}});
}

}  // namespace
}  // namespace efs
