// The staging itself under power loss, not only what it asks of the file system: a stage-in, a program, a load and a stage-out, and
// the end of the world before each event of the store and before each call to the PFS, which lives on.
#include <fcntl.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>

#include "fs/filesystem.hpp"
#include "fs/staging.hpp"
#include "stage/load.hpp"
#include "stage/stage_in.hpp"
#include "stage/stage_out.hpp"
#include "support/no_threads.hpp"
#include "support/sim_backend.hpp"
#include "support/sim_medium.hpp"
#include "support/temp.hpp"
#include "unit/stage/fault_pfs.hpp"

namespace efs::staging_crash_test {

using fs::Filesystem;
namespace stdfs = std::filesystem;

namespace {

const std::string changed = "what the program made of it", result = std::string(20'000, 'r');

struct Pfs {
  test::TempDirectory top{"/dev/shm"};
  std::map<std::string, std::string> inputs{{"a", std::string(3000, 'a')}, {"d/b", std::string(9000, 'b')}, {"d/b2", std::string(9000, 'b')}, {"d/empty", ""}, {"d/sparse", std::string(300'000, '\0') + "end"}, {"late", std::string(500, 'l')}};
  config::JobConfig config;

  Pfs() {
    config.name = "job";
    config.root_dir = top.path() + "/in";
    config.results_dir = top.path() + "/out";
    config.mount_dir = top.path() + "/mnt";
    stdfs::create_directories(config.root_dir + "/d");
    stdfs::create_directory(config.results_dir);
    for (const auto& [path, content] : inputs) {
      if (path == "d/b2") stdfs::create_hard_link(config.root_dir + "/d/b", config.root_dir + "/d/b2");
      else if (path == "d/sparse") write(path, "end", 300'000);
      else write(path, content, 0);
    }
    stdfs::create_symlink("b", config.root_dir + "/d/link");
    for (const char* path : {"a", "d"}) {
      config::Resource resource;
      resource.path = config.root_dir + "/" + path;
      resource.file_class = config::FileClass::persistent;
      config.resources.push_back(resource);
    }
  }
  void write(const std::string& path, const std::string& content, std::streamoff at) const { std::ofstream(config.root_dir + "/" + path, std::ios::binary).seekp(at) << content; }
  void clear_results() const {
    for (const auto& entry : stdfs::directory_iterator(config.results_dir)) stdfs::remove_all(entry.path());
  }
  std::map<std::string, std::string> results() const {
    std::map<std::string, std::string> found;
    for (const auto& entry : stdfs::recursive_directory_iterator(config.results_dir)) {
      std::ifstream file(entry.path(), std::ios::binary);
      if (entry.is_regular_file()) found[stdfs::relative(entry.path(), config.results_dir).string()] = {std::istreambuf_iterator<char>(file), {}};
    }
    return found;
  }
};

// One life of the daemon. What it has finished, power loss may not take back.
struct Daemon {
  test::SimWorld& world;
  const Pfs& pfs;
  bool staged_in = false, written = false, loaded = false, staged_out = false;
  test::SimBackend backend{world};
  std::unique_ptr<Filesystem> filesystem;
  stage::test::FaultPfs calls{[this](std::uint64_t, const std::string&, const std::string&) { return world.event("PFS"), 0; }};
  stage::Options options{.workers = 1, .transfer_size = 64U << 10U};

  void open(bool after_power_loss) {
    auto opened = Filesystem::open(backend, {.medium = std::make_shared<test::SimMedium>(world), .after_power_loss = after_power_loss});
    REQUIRE(opened);
    filesystem = std::move(*opened);
  }
  // The staging takes the end of the world for a failure; REQUIRE would, too, so that nothing is called within it.
  void live_on() const {
    if (world.ended()) throw test::PowerLoss{};
  }
  void stage_in() {
    const auto plan = stage::make_plan(pfs.config, stage::posix_pfs());
    REQUIRE(plan);
    fs::Staging staging(*filesystem);
    stage::StagingBuffer buffer(staging);
    stage::Progress progress;
    const auto report = stage::stage_in(*plan, buffer, calls, options, progress);
    live_on();
    INFO((report.failure ? report.failure->path + ": " + describe(report.failure->error) : ""));
    REQUIRE(report.ok());
    const Status settled = filesystem->settle();
    REQUIRE(settled);
    staged_in = true;
  }
  void write(std::uint64_t ino, const std::string& content) {
    const bool done = filesystem->open({}, ino, O_RDWR) && filesystem->setattr({}, ino, {.size = 0}) && filesystem->write({}, ino, std::as_bytes(std::span(content)), 0) && filesystem->fsync(ino, false);
    REQUIRE(done);
    filesystem->release(ino, O_RDWR);
  }
  void run_program() {
    write(fs::Staging(*filesystem).find("a")->ino, changed);
    const auto there = fs::Staging(*filesystem).find("result");
    const auto made = there ? Result<fs::Entry>(fs::Entry{.ino = there->ino}) : filesystem->make_node({}, fs::root_ino, "result", S_IFREG | 0644, 0);
    REQUIRE(made);
    write(made->ino, result);
    written = true;
  }
  void load() {
    fs::Staging staging(*filesystem);
    stage::Progress progress;
    const auto report = stage::load(pfs.config, {.names = {"late"}}, staging, calls, options, progress);
    live_on();
    REQUIRE(report.ok());
    const Status settled = filesystem->settle();
    REQUIRE(settled);
    loaded = true;
  }
  void stage_out() {
    fs::Staging staging(*filesystem);
    stage::StagingBuffer buffer(staging);
    stage::Progress progress;
    const auto receipt = stage::stage_out(pfs.config, buffer, calls, options, progress);
    live_on();
    INFO(stage::describe(receipt));
    REQUIRE(receipt.verdict == stage::Verdict::complete);
    staged_out = true;
  }
  std::map<std::string, fs::WalkItem> files() const {
    std::map<std::string, fs::WalkItem> found;
    const auto items = fs::Staging(*filesystem).walk();
    REQUIRE(items);
    for (const auto& item : *items) found[item.path] = item;
    return found;
  }
  std::string content(std::uint64_t ino) const { return world.find(ino)->visible; }
};

// Never a half file, in the buffer or at results-dir; and all that was finished.
void check(const Daemon& before, const Daemon& now) {
  const auto files = now.files();
  // On a page-cache file system what the program does to "a" before its fsync may be on the medium before the record that it is dirty.
  const bool at_work = before.staged_in && !before.written && now.world.durability() == Durability::page;
  for (const auto& [path, item] : files)
    if (S_ISREG(item.attributes.st_mode) && !item.dirty && (path != "a" || !at_work)) CHECK((now.content(item.ino) == now.pfs.inputs.at(path)));
  if (before.staged_in)
    for (const char* path : {"a", "d/b", "d/b2", "d/empty", "d/sparse", "d/link"}) CHECK(files.contains(path));
  if (before.staged_in) CHECK(files.at("d/b").ino == files.at("d/b2").ino);
  if (before.loaded) CHECK(files.contains("late"));
  if (before.written) {
    CHECK((now.content(files.at("a").ino) == changed));
    CHECK((now.content(files.at("result").ino) == result));
  }
  const auto results = now.pfs.results();
  for (const auto& [path, content] : results)
    if (!path.ends_with(".efs-partial")) CHECK((content == (path == "result" ? result : path == "a" ? changed : "unexpected")));
  if (before.staged_out) CHECK(results.size() == 2);
}

// True: it was over before event `n`.
bool one_life(const Pfs& pfs, Durability durability, std::uint64_t seed, std::uint64_t n) {
  pfs.clear_results();
  test::SimWorld world(durability, seed);
  world.gives_descriptors = true;
  Daemon first{.world = world, .pfs = pfs};
  bool complete = false;
  try {
    first.open(false);
    world.end_before(world.events() + n);
    first.stage_in();
    first.run_program();
    first.load();
    first.stage_out();
    complete = true;
  } catch (const test::PowerLoss&) {}
  world.end_before(0);
  first.filesystem.reset();
  world.crash();
  Daemon second{.world = world, .pfs = pfs};
  second.open(true);
  check(first, second);
  // It goes on where it was.
  if (!first.staged_in) second.stage_in();
  if (!first.written) second.run_program();
  if (!first.loaded) second.load();
  second.stage_out();
  check(second, second);
  return complete;
}

}  // namespace

TEST_CASE("power loss at any event of a stage-in, a load and a stage-out, and at any call to the PFS", "[crash]") {
  const auto seed = test::seed();
  const test::NoThreads none;  // all calls come from one thread, and the end of the world goes through it
  const Pfs pfs;
  for (const auto durability : {Durability::cache_line, Durability::page}) {
    std::uint64_t n = 1;
    for (;; ++n) {
      INFO("EFS_TEST_SEED=" << seed << ", end before event " << n << (durability == Durability::page ? ", page cache" : ", persistent memory"));
      if (one_life(pfs, durability, seed + n, n)) break;
    }
    CHECK(n > 60);
  }
}

}  // namespace efs::staging_crash_test
