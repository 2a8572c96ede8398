// SPDX-License-Identifier: BSD-3-Clause
#include "stage/pfs/existing_names.hpp"

#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "unit/stage/scene.hpp"

using namespace efs::stage;
using namespace efs::stage::test;

namespace {

// Asked for "DIRECTORY/0" to "DIRECTORY/COUNT-1": how many may be there.
int present(ExistingNames& names, const std::string& directory, int count) {
  int there = 0;
  for (int i = 0; i < count; ++i) {
    there += names.may_be_there(directory + std::to_string(i)) ? 1 : 0;
  }
  return there;
}

void expect(ExistingNames& names, const std::string& directory, int count) {
  for (int i = 0; i < count; ++i) {
    names.expect(directory + std::to_string(i));
  }
}

}  // namespace

TEST_CASE("present names: of what is asked for only what is there may be", "[stage]") {
  Scene scene;
  stdfs::create_directories(scene.results + "/d/sub");
  write_file(scene.results + "/d/7", "x");
  write_file(scene.results + "/3", "x");
  write_file(scene.results + "/file", "x");
  stdfs::create_symlink("nowhere", scene.results + "/d/8");
  ExistingNames names(scene.results);
  for (const auto* directory : {"", "d/", "d/sub/", "none/", "file/"}) {
    expect(names, directory, 10);
  }
  CHECK(present(names, "", 10) == 1);
  CHECK(names.may_be_there("3"));
  CHECK(present(names, "d/", 10) == 2);
  CHECK((names.may_be_there("d/7") && names.may_be_there("d/8")));
  CHECK(present(names, "d/sub/", 10) == 0);
  CHECK(present(names, "none/", 10) == 0);
  CHECK(present(names, "file/", 10) == 0);
}

TEST_CASE("present names: what a list does not tell, or not cheaply, may be there", "[stage]") {
  Scene scene;
  for (const auto* directory : {"large", "few"}) {
    stdfs::create_directories(scene.results + "/" + directory);
  }
  for (int i = 0; i < 200; ++i) {
    write_file(scene.results + "/large/other" + std::to_string(i), "");
  }
  ExistingNames names(scene.results);
  expect(names, "large/", 10);
  expect(names, "few/", 2);
  CHECK(present(names, "large/", 10) == 10);
  CHECK(present(names, "few/", 2) == 2);
}
