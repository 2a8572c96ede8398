// SPDX-License-Identifier: BSD-3-Clause
// Stage-in under death: the process is killed at every call to the PFS, by SIGKILL. Here the buffer
// is the real one, with its journal: what a killed stage-in leaves is what recovery finds. And
// every allocation of memory fails.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <sys/xattr.h>

#include <optional>
#include <set>

#include "fs/filesystem.hpp"
#include "stage/buffer.hpp"
#include "stage/import/stage_in.hpp"
#include "support/short_of_memory.hpp"
#include "support/staged_file.hpp"
#include "support/store_kinds.hpp"
#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

namespace {

constexpr std::uint64_t mebibyte = 1U << 20U;

/// A store in a directory: made by the process that is killed, opened again by the test.
struct RealStore {
  explicit RealStore(const std::string& path,
                     const efs::test::StoreKind& kind = efs::test::in_files) {
    for (const auto& part : {path, path + "/meta"}) {
      stdfs::create_directory(part);
    }
    metadata.reset(::open((path + "/meta").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    backend = kind.open(path);
    filesystem = std::move(*fs::Filesystem::open(*backend, {.metadata_directory = metadata.get()}));
  }

  UniqueFd metadata;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<fs::Filesystem> filesystem;
};

/// Some of each: small files in one task, one that is copied by two threads, a sparse one, an empty
/// one, links, an empty directory, and a glob.
void prepare(Scene& scene) {
  scene.options = {.workers = 2, .transfer_size = 4 * mebibyte};
  for (int i = 0; i < 3; ++i) {
    write_file(scene.root + "/small/f" + std::to_string(i),
               random_text(5000, static_cast<unsigned>(i)));
  }
  write_file(scene.root + "/large", random_text(33 * mebibyte, 7));
  write_file(scene.root + "/d/sparse", "start");
  stdfs::resize_file(scene.root + "/d/sparse", 300'000);
  write_file(scene.root + "/d/empty", "");
  stdfs::create_symlink("../large", scene.root + "/d/link");
  stdfs::create_directory(scene.root + "/d/nothing");
  set_mtime(scene.root + "/d/empty", 1'234'567'890'123'456'789);
  for (const auto* resource : {"small/f*", "large", "d"}) {
    scene.resource(resource);
  }
}

/// The same with two names of one file and attributes, and as little of each as will do: it is done
/// a thousand times.
void prepare_little(Scene& scene) {
  scene.options = {.workers = 1, .transfer_size = mebibyte};
  for (int i = 0; i < 3; ++i) {
    write_file(scene.root + "/small/a file with a longer name " + std::to_string(i),
               random_text(5000, static_cast<unsigned>(i)));
  }
  write_file(scene.root + "/large", random_text(2 * mebibyte, 7));
  write_file(scene.root + "/d/sparse", "start");
  stdfs::resize_file(scene.root + "/d/sparse", 300'000);
  stdfs::create_symlink("../large", scene.root + "/d/link");
  stdfs::create_hard_link(scene.root + "/large", scene.root + "/d/the same file");
  for (const char* path : {"/d", "/large"}) {
    REQUIRE(::setxattr((scene.root + path).c_str(), "user.k", "value", 5, 0) == 0);
  }
  for (const auto* resource : {"small", "large", "d"}) {
    scene.resource(resource);
  }
}

/// All that a change to the source tree would show in; atime is the reader's.
std::map<std::string, std::string> state_of(const std::string& directory) {
  std::map<std::string, std::string> state;
  for (const auto& entry : stdfs::recursive_directory_iterator(directory)) {
    const std::string path = entry.path().string();
    const auto st = stat_of(path);
    std::string& text = state[path];
    for (const auto number :
         {static_cast<std::int64_t>(st.st_ino), static_cast<std::int64_t>(st.st_mode),
          static_cast<std::int64_t>(st.st_nlink), static_cast<std::int64_t>(st.st_uid),
          static_cast<std::int64_t>(st.st_gid), static_cast<std::int64_t>(st.st_size),
          static_cast<std::int64_t>(to_ns(st.st_mtim)),
          static_cast<std::int64_t>(to_ns(st.st_ctim))}) {
      text += std::to_string(number) + " ";
    }
    if (S_ISLNK(st.st_mode)) {
      text += stdfs::read_symlink(path).string();
    }
    if (S_ISREG(st.st_mode)) {
      text += content_of(path);
    }
  }
  return state;
}

/// Returns the number of names + 1 if every name of the store leads to the whole input with its
/// times; otherwise 0.
std::size_t whole_names(const Scene& scene, RealStore& store) {
  fs::Staging staging(*store.filesystem);
  const auto items = staging.walk();
  if (!items) {
    return 0;
  }
  for (const auto& item : *items) {
    const std::string source = scene.root + "/" + item.path;
    const auto st = stat_of(source);
    if ((st.st_mode & S_IFMT) != (item.attributes.st_mode & S_IFMT)) {
      return 0;
    }
    if (S_ISLNK(st.st_mode) && item.target != stdfs::read_symlink(source).string()) {
      return 0;
    }
    if (!S_ISREG(st.st_mode)) {
      continue;
    }
    if (to_ns(st.st_mtim) != to_ns(item.attributes.st_mtim) || item.pfs.dirty) {
      return 0;
    }
    const std::string expected = content_of(source);
    std::string found(expected.size() + 1, '\0');
    const auto n = store.filesystem->read(item.ino, std::as_writable_bytes(std::span(found)), 0);
    if (!n || *n != expected.size() || found.compare(0, *n, expected) != 0) {
      return 0;
    }
  }
  return items->size() + 1;
}

/// Containers that no name leads to.
std::size_t leaks(RealStore& store) {
  std::set<std::uint64_t> named;
  const auto items = fs::Staging(*store.filesystem).walk().value();
  for (const auto& item : items) {
    if (S_ISREG(item.attributes.st_mode)) {
      named.insert(item.ino);
    }
  }
  std::size_t containers = 0;
  (void)store.backend->for_each([&](std::uint64_t) { ++containers; });
  return containers - named.size();
}

/// Stages what prepare_little() made into an empty store while memory is short, and then again
/// while it is not.
void stage_in_short_of_memory(
    Scene& scene, const Plan& plan,
    const std::function<void(const std::function<void()>&)>& short_of_memory) {
  const std::size_t all = plan.entries.size() + 1;
  RealStore store(scene.top + "/store");
  fs::Staging staging(*store.filesystem);
  StagingBuffer buffer(staging);
  const auto stage = [&] {
    Progress progress;
    return stage_in(plan, buffer, posix_pfs(), scene.options, progress);
  };
  std::optional<StageReport> report;
  short_of_memory([&] { report = stage(); });
  const std::size_t names = whole_names(scene, store);
  REQUIRE(names > 0);
  REQUIRE(leaks(store) == 0);
  if (report && report->ok()) {
    REQUIRE(names == all);
    REQUIRE(report->files == plan.files);
  }
  const StageReport again = stage();
  INFO((again.failure ? "again: " + again.failure->path + ": " + describe(again.failure->error)
                      : "again"));
  REQUIRE(again.ok());
  REQUIRE(whole_names(scene, store) == all);
  for (const char* path : {"d", "large"}) {
    REQUIRE(staging.find(path)->xattrs.contains("user.k"));
  }
  REQUIRE(staging.find("large")->ino == staging.find("d/the same file")->ino);
  REQUIRE(leaks(store) == 0);
}

/// Files that are whole and have no name yet, the last one with more attributes than one record
/// takes.
std::vector<fs::StagedFile> files_to_publish(fs::Staging& staging) {
  std::vector<fs::StagedFile> files;
  for (const char* path : {"the first of several files", "the second of several files",
                           "the third of several files"}) {
    files.push_back({.ino = efs::test::begin_file(staging).value(),
                     .path = path,
                     .attributes = {.mode = 0600},
                     .xattrs = {{"user.k", "value"}}});
  }
  for (const char* name : {"user.a", "user.b", "user.c"}) {
    files.back().xattrs[name] = std::string(50'000, 'x');
  }
  return files;
}

/// Plans and stages in. The exit code of a stage-in that came to its end.
int stage_all_in(const Scene& scene, RealStore& store, PfsIo& pfs) {
  fs::Staging staging(*store.filesystem);
  StagingBuffer buffer(staging);
  Progress progress;
  const auto plan = make_plan(scene.config, pfs);
  if (!plan || !plan->problems.empty()) {
    return 3;
  }
  return stage_in(*plan, buffer, pfs, scene.options, progress).ok() ? 0 : 4;
}

}  // namespace

TEST_CASE(
    "stage-in: killed at every PFS call; the inputs are as they were, and no name leads to half a "
    "file",
    "[stage][in][faults][killed]") {
  const auto kind = GENERATE(efs::test::in_files, efs::test::in_slab);
  Scene scene;
  prepare(scene);
  const auto inputs = state_of(scene.root);
  std::set<std::size_t> seen;
  const auto seed = efs::test::seed();
  const efs::test::Sample sample(seed);
  std::uint64_t n = sample.first;
  for (bool complete = false; !complete; n += sample.step) {
    INFO(kind.name << ", EFS_SAMPLE=" << sample.step << " EFS_TEST_SEED=" << seed
                   << ": killed at call " << n);
    const std::string path = scene.top + "/store";
    const auto code = killed_at_call(n, [&](PfsIo& pfs) {
      RealStore store(path, kind);
      return stage_all_in(scene, store, pfs);
    });
    REQUIRE(code.value_or(0) == 0);
    complete = code.has_value();
    REQUIRE((state_of(scene.root) == inputs));
    {
      RealStore store(path, kind);
      const std::size_t names = whole_names(scene, store);
      REQUIRE(names > 0);
      REQUIRE(leaks(store) == 0);
      seen.insert(names - 1);
    }
    if (complete) {
      break;
    }
    // Nothing of it is needed again: thrown away as a whole.
    stdfs::remove_all(path);
    REQUIRE_FALSE(stdfs::exists(path));
  }
  // Names came one by one: the kills did not all fall before the first or behind the last.
  CHECK(n > 40);
  if (sample.step == 1) {
    CHECK(seen.size() >= 6);
  }
  CHECK(*seen.rbegin() == inputs.size());
}

TEST_CASE("stage-in: after a kill the same job stages in as if nothing had been",
          "[stage][in][faults]") {
  Scene scene;
  prepare(scene);
  const auto code = killed_at_call(45, [&](PfsIo& pfs) {
    RealStore store(scene.top + "/store");
    return stage_all_in(scene, store, pfs);
  });
  REQUIRE_FALSE(code);
  RealStore again(scene.top + "/again");
  REQUIRE(stage_all_in(scene, again, posix_pfs()) == 0);
  CHECK(whole_names(scene, again) == state_of(scene.root).size() + 1);
}

// (That memory is short for good cannot be tried here: the file system counts on what it keeps
// back.)
TEST_CASE(
    "stage-in: every allocation of memory fails once; no name leads to half a file, and no space "
    "is lost",
    "[stage][in][faults][memory]") {
  Scene scene;
  prepare_little(scene);
  const Plan plan = scene.plan();
  const auto allocations =
      efs::test::each_allocation_fails(efs::test::Shortage::once, [&](const auto& short_of_memory) {
        stage_in_short_of_memory(scene, plan, short_of_memory);
        stdfs::remove_all(scene.top + "/store");
      });
  CHECK(allocations > 100);
}

TEST_CASE(
    "files that are published together: whichever allocation of memory fails, those have their "
    "names that are said to, and no others",
    "[stage][in][faults][memory]") {
  Scene scene;
  const auto allocations =
      efs::test::each_allocation_fails(efs::test::Shortage::once, [&](const auto& short_of_memory) {
        {
          RealStore store(scene.top + "/store");
          fs::Staging staging(*store.filesystem);
          const auto files = files_to_publish(staging);
          std::size_t published = 0;
          Status failed;
          short_of_memory([&] { published = staging.publish_files(files, failed); });
          REQUIRE(failed.has_value() == (published == files.size()));
          for (std::size_t i = 0; i < files.size(); ++i) {
            const auto there = staging.find(files[i].path);
            REQUIRE(there.has_value() == (i < published));
            if (there) {
              REQUIRE(there->xattrs == files[i].xattrs);
            } else {
              staging.abandon(files[i].ino);
            }
          }
          REQUIRE(leaks(store) == 0);
          const auto again = files_to_publish(staging);
          REQUIRE(staging.publish_files(std::span(again).subspan(published), failed) ==
                  files.size() - published);
        }
        stdfs::remove_all(scene.top + "/store");
      });
  CHECK(allocations > 20);
}
