// SPDX-License-Identifier: BSD-3-Clause
// The records of results on the PFS.
#include "stage/resume/booking.hpp"

#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>

#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/live_scene.hpp"

using namespace efs;
using namespace efs::stage;
using stage::test::FaultPfs;
using stage::test::LiveScene;

namespace {

struct Booked : LiveScene {
  /// Acts as a stage-out: exports the file and adds its entry.
  void bring_out(const std::string& name, const std::string& content) {
    buffer.write(name, content);
    const auto item = buffer.staging->find(name);
    const std::string path = config.results_dir + "/" + name;
    std::ofstream(path, std::ios::binary) << content;
    const struct timespec times[2] = {item->attributes.st_mtim, item->attributes.st_mtim};
    REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
    receipt.entries.push_back({.path = name, .action = Action::staged_out});
  }

  bool dirty(const std::string& name) const { return buffer.staging->find(name)->pfs.dirty; }

  Booking booking(PfsIo& pfs = posix_pfs()) {
    return {config, *buffer.staging, pfs, guarded_publisher(), nullptr};
  }

  Receipt receipt;
};

}  // namespace

TEST_CASE("what a stage-out has brought back is clean, what it has not stays as it is",
          "[stage][booking]") {
  Booked scene;
  scene.bring_out("back", "content");
  scene.bring_out("changed", "content");
  std::ofstream(scene.config.results_dir + "/changed", std::ios::app) << "more";
  scene.bring_out("gone", "content");
  std::filesystem::remove(scene.config.results_dir + "/gone");
  scene.bring_out("failed", "content");
  scene.receipt.entries.back().action = Action::failed;
  scene.booking().saved(scene.receipt);
  CHECK_FALSE(scene.dirty("back"));
  CHECK(scene.buffer.staging->find("back")->pfs.saved.has_value());
  for (const char* name : {"changed", "gone", "failed"}) {
    INFO(name);
    CHECK(scene.dirty(name));
    CHECK_FALSE(scene.buffer.staging->find(name)->pfs.saved.has_value());
  }
}

TEST_CASE("what cannot be looked at on the PFS is booked for nothing", "[stage][booking]") {
  Booked scene;
  scene.bring_out("back", "content");
  FaultPfs pfs([](std::uint64_t, const std::string& call, const std::string&) {
    return call == "lstat" ? EIO : 0;
  });
  scene.booking(pfs).saved(scene.receipt);
  CHECK(scene.dirty("back"));
  scene.booking(pfs).salvaged();
  CHECK_FALSE(scene.buffer.staging->find("back")->pfs.copy.has_value());
}

TEST_CASE("what a salvage has brought out is known for the job's, and stays dirty",
          "[stage][booking]") {
  Booked scene;
  scene.bring_out("back", "content");
  scene.booking().salvaged();
  CHECK(scene.dirty("back"));
  CHECK(scene.buffer.staging->find("back")->pfs.saved.has_value());
}
