// SPDX-License-Identifier: BSD-3-Clause
// Checkpoints by write protection of the program's memory.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <thread>

#include "unit/objects/memory.hpp"

// A namespace of its own: files that are compiled as one share their names.
namespace efs::objects_test {

namespace {

/// A store that uses the strategy, with memory that is protected.
struct Snapshots {
  explicit Snapshots(const char* pace) : temp("/dev/shm"), memory(temp.store, 3U << 19U) {
    REQUIRE(eo_configure(temp.store, "strategy", "snapshot") == 0);
    REQUIRE(eo_configure(temp.store, "pace", pace) == 0);
  }

  /// 0, or why the system cannot do it.
  int checkpoint(std::uint64_t n) const { return eo_checkpoint(temp.store, "run", n, 0); }

  TempStore temp;
  Memory memory;
};

bool unavailable(int error) {
  return error == EPERM || error == ENOTSUP;
}

}  // namespace

TEST_CASE("a snapshot has the memory of its moment, although the program writes", "[objects]") {
  Snapshots here("400");
  for (const int n : {1, 2, 3}) {
    here.memory.fill(n);
    const int error = here.checkpoint(static_cast<std::uint64_t>(n));
    if (n == 1 && unavailable(error)) {
      SKIP(eo_error());
    }
    INFO(eo_error());
    REQUIRE(error == 0);
    CHECK(eo_strategy(here.temp.store) == std::string("snapshot"));
    // From both ends at once, while the background thread reads from the first one.
    auto& large = here.memory.large();
    const std::size_t half = large.size() / 2;
    const std::jthread other([&] {
      for (std::size_t i = large.size(); i-- > half;) {
        large[i] = -1;
      }
    });
    std::fill_n(large.begin(), half, -2);
  }
  REQUIRE(eo_wait(here.temp.store) == 0);
  CHECK(drafts_in(here.temp.path()).empty());
  for (const std::uint64_t n : {1U, 2U, 3U}) {
    REQUIRE(eo_restore(here.temp.store, "run", n, nullptr) == 0);
    CHECK(here.memory.has(static_cast<int>(n)));
  }
}

TEST_CASE("untouched memory is in a snapshot as zeros, and shared memory is refused", "[objects]") {
  Snapshots here("400");
  constexpr std::size_t size = 8U << 20U;
  for (const int kind : {MAP_PRIVATE, MAP_SHARED}) {
    void* const mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
    REQUIRE(mapped != MAP_FAILED);
    auto* const data = static_cast<std::uint8_t*>(mapped);
    const eo_array array = array_of("|u1", {size}, EO_C_ORDER, data);
    REQUIRE(eo_protect(here.temp.store, "untouched", &array) == 0);
    data[5] = 1;
    const int error = here.checkpoint(1);
    if (kind == MAP_SHARED) {
      CHECK(error == ENOTSUP);
      CHECK(error_says("shared memory"));
    } else if (unavailable(error)) {
      REQUIRE(eo_unprotect(here.temp.store, "untouched") == 0);
      ::munmap(mapped, size);
      SKIP(eo_error());
    } else {
      REQUIRE(error == 0);
      std::memset(data, 7, size);
      REQUIRE(eo_restore(here.temp.store, "run", 1, nullptr) == 0);
      CHECK(data[5] == 1);
      CHECK(std::count(data, data + size, 0) == size - 1);
      REQUIRE(eo_remove_version(here.temp.store, "run", 1) == 0);
    }
    REQUIRE(eo_unprotect(here.temp.store, "untouched") == 0);
    ::munmap(mapped, size);
  }
}

TEST_CASE("a system call writes to memory that is protected", "[objects]") {
  Snapshots here("200");
  here.memory.fill(1);
  if (unavailable(here.checkpoint(1))) {
    SKIP(eo_error());
  }
  const int zero = ::open("/dev/zero", O_RDONLY | O_CLOEXEC);
  auto& large = here.memory.large();
  CHECK(::read(zero, large.data(), large.size() * 4) == static_cast<ssize_t>(large.size() * 4));
  ::close(zero);
  CHECK(std::count(large.begin(), large.end(), 0) == static_cast<long>(large.size()));
  REQUIRE(eo_restore(here.temp.store, "run", 1, nullptr) == 0);
  CHECK(here.memory.has(1));
}

TEST_CASE("without memory for copies the program waits, and the snapshot is whole", "[objects]") {
  const SizedTmpfs tmpfs("size=1m,mode=0700");
  if (!tmpfs.mounted()) {
    SKIP("only root can mount a tmpfs");
  }
  Snapshots here("400");
  REQUIRE(eo_configure(here.temp.store, "fast", tmpfs.path().c_str()) == 0);
  here.memory.fill(1);
  if (unavailable(here.checkpoint(1))) {
    SKIP(eo_error());
  }
  here.memory.fill(2);
  REQUIRE(eo_restore(here.temp.store, "run", 1, nullptr) == 0);
  CHECK(here.memory.has(1));
}

TEST_CASE("a failure in the background ends the protection", "[objects]") {
  const SizedTmpfs tmpfs("size=10m");
  if (!tmpfs.mounted()) {
    SKIP("only root can mount a tmpfs");
  }
  const OpenStore store(tmpfs.path());
  Memory memory(store, 3U << 20U);  // 18 MiB
  REQUIRE(eo_configure(store, "strategy", "snapshot") == 0);
  memory.fill(1);
  if (unavailable(eo_checkpoint(store, "run", 1, 0))) {
    SKIP(eo_error());
  }
  memory.fill(2);
  CHECK(eo_wait(store) == ENOSPC);
  CHECK(std::string(eo_error()).find("version 00000001 of run") != std::string::npos);
  memory.fill(3);
  CHECK(memory.has(3));
  CHECK(drafts_in(tmpfs.path()).empty());
}

TEST_CASE("memory may be freed after unprotect during a snapshot", "[objects]") {
  const TempStore temp("/dev/shm");
  REQUIRE(eo_configure(temp.store, "strategy", "snapshot") == 0);
  REQUIRE(eo_configure(temp.store, "pace", "200") == 0);
  std::vector<std::int32_t> data(3U << 20U, 1);
  const eo_array array = array_of("<i4", {data.size()}, EO_C_ORDER, data.data());
  REQUIRE(eo_protect(temp.store, "a", &array) == 0);
  if (unavailable(eo_checkpoint(temp.store, "run", 1, 0))) {
    SKIP(eo_error());
  }
  REQUIRE(eo_unprotect(temp.store, "a") == 0);
  std::vector<std::int32_t>().swap(data);
  REQUIRE(eo_wait(temp.store) == 0);
  eo_storage* version = nullptr;
  REQUIRE(eo_version(temp.store, "run", 1, &version) == 0);
  CHECK(value_of(version, "a") == 1);
  eo_close(version);
}

TEST_CASE("a fork during a snapshot disturbs neither process", "[objects]") {
  Snapshots here("100");
  here.memory.fill(1);
  if (unavailable(here.checkpoint(1))) {
    SKIP(eo_error());
  }
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    here.memory.fill(2);  // its memory is not protected
    ::_exit(here.memory.has(2) && eo_wait(here.temp.store) == EINVAL ? 0 : 1);
  }
  here.memory.fill(3);
  CHECK(succeeds(child));
  REQUIRE(eo_restore(here.temp.store, "run", 1, nullptr) == 0);
  CHECK(here.memory.has(1));
}

TEST_CASE("where memory cannot be protected, snapshot is an error and auto the next", "[objects]") {
  if (::geteuid() != 0) {
    SKIP("only root can become a user without the privilege");
  }
  const TempDirectory directory("/dev/shm");
  const std::string path = directory.path() + "/store";
  REQUIRE(::chmod(directory.path().c_str(), 0777) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    eo_storage* store = nullptr;
    if (::setresgid(12345, 12345, 12345) != 0 || ::setresuid(12345, 12345, 12345) != 0 ||
        eo_open(path.c_str(), &store) != 0) {
      ::_exit(1);
    }
    Memory memory(store);
    memory.fill(1);
    eo_configure(store, "fast", (directory.path() + "/fast").c_str());
    eo_configure(store, "strategy", "snapshot");
    const int error = eo_checkpoint(store, "run", 1, 0);
    if (error == 0) {
      ::_exit(2);  // the administrator permits it to all
    }
    const bool named = std::string(eo_error()).find("/dev/userfaultfd") != std::string::npos;
    if (error != EPERM || !named || !drafts_in(path).empty()) {
      ::_exit(3);
    }
    eo_configure(store, "strategy", "auto");
    if (eo_checkpoint(store, "run", 1, 0) != 0 || eo_strategy(store) != std::string("stage")) {
      ::_exit(4);
    }
    memory.fill(2);
    ::_exit(eo_restore(store, "run", 1, nullptr) == 0 && memory.has(1) ? 0 : 5);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 2) {
    SKIP("every user may protect memory here");
  }
  CHECK(status == 0);
}

}  // namespace efs::objects_test
