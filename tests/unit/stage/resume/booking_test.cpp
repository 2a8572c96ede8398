// What is noted of results that are on the PFS.
#include "stage/resume/booking.hpp"

#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>

#include "stage/versions/directory_version.hpp"
#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/live_scene.hpp"

using namespace efs;
using namespace efs::stage;
using stage::test::FaultPfs;
using stage::test::LiveScene;

namespace {

struct Booked : LiveScene {
  /// As a stage-out leaves it, and says.
  void bring_out(const std::string& name, const std::string& content) {
    buffer.write(name, content);
    const auto item = buffer.staging->find(name);
    const std::string path = config.results_dir + "/" + name;
    std::ofstream(path, std::ios::binary) << content;
    const struct timespec times[2] = {item->attributes.st_mtim, item->attributes.st_mtim};
    REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
    receipt.entries.push_back({.path = name, .action = Action::staged_out});
  }
  bool dirty(const std::string& name) const { return buffer.staging->find(name)->dirty; }
  Booking booking(PfsIo& pfs = posix_pfs()) { return {config, *buffer.staging, pfs, nullptr}; }
  Receipt receipt;
};

/// A directory in place, as the job and the PFS have it; what came in had another mode.
struct BookedDirectory : LiveScene {
  BookedDirectory() {
    config.results_dir = config.root_dir;
    struct stat st {};
    REQUIRE(::stat(path().c_str(), &st) == 0);
    REQUIRE(buffer.staging->make_directory("d", {.mode = st.st_mode & 07777U, .uid = st.st_uid, .gid = st.st_gid}));
    REQUIRE(buffer.staging->note_directory("d", came_in));
  }
  std::string path() const { return config.root_dir + "/d"; }
  std::uint64_t noted() const { return buffer.staging->find("d")->origin->size; }
  static constexpr std::uint64_t came_in = 17;
};

}  // namespace

TEST_CASE("what a stage-out has brought back is clean, what it has not stays as it is", "[stage][booking]") {
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
  CHECK(scene.buffer.staging->find("back")->saved.has_value());
  for (const char* name : {"changed", "gone", "failed"}) {
    INFO(name);
    CHECK(scene.dirty(name));
    CHECK_FALSE(scene.buffer.staging->find(name)->saved.has_value());
  }
}

TEST_CASE("what cannot be looked at on the PFS is booked for nothing", "[stage][booking]") {
  Booked scene;
  scene.bring_out("back", "content");
  FaultPfs pfs([](std::uint64_t, const std::string& call, const std::string&) { return call == "lstat" ? EIO : 0; });
  scene.booking(pfs).saved(scene.receipt);
  CHECK(scene.dirty("back"));
  scene.booking(pfs).salvaged();
  CHECK_FALSE(scene.buffer.staging->find("back")->copy.has_value());
}

TEST_CASE("what a salvage has brought out is known for the job's, and stays dirty", "[stage][booking]") {
  Booked scene;
  scene.bring_out("back", "content");
  scene.booking().salvaged();
  CHECK(scene.dirty("back"));
  CHECK(scene.buffer.staging->find("back")->saved.has_value());
}

TEST_CASE("a directory that the PFS has as the job has it is the job's from then on", "[stage][booking]") {
  BookedDirectory scene;
  SECTION("it has") {
    Booking(scene.config, *scene.buffer.staging, posix_pfs(), nullptr).salvaged();
    CHECK(scene.noted() != BookedDirectory::came_in);
  }
  SECTION("somebody has changed it there") {
    REQUIRE(::chmod(scene.path().c_str(), 0711) == 0);
    Booking(scene.config, *scene.buffer.staging, posix_pfs(), nullptr).salvaged();
    CHECK(scene.noted() == BookedDirectory::came_in);
  }
  SECTION("a link has its place there") {
    std::filesystem::rename(scene.path(), scene.top.path() + "/elsewhere");
    std::filesystem::create_directory_symlink(scene.top.path() + "/elsewhere", scene.path());
    Booking(scene.config, *scene.buffer.staging, posix_pfs(), nullptr).salvaged();
    CHECK(scene.noted() == BookedDirectory::came_in);
  }
  SECTION("it cannot be looked at") {
    FaultPfs pfs([](std::uint64_t, const std::string& call, const std::string&) { return call == "xattrs" ? EIO : 0; });
    Booking(scene.config, *scene.buffer.staging, pfs, nullptr).salvaged();
    CHECK(scene.noted() == BookedDirectory::came_in);
  }
  SECTION("results go elsewhere") {
    scene.config.results_dir = scene.top.path() + "/out";
    std::filesystem::create_directory(scene.config.results_dir + "/d");
    Booking(scene.config, *scene.buffer.staging, posix_pfs(), nullptr).salvaged();
    CHECK(scene.noted() == BookedDirectory::came_in);
  }
}
