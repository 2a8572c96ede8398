// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch_test_macros.hpp>

#include "fuse/name_table.hpp"

using efs::fuse::NameTable;

TEST_CASE("names grow from the root") {
  NameTable names;
  names.add(2, 1, "a");
  names.add(3, 2, "b");
  CHECK(names.path(1) == "/");
  CHECK(names.path(2) == "/a");
  CHECK(names.path(3) == "/a/b");
  CHECK(names.path(2, "new") == "/a/new");
  CHECK(names.path(1, "new") == "/new");
}

TEST_CASE("what was never named is a number") {
  NameTable names;
  CHECK(names.path(7) == "#7");
  CHECK(names.path(7, "x") == "#7/x");
  names.add(8, 7, "y");
  CHECK(names.path(8) == "#7/y");
  names.add(9, 1, "");  // O_TMPFILE
  CHECK(names.path(9) == "#9");
}

TEST_CASE("a rename moves a file, and all that is below a directory") {
  NameTable names;
  names.add(2, 1, "d");
  names.add(3, 2, "f");
  names.add(4, 1, "e");
  names.rename(1, "d", 4, "d2");
  CHECK(names.path(3) == "/e/d2/f");
  names.rename(2, "f", 1, "f2");
  CHECK(names.path(3) == "/f2");
  names.rename(1, "nosuch", 1, "x");
  CHECK(names.size() == 3);
}

TEST_CASE("a rename over a file leaves the old one its last name") {
  NameTable names;
  names.add(2, 1, "c");
  names.add(3, 1, "c.tmp");
  names.rename(1, "c.tmp", 1, "c");
  CHECK(names.path(3) == "/c");
  CHECK(names.path(2) == "/c");
  names.forget(2, 1);
  CHECK(names.path(3) == "/c");
  names.rename(1, "c", 1, "d");
  CHECK(names.path(3) == "/d");
}

TEST_CASE("of several names the last one counts") {
  NameTable names;
  names.add(2, 1, "one");
  names.add(2, 1, "two");
  CHECK(names.path(2) == "/two");
}

TEST_CASE("names go with the kernel's last reference") {
  NameTable names;
  names.add(2, 1, "a");
  names.add(2, 1, "a");
  names.add(2, 1, "a");
  names.forget(2, 2);
  CHECK(names.path(2) == "/a");
  names.forget(2, 1);
  CHECK(names.path(2) == "#2");
  CHECK(names.size() == 0);
  names.forget(2, 1);
}

TEST_CASE("a loop of names ends") {
  NameTable names;
  names.add(2, 3, "a");
  names.add(3, 2, "b");
  CHECK_FALSE(names.path(2).empty());
}
