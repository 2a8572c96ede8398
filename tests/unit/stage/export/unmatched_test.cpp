// SPDX-License-Identifier: BSD-3-Clause
// New files that a stage-out drops because no output rule matches them are told by name.
#include <catch2/catch_test_macros.hpp>

#include <nlohmann/json.hpp>

#include "stage/export/unmatched.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

TEST_CASE("new files that match no output rule are told, others that are dropped are not",
          "[stage][out][unmatched]") {
  Scene scene;
  scene.config.outputs = {{.pattern = "out/**"},
                          {.pattern = "tmp", .file_class = config::FileClass::temporary}};
  write_file(scene.root + "/in", "input");
  scene.resource("in", config::FileClass::temporary);
  REQUIRE(scene.in().ok());
  scene.buffer.overwrite("in", "changed");
  for (const char* directory : {"out", "tmp", "output"}) {
    scene.buffer.put(directory, S_IFDIR);
  }
  scene.buffer.put("out/a", S_IFREG, "result");
  scene.buffer.put("tmp/b", S_IFREG, "scratch");
  CHECK(unmatched_in(scene.out(), false).is_null());
  scene.buffer.put("output/final.h5", S_IFREG, std::string(3000, 'x'));
  const auto one = unmatched_in(scene.out(), false);
  CHECK(one["text"] ==
        "1 new file (2.93 KiB) matched no output rule and was dropped: output/final.h5");
  CHECK(unmatched_in(scene.out(), true)["text"] ==
        "1 new file (2.93 KiB) matched no output rule and stays in the buffer: output/final.h5");
  for (int i = 1; i <= 4; ++i) {
    scene.buffer.put("f" + std::to_string(i), S_IFREG,
                     std::string(static_cast<std::size_t>(i), 'y'));
  }
  const auto many = unmatched_in(scene.out(), false);
  CHECK(many["files"] == 5);
  CHECK(many["bytes"] == 3010);
  CHECK(many["largest"].size() == 3);
  CHECK(many["text"] ==
        "5 new files (2.939 KiB) matched no output rule and were dropped, the largest: "
        "output/final.h5 (2.93 KiB), f4 (4 B), f3 (3 B)");
}
