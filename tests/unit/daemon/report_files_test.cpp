// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/report_files.hpp"

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>

#include "report/report.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::daemon;
using namespace std::chrono_literals;
namespace stdfs = std::filesystem;

namespace {

Status write(const std::string& directory, std::string page, std::string names) {
  return write_report_files({.directory = directory,
                             .job = "job",
                             .partial_tag = "",
                             .page = std::move(page),
                             .names = std::move(names)},
                            {}, 60s);
}

}  // namespace

TEST_CASE("report files: those of an earlier stop go, those of the user stay", "[daemon]") {
  const stage::test::Scene scene;
  const std::string page = scene.top + "/efs-report-job.html",
                    names = scene.top + "/efs-report-job.json";
  CHECK(write(scene.top, "", ""));
  const std::string text = report::to_html({});
  CHECK(write(scene.top, text, "{\"efs-report\":1,\"x\":2}"));
  CHECK(stdfs::file_size(page) == text.size());
  CHECK(stdfs::status(names).permissions() ==
        (stdfs::perms::owner_read | stdfs::perms::owner_write));
  CHECK(write(scene.top, text, ""));
  CHECK(stdfs::exists(page));
  CHECK_FALSE(stdfs::exists(names));
  CHECK(write(scene.top, "", ""));
  CHECK_FALSE(stdfs::exists(page));

  std::ofstream(page) << "<!DOCTYPE html>\nmine";
  CHECK(write(scene.top, "", ""));
  CHECK(stdfs::exists(page));
  stdfs::remove(page);
  std::ofstream(scene.top + "/other") << text;
  stdfs::create_symlink("other", page);
  stdfs::create_directory(names);
  CHECK(write(scene.top, "", ""));
  CHECK(stdfs::is_symlink(page));
  CHECK(stdfs::exists(scene.top + "/other"));
  CHECK_FALSE(write(scene.top + "/nowhere", text, ""));
}

TEST_CASE("report files: what root-dir has", "[daemon]") {
  const stage::test::Scene scene;
  const std::string root = scene.top + "/in";
  stdfs::create_directories(root + "/d/e");
  std::ofstream(root + "/d/f") << "12345";
  stdfs::create_symlink("f", root + "/d/link");
  const std::vector<MissedName> names{{.path = "x/f", .source = "d/f"},
                                      {.path = "x/none", .source = "d/none"},
                                      {.path = "x/link", .source = "d/link"},
                                      {.path = "y/e", .source = "d/e"},
                                      {.path = "z/a", .source = "nowhere/a"}};
  const auto found = ask_root_dir(root, names, {}, 60s);
  CHECK(found.unchecked == 0);
  REQUIRE(found.files.size() == 2);
  CHECK(found.files[0].path == "x/f");
  CHECK(found.files[0].bytes == 5);
  CHECK(found.files[1].path == "y/e");
  const auto late = ask_root_dir(root, names, {}, 0s);
  CHECK(late.unchecked == 5);
  CHECK(late.files.empty());
  CHECK(ask_root_dir(root + "/nowhere", names, {}, 60s).files.empty());
}
