// SPDX-License-Identifier: BSD-3-Clause
#include "stage/live/names.hpp"

#include <catch2/catch_test_macros.hpp>

#include "stage/live/range.hpp"
#include "support/live_buffer.hpp"

using namespace efs;
using namespace efs::stage;

TEST_CASE("a path on the mount, of the PFS and relative to root-dir are one name") {
  config::JobConfig config;
  config.root_dir = "/pfs/run";
  config.mount_dir = "/mnt/job";
  for (const char* given : {"a/b", "/pfs/run/a/b", "/mnt/job/a/b", "./a//b/", "/mnt/job//a/./b/"}) {
    CHECK(buffer_name(config, given).value_or("?") == "a/b");
  }
  for (const char* given : {"/pfs/run", "/mnt/job/", "."}) {
    CHECK(buffer_name(config, given).value_or("?").empty());
  }
  for (const char* given :
       {"", "..", "a/../b", "/pfs/run/../x", "/pfs/runs/a", "/mnt", "/etc/passwd"}) {
    CHECK(buffer_name(config, given).error().code == EINVAL);
  }
  CHECK(buffer_name(config, std::string("a\0b", 3)).error().code == EINVAL);
  config.mount_dir = "/pfs/run/mnt";
  CHECK(buffer_name(config, "/pfs/run/mnt/a") == "a");
}

TEST_CASE(
    "a name that is there is no pattern; a pattern takes directories with all that is in them") {
  efs::test::LiveBuffer buffer;
  const auto directory =
      buffer.filesystem->make_node({}, fs::root_ino, "d1", S_IFDIR | 0755, 0)->ino;
  REQUIRE(buffer.filesystem->make_node({}, directory, "x", S_IFREG | 0644, 0));
  buffer.write("d2", "");
  buffer.write("e*", "");
  buffer.write("ex", "");
  const auto paths = [&](const std::string& name) {
    std::string text;
    const auto items = items_of(*buffer.staging, name);
    for (const auto& item : items.value()) {
      text += item.path + " ";
    }
    return text;
  };
  CHECK(paths("d*") == "d1 d1/x d2 ");
  CHECK(paths("d1") == "d1 d1/x ");
  CHECK(paths("d1/*") == "d1/x ");
  CHECK(paths("e*") == "e* ");
  CHECK(paths("") == "d1 d1/x d2 e* ex ");
  CHECK(items_of(*buffer.staging, "f*").error().code == ENOENT);
  CHECK(items_of(*buffer.staging, "f").error().code == ENOENT);
  CHECK(items_of(*buffer.staging, "nosuch/*").error().code == ENOENT);
}

TEST_CASE("parts are clipped, united and told in text") {
  CHECK(clipped({10, 5}, 100) == Part{10, 5});
  CHECK(clipped({10, 0}, 100) == Part{10, 90});
  CHECK(clipped({99, 50}, 100) == Part{99, 1});
  CHECK(clipped({1, UINT64_MAX}, 100) == Part{1, 99});
  CHECK(clipped({100, 1}, 100).error().code == EINVAL);
  CHECK(clipped({0, 1}, 0).error().code == EINVAL);
  const std::vector<Part> two{{0, 10}, {20, 5}};
  CHECK(to_text(two) == "0+10,20+5");
  CHECK(parts_of("0+10,20+5") == two);
  CHECK(united(two, {10, 10}) == std::vector<Part>{{0, 25}});
  CHECK(united(two, {12, 2}) == std::vector<Part>{{0, 10}, {12, 2}, {20, 5}});
  CHECK(united(two, {2, 3}) == two);
  for (const char* bad : {"x", "1", "1+", "1+2;3+4", "+1", "-1+2"}) {
    CHECK(parts_of(bad).empty());
  }
}
