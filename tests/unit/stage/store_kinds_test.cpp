// SPDX-License-Identifier: BSD-3-Clause
// A job's whole way on each kind of store: in, through a program, loaded, unloaded, and out; and
// the cache of inputs. No kind may need what only another one has.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <sys/xattr.h>

#include <optional>
#include <set>
#include <thread>

#include "stage/buffer.hpp"
#include "stage/import/cache.hpp"
#include "stage/live/load.hpp"
#include "stage/live/unload.hpp"
#include "support/live_buffer.hpp"
#include "unit/stage/scene.hpp"

namespace efs::stage::store_kinds_test {

using namespace efs::stage::test;
using efs::test::in_files;
using efs::test::in_slab;
using efs::test::LiveBuffer;
using efs::test::StoreKind;

namespace {

constexpr std::uint64_t mebibyte = 1U << 20U;

/// The inputs of a job on the PFS, and its buffer.
struct Job {
  Scene scene;
  LiveBuffer live;
  StagingBuffer buffer{*live.staging};

  explicit Job(const StoreKind& kind) : live(kind) {}

  StageReport in(Cache* cache = nullptr) {
    Progress progress;
    Options options = scene.options;
    options.cache = cache;
    const Plan plan = scene.plan();
    auto report = stage_in(plan, buffer, posix_pfs(), options, progress);
    CHECK(progress.bytes_done == progress.bytes_total);
    return report;
  }

  Receipt out() {
    Progress progress;
    return stage_out(scene.config, buffer, posix_pfs(), scene.options, progress);
  }

  LiveArguments arguments(Progress& progress) {
    return {.config = scene.config,
            .staging = *live.staging,
            .pfs = posix_pfs(),
            .options = scene.options,
            .progress = progress};
  }

  LoadReport load(const LoadRequest& request) {
    Progress progress;
    return stage::load(arguments(progress), request);
  }

  Receipt unload(const UnloadRequest& request) {
    Progress progress;
    return stage::unload(arguments(progress), request);
  }

  std::string result(const std::string& path) const {
    return content_of(scene.results + "/" + path);
  }

  std::uint64_t blocks_of(const std::string& path) const {
    return static_cast<std::uint64_t>(live.staging->find(path)->attributes.st_blocks) * 512;
  }
};

/// Small files, one that several threads copy, a sparse one, an empty one, and links.
void prepare(Scene& scene) {
  for (unsigned i = 0; i < 5; ++i) {
    write_file(scene.root + "/small/f" + std::to_string(i), random_text(5000 + i, i));
  }
  write_file(scene.root + "/large", random_text(33 * mebibyte + 5, 7));
  write_file(scene.root + "/d/sparse", random_text(5000, 8));
  stdfs::resize_file(scene.root + "/d/sparse", 8 * mebibyte);
  write_file(scene.root + "/d/empty", "");
  stdfs::create_symlink("../large", scene.root + "/d/link");
  stdfs::create_hard_link(scene.root + "/large", scene.root + "/d/the same");
  set_mtime(scene.root + "/d/empty", 1'234'567'890'123'456'789);
  (void)::setxattr((scene.root + "/small/f1").c_str(), "user.k", "v", 1, 0);
  for (const auto* resource : {"small", "large", "d"}) {
    scene.resource(resource);
  }
}

/// The paths that differ from the PFS in content, size or time.
std::set<std::string> differing(const Job& job) {
  std::set<std::string> paths;
  const auto items = job.live.staging->walk().value();
  for (const auto& item : items) {
    const std::string source = job.scene.root + "/" + item.path;
    const bool same = !S_ISREG(item.attributes.st_mode) ||
                      (job.live.read(item.path) == content_of(source) && !item.pfs.dirty &&
                       to_ns(item.attributes.st_mtim) == to_ns(stat_of(source).st_mtim));
    if (!same) {
      paths.insert(item.path);
    }
  }
  return paths;
}

}  // namespace

TEST_CASE("stage-in and stage-out on any store", "[stage][stores]") {
  const auto kind = GENERATE(in_files, in_slab);
  INFO(kind.name);
  Job job(kind);
  prepare(job.scene);
  REQUIRE(job.in().ok());
  CHECK(differing(job).empty());
  CHECK(job.blocks_of("d/sparse") < mebibyte);  // holes are kept
  CHECK(job.live.ino("large") == job.live.ino("d/the same"));
  CHECK(job.live.staging->find("small/f1")->xattrs.contains("user.k") ==
        (::getxattr((job.scene.root + "/small/f1").c_str(), "user.k", nullptr, 0) > 0));
  // A program writes, and the instance ends and starts again.
  const std::string large = random_text(35 * mebibyte + 3, 9);
  job.live.write("result", large);
  job.live.write("small/f0", "changed");
  const auto hollow = job.live.write("hollow", "begin");
  REQUIRE(job.live.filesystem->setattr({}, hollow, {.size = 9 * mebibyte}));
  job.live.open();
  CHECK(differing(job) == std::set<std::string>{"hollow", "result", "small/f0"});
  StagingBuffer buffer(*job.live.staging, Writers::refused);
  Progress progress;
  const Receipt receipt =
      stage_out(job.scene.config, buffer, posix_pfs(), job.scene.options, progress);
  REQUIRE(receipt.verdict == Verdict::complete);
  CHECK((job.result("result") == large));
  CHECK(job.result("small/f0") == "changed");
  CHECK(job.result("hollow").size() == 9 * mebibyte);
  CHECK(stat_of(job.scene.results + "/hollow").st_blocks * 512 < 1 << 20);
  CHECK(entry_of(receipt, "result")->checksum->value == hash(large));
  CHECK_FALSE(stdfs::exists(job.scene.results + "/large"));  // clean
  // A second stage-out compares the versions and writes nothing.
  const auto results = snapshot_of(job.scene.results);
  Progress once_more;
  CHECK(stage_out(job.scene.config, buffer, posix_pfs(), job.scene.options, once_more).verdict ==
        Verdict::complete);
  CHECK((snapshot_of(job.scene.results) == results));
}

TEST_CASE("files and parts of files are loaded and unloaded on any store", "[stage][stores]") {
  const auto kind = GENERATE(in_files, in_slab);
  INFO(kind.name);
  Job job(kind);
  prepare(job.scene);
  const std::string large = content_of(job.scene.root + "/large");
  REQUIRE(job.load({.names = {"small", "d"}}).ok());
  CHECK(differing(job).empty());
  REQUIRE(job.load({.names = {"large"}, .part = {mebibyte, mebibyte}}).ok());
  CHECK(job.live.staging->find("large")->pfs.parts == "1048576+1048576");
  const std::string part = job.live.read("large");
  REQUIRE(part.size() == large.size());
  CHECK((part.substr(mebibyte, mebibyte) == large.substr(mebibyte, mebibyte)));
  CHECK((part.substr(0, mebibyte) == std::string(mebibyte, '\0')));
  CHECK(job.blocks_of("large") < 2 * mebibyte);
  REQUIRE(job.load({.names = {"large"}, .replace = true}).ok());
  CHECK(differing(job).empty());
  // Out, whole and in part.
  const std::string data = random_text(3 * mebibyte, 4);
  const auto ino = job.live.write("data", data);
  REQUIRE(job.unload({.names = {"data"}}).verdict == Verdict::complete);
  CHECK((job.result("data") == data));
  CHECK_FALSE(job.live.staging->find("data")->pfs.dirty);
  const std::string patch = random_text(100'000, 5);
  REQUIRE(job.live.filesystem->open({}, ino, O_WRONLY));
  REQUIRE(job.live.filesystem->write({}, ino, std::as_bytes(std::span(patch)), mebibyte) ==
          patch.size());
  efs::test::release(*job.live.filesystem, ino, O_WRONLY);
  const auto receipt = job.unload({.names = {"data"}, .part = {mebibyte, patch.size()}});
  INFO(describe_unload(receipt));
  REQUIRE(receipt.verdict == Verdict::complete);
  std::string expected = data;
  expected.replace(mebibyte, patch.size(), patch);
  CHECK((job.result("data") == expected));
  REQUIRE(job.unload({.names = {"data"}, .remove = true}).verdict == Verdict::complete);
  CHECK_FALSE(job.live.exists("data"));
}

TEST_CASE("a stage-in that does not fit fails on any store and leaves nothing", "[stage][stores]") {
  const StoreKind tiny{
      "tiny slab", [](const std::string& directory) {
        return efs::test::make_slab({.path = directory + "/slab", .size = mebibyte}).value();
      }};
  const StoreKind counted{"counted files", [](const std::string& directory) {
                            return efs::test::open_containers(directory, mebibyte);
                          }};
  const auto kind = GENERATE_COPY(tiny, counted);
  INFO(kind.name);
  Job job(kind);
  write_file(job.scene.root + "/large", random_text(3 * mebibyte, 7));
  job.scene.resource("large");
  const Plan plan = job.scene.plan();
  Progress progress;
  const auto report = stage_in(plan, job.buffer, posix_pfs(), job.scene.options, progress);
  REQUIRE(report.failure);
  CHECK(report.failure->error.code == ENOSPC);
  CHECK(job.live.staging->walk()->empty());
  CHECK(job.live.containers() == 0);
  CHECK(job.live.backend->space().used == 0);
}

TEST_CASE("a store whose containers are no files copies to and from the cache of inputs",
          "[cache][reuse][stores]") {
  Job first(in_slab), second(in_slab), third(in_files);
  const std::string content = random_text(3 * mebibyte, 1);
  const std::string input = first.scene.root + "/data";
  write_file(input, content);
  for (auto* job : {&second, &third}) {
    job->scene.config = first.scene.config;
    job->scene.root = first.scene.root;
  }
  for (auto* job : {&first, &second, &third}) {
    job->scene.resource("data");
    job->scene.config.resources.back().reusable = true;
  }
  const auto cache = std::move(Cache::open(first.scene.top, 64 * mebibyte).value());
  while (to_ns(to_timespec(wall_time())) - to_ns(stat_of(input).st_ctim) < Cache::settling) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const auto stored = first.in(cache.get());
  REQUIRE(stored.ok());
  CHECK(stored.not_kept_reason == "");
  CHECK(stored.reused_files == 0);
  for (auto* job : {&second, &third}) {
    const auto report = job->in(cache.get());
    REQUIRE(report.ok());
    CHECK(report.reused_files == 1);
    CHECK((job->live.read("data") == content));
  }
  // No seal: a change of a container of the first two concerns no one.
  first.live.write("data", "changed");
  CHECK(first.live.read("data") == "changed");
  CHECK((second.live.read("data") == content));
  CHECK(cache->list()->size() == 1);
}

}  // namespace efs::stage::store_kinds_test
