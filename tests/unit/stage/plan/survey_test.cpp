// SPDX-License-Identifier: BSD-3-Clause
#include "stage/plan/survey.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.hpp"
#include "stage/pfs/forwarding_pfs.hpp"
#include "support/temp.hpp"
#include "unit/stage/opened.hpp"

namespace efs::survey_test {
namespace {

using namespace stage;

using Paths = std::vector<std::string>;

std::string numbered(int number) {
  char name[16];
  std::snprintf(name, sizeof name, "f%04d", number);
  return name;
}

struct Scene {
  void make_directory(const std::string& path) const {
    REQUIRE(::mkdir((directory.path() + "/" + path).c_str(), 0700) == 0);
  }

  void make_files(const std::string& prefix, int count) const {
    for (int i = 0; i < count; ++i) {
      REQUIRE(std::ofstream(directory.path() + "/" + prefix + numbered(i)));
    }
  }

  const efs::test::TempDirectory directory;
  const PfsHandle root = opened(directory.path());
};

/// Asked for the attributes of one name, it answers when those of another one have been asked for.
class WaitingPfs final : public ForwardingPfs {
 public:
  WaitingPfs(std::string waits, std::string awaited)
      : ForwardingPfs(posix_pfs()), waits_(std::move(waits)), awaited_(std::move(awaited)) {}

  Result<struct stat> lstat(PfsRef at, const std::string& name) override {
    {
      const MutexLock lock(mutex_);
      seen_ = seen_ || name == awaited_;
      changed_.notify_all();
      while (name == waits_ && !seen_) {
        changed_.wait(mutex_);
      }
    }
    return ForwardingPfs::lstat(at, name);
  }

 private:
  const std::string waits_, awaited_;
  Mutex mutex_;  // rank 90 (leaf)
  Condition changed_;
  bool seen_ EFS_GUARDED_BY(mutex_) = false;
};

Paths below(PfsIo& pfs, const Scene& scene) {
  Paths told;
  Survey(pfs, scene.root).below("", [&](const Found& found) {
    told.push_back(found.path + (found.problem == Found::Problem::listing ? "!" : ""));
    return true;
  });
  return told;
}

}  // namespace

TEST_CASE("a survey tells of parents before children, level by level, in the order of names",
          "[stage][survey]") {
  const Scene scene;
  for (const char* path : {"a", "a/deep", "b"}) {
    scene.make_directory(path);
  }
  scene.make_files("a/", 2);
  scene.make_files("a/deep/", 1);
  scene.make_files("b/", 1);
  CHECK(below(posix_pfs(), scene) ==
        Paths{"a", "b", "a/deep", "a/f0000", "a/f0001", "b/f0000", "a/deep/f0000"});
}

TEST_CASE("what a survey finds out of order it tells of in order", "[stage][survey]") {
  if (std::thread::hardware_concurrency() < 2) {
    SKIP("one processor: a survey begins with one thread");
  }
  const Scene scene;
  scene.make_files("", 300);
  WaitingPfs pfs(numbered(0), numbered(299));
  Paths expected;
  for (int i = 0; i < 300; ++i) {
    expected.push_back(numbered(i));
  }
  CHECK(below(pfs, scene) == expected);
}

TEST_CASE("who cannot take in what a survey tells ends it", "[stage][survey]") {
  const Scene scene;
  scene.make_files("", 300);
  Survey survey(posix_pfs(), scene.root);
  int told = 0;
  CHECK_THROWS_AS(survey.below("",
                               [&](const Found&) {
                                 if (++told == 100) {
                                   throw std::length_error("enough");
                                 }
                                 return true;
                               }),
                  std::length_error);
  CHECK(told == 100);
  CHECK(survey.look({"f0007", "missing"}).size() == 2);  // and it can go on
}

TEST_CASE("a survey leaves out what is in a directory that is not wanted", "[stage][survey]") {
  const Scene scene;
  for (const char* path : {"a", "b"}) {
    scene.make_directory(path);
  }
  scene.make_files("a/", 1);
  scene.make_files("b/", 1);
  Paths told;
  Survey(posix_pfs(), scene.root).below("", [&](const Found& found) {
    told.push_back(found.path);
    return found.path != "a";
  });
  CHECK(told == Paths{"a", "b", "b/f0000"});
}

TEST_CASE("a directory that cannot be listed is told of once more", "[stage][survey]") {
  class Unlisted final : public ForwardingPfs {
   public:
    Unlisted() : ForwardingPfs(posix_pfs()) {}

    Result<PfsHandle> open_beneath(PfsRef root, const std::string& path, int flags,
                                   mode_t mode) override {
      return path == "a" && flags == directory_flags
                 ? Result<PfsHandle>(fail(EIO))
                 : ForwardingPfs::open_beneath(root, path, flags, mode);
    }
  } pfs;

  const Scene scene;
  for (const char* path : {"a", "b"}) {
    scene.make_directory(path);
  }
  scene.make_files("a/", 1);
  scene.make_files("b/", 1);
  CHECK(below(pfs, scene) == Paths{"a", "b", "a!", "b/f0000"});
}

}  // namespace efs::survey_test
