// SPDX-License-Identifier: BSD-3-Clause
// Staging under power loss: not only its calls to the file system, but a stage-in, a program, a
// load, an unload and a stage-out. The world ends before each event of the store and before each
// call to the PFS, which survives. Also proves that the test notices if one kind of these events
// has no effect.
#include <fcntl.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>

#include "fs/filesystem.hpp"
#include "fs/staging.hpp"
#include "stage/buffer.hpp"
#include "stage/export/stage_out.hpp"
#include "stage/import/stage_in.hpp"
#include "stage/live/load.hpp"
#include "stage/live/unload.hpp"
#include "support/file_text.hpp"
#include "support/no_threads.hpp"
#include "support/open_handles.hpp"
#include "support/sim_backend.hpp"
#include "support/sim_medium.hpp"
#include "support/temp.hpp"
#include "unit/stage/fault_pfs.hpp"

namespace efs::staging_crash_test {

using fs::Filesystem;
namespace stdfs = std::filesystem;

namespace {

const std::string changed = "what the program made of it", result = std::string(20'000, 'r'),
                  unsynced = std::string(7000, 'u');

// A violation ends the life. It is thrown, not required: a violation that a lie causes must not
// fail the test.
struct Wrong {
  std::string what;
};

void must(bool held, const std::string& what) {
  if (!held) {
    throw Wrong{what};
  }
}

template <typename Answer>
void must(const Answer& answer, const std::string& what) {
  if (!answer) {
    throw Wrong{what + ": " + describe(answer.error())};
  }
}

struct Pfs {
  test::TempDirectory top{"/dev/shm"};
  std::map<std::string, std::string> inputs{{"a", std::string(3000, 'a')},
                                            {"d/b", std::string(9000, 'b')},
                                            {"d/b2", std::string(9000, 'b')},
                                            {"d/empty", ""},
                                            {"d/sparse", std::string(300'000, '\0') + "end"},
                                            {"late", std::string(500, 'l')}};
  config::JobConfig config;

  Pfs() {
    config.name = "job";
    config.root_dir = top.path() + "/in";
    config.results_dir = top.path() + "/out";
    config.mount_dir = top.path() + "/mnt";
    stdfs::create_directories(config.root_dir + "/d");
    stdfs::create_directory(config.results_dir);
    for (const auto& [path, content] : inputs) {
      if (path == "d/b2") {
        stdfs::create_hard_link(config.root_dir + "/d/b", config.root_dir + "/d/b2");
      } else if (path == "d/sparse") {
        write(path, "end", 300'000);
      } else {
        write(path, content, 0);
      }
    }
    stdfs::create_symlink("b", config.root_dir + "/d/link");
    for (const char* path : {"a", "d"}) {
      config::Resource resource;
      resource.path = config.root_dir + "/" + path;
      resource.file_class = config::FileClass::persistent;
      config.resources.push_back(resource);
    }
  }

  void write(const std::string& path, const std::string& content, std::streamoff at) const {
    std::ofstream(config.root_dir + "/" + path, std::ios::binary).seekp(at) << content;
  }

  void clear_results() const {
    for (const auto& entry : stdfs::directory_iterator(config.results_dir)) {
      stdfs::remove_all(entry.path());
    }
  }

  std::map<std::string, std::string> results() const {
    std::map<std::string, std::string> found;
    for (const auto& entry : stdfs::recursive_directory_iterator(config.results_dir)) {
      if (entry.is_regular_file()) {
        found[stdfs::relative(entry.path(), config.results_dir).string()] =
            test::file_text(entry.path());
      }
    }
    return found;
  }
};

// One life of the daemon. Power loss must not undo its finished work.
struct Daemon {
  test::SimWorld& world;
  const Pfs& pfs;
  bool staged_in = false, written = false, loaded = false, careless = false, unloaded = false,
       staged_out = false;
  test::SimBackend backend{world};
  std::unique_ptr<Filesystem> filesystem;
  stage::test::FaultPfs calls{[this](std::uint64_t, const std::string&, const std::string&) {
    return world.event("PFS"), 0;
  }};
  stage::Options options{.workers = 1, .transfer_size = 64U << 10U, .partial_tag = ".0123456789ab"};

  ~Daemon() { world.end_before(0); }  // the rest is cleanup of the test

  void open(bool after_power_loss) {
    auto opened = Filesystem::open(backend, {.medium = std::make_shared<test::SimMedium>(world),
                                             .after_power_loss = after_power_loss});
    must(opened, "it cannot be opened");
    options.has_a_past = after_power_loss;
    filesystem = std::move(*opened);
  }

  // Staging takes the end of the world for a failure and continues.
  void live_on() const {
    if (world.ended()) {
      throw test::PowerLoss{};
    }
  }

  void stage_in() {
    const auto plan = stage::make_plan(pfs.config, stage::posix_pfs());
    must(plan, "plan");
    fs::Staging staging(*filesystem);
    stage::StagingBuffer buffer(staging);
    stage::Progress progress;
    const auto report = stage::stage_in(*plan, buffer, calls, options, progress);
    live_on();
    must(report.ok(),
         "stage-in: " +
             (report.failure ? report.failure->path + ": " + describe(report.failure->error) : ""));
    must(filesystem->settle(), "settle");
    staged_in = true;
  }

  void write(std::uint64_t ino, const std::string& content, bool synced = true) {
    must(filesystem->open({}, ino, O_RDWR), "open");
    must(filesystem->setattr({}, ino, {.size = 0}), "truncate");
    must(filesystem->write({}, ino, std::as_bytes(std::span(content)), 0), "write");
    if (synced) {
      must(filesystem->fsync(ino, false), "fsync");
    }
    test::release(*filesystem, ino, O_RDWR);
  }

  void run_program() {
    const auto input = fs::Staging(*filesystem).find("a");
    must(input, "a");
    write(input->ino, changed);
    write(made("result"), result);
    written = true;
  }

  void be_careless() {
    write(made("unsynced"), unsynced, false);
    careless = true;
  }

  std::uint64_t made(const std::string& name) {
    if (const auto there = fs::Staging(*filesystem).find(name)) {
      return there->ino;
    }
    const auto made = filesystem->make_node({}, fs::root_ino, name, S_IFREG | 0644, 0);
    must(made, name);
    return made->ino;
  }

  void load() {
    fs::Staging staging(*filesystem);
    stage::Progress progress;
    const auto report = stage::load({.config = pfs.config,
                                     .staging = staging,
                                     .pfs = calls,
                                     .options = options,
                                     .progress = progress},
                                    {.names = {"late"}});
    live_on();
    must(report.ok(),
         "load: " +
             (report.failure ? report.failure->path + ": " + describe(report.failure->error) : ""));
    must(filesystem->settle(), "settle");
    loaded = true;
  }

  void unload() {
    fs::Staging staging(*filesystem);
    stage::Progress progress;
    const auto receipt = stage::unload({.config = pfs.config,
                                        .staging = staging,
                                        .pfs = calls,
                                        .options = options,
                                        .progress = progress},
                                       {.names = {"result", "unsynced"}});
    live_on();
    must(receipt.verdict == stage::Verdict::complete, "unload: " + stage::describe_unload(receipt));
    unloaded = true;
  }

  void stage_out() {
    fs::Staging staging(*filesystem);
    stage::StagingBuffer buffer(staging);
    stage::Progress progress;
    const auto receipt = stage::stage_out(pfs.config, buffer, calls, options, progress);
    live_on();
    must(receipt.verdict == stage::Verdict::complete, "stage-out: " + stage::describe(receipt));
    staged_out = true;
  }

  bool has_lost(const std::string& path) const {
    fs::Staging staging(*filesystem);
    const auto item = staging.find(path);
    return item && staging.lost_its_content(*item);
  }

  std::map<std::string, fs::WalkItem> files() const {
    std::map<std::string, fs::WalkItem> found;
    const auto items = fs::Staging(*filesystem).walk();
    must(items, "walk");
    for (const auto& item : *items) {
      found[item.path] = item;
    }
    return found;
  }

  std::string content(std::uint64_t ino) const { return world.find(ino)->visible; }
};

// results-dir never has a half file, and has every result reported as exported.
void check_results(const Daemon& before, const std::map<std::string, std::string>& results) {
  for (const auto& [path, content] : results) {
    must(path.ends_with(".efs-partial") || path == "unsynced" ||
             content == (path == "result" ? result
                         : path == "a"    ? changed
                                          : "unexpected"),
         path + " at results-dir has another content");
  }
  must(!before.unloaded || results.contains("result"), "what was unloaded is not at results-dir");
  std::string names;
  for (const auto& [path, content] : results) {
    names += " " + path;
  }
  must(!before.staged_out || results.size() == 2 + results.count("unsynced"),
       "at results-dir there is" + names);
}

// The buffer never has a half file either, and has all finished work.
void check(const Daemon& before, const Daemon& now) {
  const auto files = now.files();
  // On a page-cache file system, the program's writes to "a" before its fsync may reach the medium
  // before the record that the file is dirty.
  const bool at_work =
      before.staged_in && !before.written && now.world.durability() == Durability::page;
  const auto is_whole = [&](const std::string& path, const std::string& content) {
    const auto input = now.pfs.inputs.find(path);
    // files damaged by an earlier power loss are exported as they are
    return (input != now.pfs.inputs.end() && content == input->second) ||
           (before.written &&
            ((path == "a" && content == changed) || (path == "result" && content == result) ||
             (path == "unsynced" && (content == unsynced || &before == &now))));
  };
  for (const auto& [path, item] : files) {
    must(!S_ISREG(item.attributes.st_mode) || item.pfs.dirty || (path == "a" && at_work) ||
             is_whole(path, now.content(item.ino)),
         path + " is clean, and not what the PFS has");
  }
  if (before.staged_in) {
    for (const char* path : {"a", "d/b", "d/b2", "d/empty", "d/sparse", "d/link"}) {
      must(files.contains(path), std::string(path) + ", staged in, is gone");
    }
    must(files.at("d/b").ino == files.at("d/b2").ino, "a hard link is gone");
  }
  must(!before.loaded || files.contains("late"), "late, loaded, is gone");
  const auto results = now.pfs.results();
  check_results(before, results);
  if (!before.written) {
    return;
  }
  // A result that is exported and not settled may be missing in the buffer: results-dir has it.
  for (const auto& [path, content] : {std::pair{"a", changed}, {"result", result}}) {
    must(files.contains(path) ? now.content(files.at(path).ino) == content : results.contains(path),
         std::string(path) + " is not what the program wrote");
  }
}

// Runs a life that ends before event `n`, and the next one. Returns the violation; "" if there is
// none. Sets `complete` if the life was over before that event.
std::string one_life(const Pfs& pfs, Durability durability, std::uint64_t seed, std::uint64_t n,
                     const test::Lies& lies, bool& complete) try {
  pfs.clear_results();
  complete = false;
  test::SimWorld world(durability, seed);
  world.lie(lies);
  Daemon first{.world = world, .pfs = pfs};
  try {
    first.open(false);
    world.end_before(world.events() + n);
    first.stage_in();
    first.run_program();
    first.load();
    first.be_careless();
    first.unload();
    first.stage_out();
    complete = true;
  } catch (const test::PowerLoss&) {
  }
  world.end_before(0);
  first.filesystem.reset();
  world.crash();
  const auto out = pfs.results();
  Daemon second{.world = world, .pfs = pfs};
  second.open(true);
  check(first, second);
  // Continues after the last finished step.
  if (!first.staged_in) {
    second.stage_in();
  }
  if (!first.written) {
    second.run_program();
  }
  if (!first.loaded) {
    second.load();
  }
  // A file that power loss made empty is no result until a program writes it again.
  if (!first.careless || (second.has_lost("unsynced") && !out.contains("unsynced"))) {
    second.be_careless();
  }
  if (!first.unloaded && second.files().contains("result") && second.files().contains("unsynced")) {
    second.unload();
  }
  second.stage_out();
  second.staged_in = second.written = second.loaded = second.unloaded = true;
  check(second, second);
  // Power loss may erase data that the program did not sync, but not its copy in results-dir.
  if (out.contains("unsynced")) {
    must(out.at("unsynced") == unsynced && pfs.results()["unsynced"] == unsynced,
         "what was at results-dir was replaced by what power loss left of it");
  }
  return {};
} catch (const Wrong& wrong) {
  return wrong.what;
}

bool is_noticed(const Pfs& pfs, Durability durability, const test::Lies& lies) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    bool complete = false;
    for (std::uint64_t n = 1; !complete; ++n) {
      if (!one_life(pfs, durability, seed + n, n, lies, complete).empty()) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

TEST_CASE(
    "power loss at any event of a stage-in, a load, an unload and a stage-out, and at any call to "
    "the PFS",
    "[crash]") {
  const auto seed = test::seed();
  // all calls come from one thread, so the end of the world passes through it
  const test::NoThreads none;
  const Pfs pfs;
  for (const auto durability : {Durability::cache_line, Durability::page}) {
    std::uint64_t n = 0;
    for (bool complete = false; !complete;) {
      ++n;
      INFO("EFS_TEST_SEED=" << seed << ", end before event " << n
                            << (durability == Durability::page ? ", page cache"
                                                               : ", persistent memory"));
      const std::string wrong = one_life(pfs, durability, seed + n, n, {}, complete);
      REQUIRE(wrong == "");
    }
    CHECK(n > 80);
  }
}

TEST_CASE(
    "it is noticed when an event of a stage-in, a load, an unload and a stage-out makes nothing "
    "durable",
    "[crash][bites]") {
  const test::NoThreads none;
  const Pfs pfs;
  for (const char* event : {"data sync", "all data sync", "container name sync", "names sync"}) {
    for (const auto durability : {Durability::cache_line, Durability::page}) {
      INFO(event << (durability == Durability::page ? ", page cache" : ", persistent memory"));
      CHECK(is_noticed(pfs, durability, {.deaf = event}));
    }
  }
  CHECK(is_noticed(pfs, Durability::cache_line, {.deaf = "drain"}));
  CHECK(is_noticed(pfs, Durability::page, {.deaf = "journal sync"}));
}

}  // namespace efs::staging_crash_test
