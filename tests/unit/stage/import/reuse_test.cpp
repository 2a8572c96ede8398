// SPDX-License-Identifier: BSD-3-Clause
// Stage-in through the cache, into a real file system: what is read from the PFS, counted where it
// is called.
#include "stage/import/reuse.hpp"
#include "stage/buffer.hpp"

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <thread>

#include "stage/import/stage_in.hpp"
#include "support/live_buffer.hpp"
#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

namespace {

/// Waits until the file is so old that the cache takes it.
void let_it_settle(const std::string& path) {
  while (to_ns(to_timespec(wall_time())) - to_ns(stat_of(path).st_ctim) < Cache::settling) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

/// One job: a file system of its own, on the file system that the cache is on.
struct Job {
  std::unique_ptr<InputSharer> sharer;
  efs::test::LiveBuffer live;
  StagingBuffer buffer{*live.staging};
  std::uint64_t reads = 0;
  StageReport report;

  Job(Scene& scene, Cache* cache, int refuse = 0) {
    if (cache != nullptr) {
      sharer = std::make_unique<InputSharer>(*cache, scene.config);
    }
    live.filesystem->share_with(sharer.get());
    std::atomic<std::uint64_t> counted{0};
    FaultPfs pfs([&](std::uint64_t, const std::string& call, const std::string& object) {
      if (call == "read") {
        ++counted;
      }
      return call == "open" && object == "data" ? refuse : 0;
    });
    Options options = scene.options;
    options.cache = cache;
    Progress progress;
    const Plan plan = scene.plan();
    report = stage_in(plan, buffer, pfs, options, progress);
    reads = counted;
    if (report.ok()) {
      CHECK(progress.bytes_done == progress.bytes_total);
    }
  }
};

struct Setting {
  Scene scene;
  std::string input = scene.root + "/data", content = random_text(300'000, 1);
  std::unique_ptr<Cache> cache;

  Setting() {
    write_file(input, content);
    scene.resource("data");
    scene.config.resources.back().reusable = true;
    auto opened = Cache::open(scene.top, 64U << 20U);
    REQUIRE(opened);
    cache = std::move(*opened);
    let_it_settle(input);
  }
};

}  // namespace

TEST_CASE("the second job reads nothing from the PFS, and has the same", "[cache][reuse]") {
  Setting s;
  {
    Job first(s.scene, s.cache.get());
    REQUIRE(first.report.ok());
    CHECK(first.report.not_kept_reason == "");
    CHECK(first.reads > 0);
    CHECK(first.report.reused_bytes == 0);
    const Job other(s.scene, s.cache.get());  // while the first has it in place
    CHECK(other.reads == 0);
    CHECK(other.report.reused_bytes == s.content.size());
    CHECK((other.live.read("data") == s.content));
    CHECK(s.cache->list()->front().in_use);
  }
  Job second(s.scene, s.cache.get());
  REQUIRE(second.report.ok());
  CHECK(second.reads == 0);
  CHECK(second.report.files == 1);
  CHECK(second.report.bytes == s.content.size());
  CHECK(second.report.reused_files == 1);
  CHECK((second.live.read("data") == s.content));
  const auto item = second.live.staging->find("data");
  CHECK_FALSE(item->pfs.dirty);
  CHECK(to_ns(item->attributes.st_mtim) == to_ns(stat_of(s.input).st_mtim));
  CHECK(item->pfs.origin->ctime == to_ns(stat_of(s.input).st_ctim));
}

TEST_CASE("without a cache, or without the word, every job reads the PFS", "[cache][reuse]") {
  Setting s;
  CHECK(Job(s.scene, nullptr).reads > 0);
  s.scene.config.resources.back().reusable = false;
  CHECK(Job(s.scene, s.cache.get()).reads > 0);
  CHECK(Job(s.scene, s.cache.get()).reads > 0);
  CHECK(s.cache->list()->empty());
}

TEST_CASE("an input that changed is read anew", "[cache][reuse]") {
  Setting s;
  CHECK(Job(s.scene, s.cache.get()).report.ok());
  SECTION("its content, with mtime put back") {
    const auto before = to_ns(stat_of(s.input).st_mtim);
    s.content[7] = static_cast<char>(s.content[7] + 1);
    write_file(s.input, s.content);
    set_mtime(s.input, before);
  }
  SECTION("its size") {
    write_file(s.input, s.content += "more");
  }
  SECTION("another file has its name") {
    const auto before = to_ns(stat_of(s.input).st_mtim);
    write_file(s.input + ".new", s.content = random_text(300'000, 2));
    set_mtime(s.input + ".new", before);
    stdfs::rename(s.input + ".new", s.input);
  }
  Job again(s.scene, s.cache.get());
  REQUIRE(again.report.ok());
  CHECK(again.reads > 0);
  CHECK(again.report.reused_files == 0);
  CHECK((again.live.read("data") == s.content));
}

TEST_CASE("what the user may not open any more is refused, cached or not", "[cache][reuse]") {
  Setting s;
  CHECK(Job(s.scene, s.cache.get()).report.ok());
  const Job refused(s.scene, s.cache.get(), EACCES);
  REQUIRE_FALSE(refused.report.ok());
  CHECK(refused.report.failure->error.code == EACCES);
  CHECK_FALSE(refused.live.exists("data"));
}

TEST_CASE("a write in place changes neither the cache nor what the next job gets",
          "[cache][reuse]") {
  Setting s;
  CHECK(Job(s.scene, s.cache.get()).report.ok());
  Job job(s.scene, s.cache.get());
  REQUIRE(job.reads == 0);
  auto& filesystem = *job.live.filesystem;
  const auto ino = job.live.ino("data");
  SECTION("by write") {
    REQUIRE(filesystem.open({}, ino, O_RDWR));
    REQUIRE(filesystem.write({}, ino, std::as_bytes(std::span("changed")), 0));
  }
  SECTION("by truncate") {
    REQUIRE(filesystem.setattr({}, ino, {.size = 3}));
  }
  SECTION("by fallocate") {
    REQUIRE(filesystem.allocate({}, ino, 0, 0, 1U << 20U));
  }
  SECTION("of its times") {
    REQUIRE(filesystem.setattr({}, ino, {.mtime = FileTime(Nanoseconds{77})}));
  }
  SECTION("after a restart that knows nothing of the cache any more") {
    job.live.open();
    job.live.write("data", "changed");
    Job after(s.scene, s.cache.get());
    CHECK(after.reads > 0);  // the entry was dropped, because no process could copy it
    CHECK((after.live.read("data") == s.content));
    return;
  }
  const Job next(s.scene, s.cache.get());
  REQUIRE(next.report.ok());
  CHECK(next.reads == 0);
  CHECK((next.live.read("data") == s.content));
  CHECK(job.live.staging->find("data")->pfs.dirty);
}

TEST_CASE("readers that had the file open see what the first writer writes", "[cache][reuse]") {
  Setting s;
  CHECK(Job(s.scene, s.cache.get()).report.ok());
  Job job(s.scene, s.cache.get());
  auto& filesystem = *job.live.filesystem;
  const auto ino = job.live.ino("data");
  // the kernel reads this descriptor by itself
  const auto reader = filesystem.open({}, ino, O_RDONLY);
  REQUIRE(reader);
  REQUIRE(reader->passthrough);
  const UniqueFd own(::fcntl(*(*filesystem.container(ino))->descriptor(), F_DUPFD_CLOEXEC, 0));
  {
    std::vector<std::jthread> writers;  // two first opens at once
    for (int i = 0; i < 2; ++i) {
      writers.emplace_back([&, i] {
        const auto opened = filesystem.open({}, ino, O_WRONLY);
        const char byte = static_cast<char>('x' + i);
        if (opened) {
          (void)!::pwrite(*(*filesystem.container(ino))->descriptor(), &byte, 1, i);
        }
      });
    }
  }
  char bytes[2]{};
  CHECK(::pread(own.get(), bytes, 2, 0) == 2);
  CHECK(std::string(bytes, 2) == "xy");
  const Job next(s.scene, s.cache.get());
  CHECK(next.reads == 0);
  CHECK((next.live.read("data") == s.content));
}

TEST_CASE("a file that has lost what says where it came from is parted all the same",
          "[cache][reuse]") {
  Setting s;
  CHECK(Job(s.scene, s.cache.get()).report.ok());
  Job job(s.scene, s.cache.get());
  REQUIRE(job.reads == 0);
  auto& filesystem = *job.live.filesystem;
  const auto ino = job.live.ino("data");
  const auto held = stat_of(s.input);
  SECTION("unloaded, and kept under a name of the job's own") {
    REQUIRE(filesystem.link({}, ino, fs::root_ino, "mine"));
    REQUIRE(job.live.staging->remove_clean("data"));
  }
  SECTION("renamed, and its removal was carried out") {
    REQUIRE(filesystem.rename({}, {fs::root_ino, "data"}, {fs::root_ino, "mine"}, 0));
    REQUIRE(job.live.staging->forget_gone({"data"}));
  }
  SECTION("the same, known from the journal only") {
    REQUIRE(filesystem.rename({}, {fs::root_ino, "data"}, {fs::root_ino, "mine"}, 0));
    REQUIRE(job.live.staging->forget_gone({"data"}));
    job.live.open();
  }
  const auto opened = job.live.filesystem->open({}, job.live.ino("mine"), O_RDWR);
  REQUIRE(opened);
  const auto container = job.live.filesystem->container(job.live.ino("mine"));
  REQUIRE(::pwrite(*(*container)->descriptor(), "changed", 7, 0) == 7);
  const std::array<timespec, 2> times{held.st_atim, held.st_mtim};  // as cp -p would
  REQUIRE(::futimens(*(*container)->descriptor(), times.data()) == 0);
  const Job next(s.scene, s.cache.get());
  REQUIRE(next.report.ok());
  CHECK((next.live.read("data") == s.content));
}

TEST_CASE("an input with several names stays in the cache when it is changed", "[cache][reuse]") {
  Setting s;
  stdfs::create_hard_link(s.input, s.scene.root + "/other");
  s.scene.resource("other");
  s.scene.config.resources.back().reusable = true;
  let_it_settle(s.input);
  CHECK(Job(s.scene, s.cache.get()).report.ok());
  Job job(s.scene, s.cache.get());
  REQUIRE(job.reads == 0);
  job.live.write("other", "changed");
  const Job next(s.scene, s.cache.get());
  REQUIRE(next.report.ok());
  CHECK(next.reads == 0);
  CHECK((next.live.read("data") == s.content));
}

TEST_CASE("attributes that are only the job's leave the cache alone", "[cache][reuse]") {
  Setting s;
  CHECK(Job(s.scene, s.cache.get()).report.ok());
  Job job(s.scene, s.cache.get());
  REQUIRE(job.live.filesystem->setattr({}, job.live.ino("data"), {.mode = 0600}));
  CHECK(s.cache->list()->front().in_use);  // nothing was copied
  job.live.write("data", "changed");       // although it was dirty already
  const Job next(s.scene, s.cache.get());
  CHECK(next.reads == 0);
  CHECK((next.live.read("data") == s.content));
}

TEST_CASE("a cache that fails in any way fails no stage-in", "[cache][reuse]") {
  Setting s;
  CHECK(Job(s.scene, s.cache.get()).report.ok());
  stdfs::remove_all(s.cache->path());
  SECTION("its directory is gone") {}
  SECTION("its state is no file") {
    stdfs::create_directories(s.cache->path() + "/state");
    auto opened = Cache::open(s.scene.top, {}, false);
    if (opened) {
      s.cache = std::move(*opened);
    }
  }
  const Job job(s.scene, s.cache.get());
  CHECK(job.report.ok());
  CHECK(job.reads > 0);
  CHECK(job.report.not_kept == 1);
  CHECK((job.live.read("data") == s.content));
}
