// SPDX-License-Identifier: BSD-3-Clause
#include "stage/copy/transfer.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <mutex>
#include <set>
#include <span>
#include <thread>

#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/opened.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

namespace {

struct Copied {
  Status status;
  std::string content;
  std::uint64_t digest = 0;
  std::uint64_t blocks = 0;
  std::uint64_t hashed = 0;
  std::uint64_t progress = 0;
};

Copied copy(Scene& scene, const std::string& from, PfsIo& pfs, bool cancelled = false,
            std::size_t buffers = Scratch::most, SumKind kind = SumKind::xxh3) {
  const std::string to = scene.top + "/copy";
  ::unlink(to.c_str());
  const PfsHandle in = opened(from, O_RDONLY);
  const PfsHandle out = opened(to, O_RDWR | O_CREAT);
  const auto attributes = stat_of(from);
  Scratch scratch(1U << 20U, buffers);
  FileChecksum sum(kind);
  Progress progress;
  progress.cancel = cancelled;
  Copied copied;
  const PfsContent source(pfs, in), destination(pfs, out);
  const CopyJob job{.source = source,
                    .destination = destination,
                    .size = static_cast<std::uint64_t>(attributes.st_size),
                    .allocated = static_cast<std::uint64_t>(attributes.st_blocks) * 512};
  copied.status = copy_data(job, scratch, &sum, progress);
  copied.content = content_of(to);
  copied.hashed = sum.hashed();
  copied.digest = sum.finish().value;
  copied.blocks = static_cast<std::uint64_t>(stat_of(to).st_blocks);
  copied.progress = progress.bytes_done;
  return copied;
}

FaultPfs::Hook never() {
  return [](auto, const auto&, const auto&) {
    return 0;
  };
}

}  // namespace

TEST_CASE("copy_data: any size, whole, with the content's checksum", "[stage][transfer]") {
  Scene scene;
  for (const std::size_t size : {0UL, 1UL, 4096UL, (1UL << 20U) + 17, (40UL << 20U) + 3}) {
    const std::string text = random_text(size, static_cast<unsigned>(size));
    write_file(scene.top + "/source", text);
    const auto copied = copy(scene, scene.top + "/source", posix_pfs());
    REQUIRE(copied.status);
    CHECK((copied.content == text));
    CHECK(copied.digest == hash(text));
    CHECK(copied.progress == size);
  }
}

TEST_CASE("copy_data: short reads and writes", "[stage][transfer]") {
  Scene scene;
  const std::string text = random_text(100'001, 5);
  write_file(scene.top + "/source", text);
  FaultPfs pfs(never());
  pfs.most = 777;
  const auto copied = copy(scene, scene.top + "/source", pfs);
  REQUIRE(copied.status);
  CHECK((copied.content == text));
  CHECK(copied.digest == hash(text));
}

TEST_CASE("copy_data: holes stay holes and count as zeros", "[stage][transfer]") {
  Scene scene;
  const std::string path = scene.top + "/source";
  // data, hole, data, hole: small (serial) and large (pipelined: more than 32 MiB of data)
  for (const std::size_t data : {4096UL, 17UL << 20U}) {
    write_file(path, random_text(data, 1));
    {
      const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
      const std::string more = random_text(data, 2);
      REQUIRE(::pwrite(fd.get(), more.data(), more.size(), 24 << 20) ==
              static_cast<ssize_t>(more.size()));
      REQUIRE(::ftruncate(fd.get(), (60 << 20) + 5) == 0);
    }
    const auto copied = copy(scene, path, posix_pfs());
    REQUIRE(copied.status);
    const std::string text = content_of(path);
    CHECK((copied.content == text));
    CHECK(copied.digest == hash(text));
    CHECK(copied.blocks <= 2 * data / 512 + 16);
    CHECK(copied.progress == static_cast<std::uint64_t>(stat_of(path).st_blocks) * 512);
    ::unlink(path.c_str());
  }
}

TEST_CASE("copy_data: a file system that cannot find holes is copied as data",
          "[stage][transfer]") {
  Scene scene;
  write_file(scene.top + "/source", "x");
  ::truncate((scene.top + "/source").c_str(), 100000);
  FaultPfs pfs(
      [](auto, const std::string& call, const auto&) { return call == "seek" ? EINVAL : 0; });
  const auto copied = copy(scene, scene.top + "/source", pfs);
  REQUIRE(copied.status);
  CHECK((copied.content == content_of(scene.top + "/source")));
}

TEST_CASE("copy_data: errors of either end, serial and pipelined", "[stage][transfer]") {
  Scene scene;
  for (const std::size_t size : {10'000'000UL, 40UL << 20U}) {
    write_file(scene.top + "/source", random_text(size, 9));
    for (const std::string call : {"read", "write"}) {
      std::atomic<int> count{0};
      FaultPfs pfs([&](auto, const std::string& name, const auto&) {
        return name == call && ++count == 5 ? ENOSPC : 0;
      });
      const auto copied = copy(scene, scene.top + "/source", pfs);
      REQUIRE(!copied.status);
      CHECK(copied.status.error().code == ENOSPC);
    }
    CHECK(copy(scene, scene.top + "/source", posix_pfs(), true).status.error().code == ECANCELED);
  }
}

TEST_CASE("copy_data: no more threads than there are buffers", "[stage][transfer]") {
  Scene scene;
  const std::string text = random_text(64U << 20U, 7);
  write_file(scene.top + "/source", text);
  for (const std::size_t buffers : {0UL, 1UL, 2UL}) {
    std::mutex mutex;
    std::set<std::thread::id> threads;
    FaultPfs pfs([&](auto, const auto&, const auto&) {
      const std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
      return 0;
    });
    const auto copied = copy(scene, scene.top + "/source", pfs, false, buffers);
    REQUIRE(copied.status);
    CHECK((copied.content == text));
    CHECK(threads.size() <= std::max(buffers, 1UL));
  }
}
