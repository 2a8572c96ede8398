// SPDX-License-Identifier: BSD-3-Clause
// The manifest is rewritten without new space, so that a full store can still record its final
// state.
#include "image/manifest.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "base/unique_fd.hpp"
#include "support/dead_image.hpp"
#include "support/short_of_memory.hpp"
#include "support/temp.hpp"

using namespace efs;

namespace {

std::string whole_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("a manifest is written over the spare one, which is as large", "[image]") {
  const test::TempDirectory place("/dev/shm");
  const UniqueFd directory(::open(place.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto stat_of = [&](const char* name) {
    struct stat st{};
    REQUIRE(::fstatat(directory.get(), name, &st, AT_SYMLINK_NOFOLLOW) == 0);
    return st;
  };
  // Lengths around those at which another page would be needed, were there no slack.
  for (std::size_t length = 3000; length < 4200; length += 7) {
    image::Manifest manifest;
    manifest.name = "job";
    manifest.root_dir = std::string(length, 'r');
    REQUIRE(image::write_manifest(directory.get(), manifest));
    const auto first = stat_of("instance.json"), spare = stat_of("instance.json.new");
    CHECK(first.st_size == spare.st_size);
    for (const auto left :
         {image::ShutdownState::unsaved, image::ShutdownState::salvaged, image::ShutdownState::kept,
          image::ShutdownState::kept, image::ShutdownState::in_use}) {
      manifest.left = left;
      manifest.made_mount_dir = !manifest.made_mount_dir;
      manifest.journal_to = UINT64_MAX;
      REQUIRE(image::write_manifest(directory.get(), manifest));
      const auto read = image::read_manifest(directory.get());
      REQUIRE(read);
      CHECK(read->left == left);
      CHECK(read->journal_to == manifest.journal_to);
      CHECK(read->root_dir == manifest.root_dir);
      const auto now = stat_of("instance.json");
      CHECK((now.st_ino == first.st_ino || now.st_ino == spare.st_ino));
      CHECK(now.st_blocks == first.st_blocks);
    }
    REQUIRE(::unlinkat(directory.get(), "instance.json", 0) == 0);
    REQUIRE(::unlinkat(directory.get(), "instance.json.new", 0) == 0);
  }
}

TEST_CASE(
    "where a manifest is damaged the one before it is there, but not how the instance was left",
    "[image]") {
  const test::TempDirectory place("/dev/shm");
  const UniqueFd directory(::open(place.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  image::Manifest manifest;
  manifest.name = "job";
  manifest.left = image::ShutdownState::kept;
  manifest.contents = "of then";
  manifest.journal_to = 7;
  REQUIRE(image::write_manifest(directory.get(), manifest));
  manifest.left = image::ShutdownState::unsaved;
  manifest.journal_to = 9;
  REQUIRE(image::write_manifest(directory.get(), manifest));
  CHECK(image::recover_manifest(directory.get())->journal_to == 9);
  const auto spoil = [&](const char* name) {
    test::DeadImage::put(place.path() + "/" + name, "\1 no text");
  };
  if (GENERATE(true, false)) {
    spoil("instance.json");
  } else {
    REQUIRE(::unlinkat(directory.get(), "instance.json", 0) == 0);
  }
  CHECK(!image::read_manifest(directory.get()));
  const auto before = image::recover_manifest(directory.get());
  REQUIRE(before);
  CHECK(before->journal_to == 7);
  CHECK(before->left == image::ShutdownState::in_use);
  CHECK(before->contents.empty());
  CHECK(before->merges);  // newer files are not replaced: the last value of this field is lost
  SECTION("and it is put right with what is written next") {
    REQUIRE(image::write_left(directory.get(), image::ShutdownState::salvaged));
    CHECK(image::read_manifest(directory.get())->left == image::ShutdownState::salvaged);
  }
  SECTION("both are") {
    spoil("instance.json.new");
    const auto none = image::recover_manifest(directory.get());
    REQUIRE(!none);
    CHECK(none.error().code == image::read_manifest(directory.get()).error().code);
  }
}

TEST_CASE("a manifest keeps paths that are not UTF-8", "[image]") {
  const test::TempDirectory place("/dev/shm");
  const UniqueFd directory(::open(place.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  image::Manifest manifest;
  manifest.name = "job";
  manifest.root_dir = "/pfs/caf\xe9";
  manifest.mount_dir = "/mnt/\\351 caf\xc3\xa9";
  manifest.results_dir = "/pfs/\xff\xfe/out";
  manifest.results_mount = "/pfs/\xff";
  manifest.mounts_below = {"vol\xe9/a", "b"};
  manifest.log_file = "/pfs/\xe9\\log";
  manifest.job_file = "/pfs/\xe9.yaml";
  manifest.members.push_back({.id = "ram", .path = "/dev/shm/\xe9", .kind = "memory"});
  manifest.circumstances.variables["HOME"] = "/home/\xe9";
  REQUIRE(image::write_manifest(directory.get(), manifest));
  const auto read = image::read_manifest(directory.get());
  REQUIRE(read);
  CHECK(read->root_dir == manifest.root_dir);
  CHECK(read->mount_dir == manifest.mount_dir);
  CHECK(read->results_dir == manifest.results_dir);
  CHECK(read->results_mount == manifest.results_mount);
  CHECK(read->mounts_below == manifest.mounts_below);
  CHECK(read->log_file == manifest.log_file);
  CHECK(read->job_file == manifest.job_file);
  CHECK(read->members.at(0).path == manifest.members.at(0).path);
  CHECK(read->circumstances.variables == manifest.circumstances.variables);
}

TEST_CASE("the destinations of a job's lists are kept with its job file", "[image]") {
  const test::DeadImage dead;
  const UniqueFd directory = dead.open_meta();
  const auto manifest = image::read_manifest(directory.get()).value();
  const auto listed = [&] {
    const auto job = image::job_of(directory.get(), manifest);
    REQUIRE(job);
    return job->listed;
  };
  CHECK(listed().empty());
  const std::map<std::string, std::string> some{{"there", "from/here"},
                                                {"name that is no text \xff", "two words"}};
  REQUIRE(image::write_listed(directory.get(), some));
  CHECK(listed() == some);
  test::DeadImage::put(dead.store() + "/meta/listed", "{");
  const auto damaged = image::job_of(directory.get(), manifest);
  REQUIRE_FALSE(damaged);
  CHECK(damaged.error().what.find("lists") != std::string::npos);
  REQUIRE(image::write_listed(directory.get(), {}));
  CHECK(listed().empty());
}

TEST_CASE(
    "a manifest or job file of an image that is damaged anywhere is refused, or says what it said",
    "[image][alone]") {
  const test::DeadImage dead;
  const UniqueFd directory = dead.open_meta();
  const std::map<std::string, std::string> listed{{"there", "from/here"}};
  REQUIRE(image::write_job_file(
      directory.get(),
      "global-settings: { name: job, root-dir: /pfs, mount-dir: /mnt, results-dir: /out "
      "}\nresources: [ { path: a, flags: persistent } ]\n"));
  REQUIRE(image::write_listed(directory.get(), listed));
  const auto manifest = image::read_manifest(directory.get()).value();
  // The fields that a salvage reads.
  const auto said = [&]() -> std::string {
    const auto read = image::read_manifest(directory.get());
    const auto job = read ? image::job_of(directory.get(), *read) : std::unexpected(read.error());
    if (!job) {
      return {};
    }
    std::string all = read->name + '|' + read->results_dir + '|' + read->boot_id + '|' +
                      std::to_string(read->uid) + '|' + image::name_of(read->left) + '|' +
                      std::to_string(read->journal_to) + '|' + job->results_dir + '|' +
                      job->mount_dir;
    for (const auto& resource : job->resources) {
      all += '|' + resource.path + ' ' + std::to_string(static_cast<int>(resource.file_class));
    }
    for (const auto& [place, source] : job->listed) {
      all += '|' + place + ' ' + source;
    }
    return all;
  };
  const std::string before = said();
  REQUIRE(!before.empty());
  for (const char* name : {"instance.json", "job.yaml", "listed"}) {
    const std::string path = dead.store() + "/meta/" + name, good = whole_text(path);
    std::size_t refused = 0;
    for (std::size_t at = 0; at < good.size(); ++at) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 7)));
      test::DeadImage::put(path, bad);
      const std::string now = said();
      INFO(name << " at byte " << at << " of " << good.size());
      if (now.empty()) {
        ++refused;
      } else {
        CHECK(now == before);
      }
    }
    for (const std::size_t size : {good.size() - 1, good.size() / 2, std::size_t{0}}) {
      test::DeadImage::put(path, good.substr(0, size));
      INFO(name << " cut to " << size);
      if (const std::string now = said(); !now.empty()) {
        CHECK(now == before);
      }
    }
    CHECK(refused > 0);
    test::DeadImage::put(path, good);
  }
  CHECK(said() == before);
}

TEST_CASE("a manifest is read and written where there is no memory, or says so",
          "[image][faults][memory]") {
  const test::TempDirectory place("/dev/shm");
  const UniqueFd directory(::open(place.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  image::Manifest manifest;
  manifest.root_dir = std::string(300, 'r');
  manifest.name = "before";
  REQUIRE(image::write_manifest(directory.get(), manifest));
  manifest.name = "after";
  for (const auto shortage : {test::Shortage::once, test::Shortage::for_good}) {
    const auto allocations =
        test::each_allocation_fails(shortage, [&](const auto& short_of_memory) {
          Result<image::Manifest> found = fail(EBUSY);
          Status written = fail(EBUSY);
          short_of_memory([&] {
            try {
              found = image::read_manifest(directory.get());
              written = image::write_manifest(directory.get(), manifest);
            } catch (const std::bad_alloc&) {
            }
          });
          if (found) {
            CHECK(found->root_dir == manifest.root_dir);
          } else {
            CHECK((found.error().code == ENOMEM || found.error().code == EBUSY));
          }
          const auto now = image::read_manifest(directory.get());
          REQUIRE(now);
          CHECK((!written || now->name == "after"));
          CHECK((now->name == "before" || now->name == "after"));
        });
    CHECK(allocations > 1);
  }
}

TEST_CASE("what lies in the place of the spare manifest is not followed, nor shared", "[image]") {
  const test::TempDirectory place("/dev/shm");
  const UniqueFd directory(::open(place.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::string victim = place.path() + "/victim", spare = place.path() + "/instance.json.new";
  std::ofstream(victim) << std::string(20000, 'v');
  const auto untouched = [&] {
    std::ifstream file(victim, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {}) == std::string(20000, 'v');
  };
  image::Manifest manifest;
  manifest.name = "job";
  for (int round = 0; round < 3; ++round) {
    ::unlink(spare.c_str());
    if (round == 0) {
      REQUIRE(::symlink(victim.c_str(), spare.c_str()) == 0);
    }
    if (round == 1) {
      REQUIRE(::link(victim.c_str(), spare.c_str()) == 0);
    }
    if (round == 2) {
      REQUIRE(::mkfifo(spare.c_str(), 0600) == 0);
    }
    manifest.uid = static_cast<uid_t>(round);
    REQUIRE(image::write_manifest(directory.get(), manifest));
    CHECK(untouched());
    REQUIRE(image::read_manifest(directory.get()));
    CHECK(image::read_manifest(directory.get())->uid == manifest.uid);
  }
}
