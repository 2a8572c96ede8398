// SPDX-License-Identifier: BSD-3-Clause
// Checkpoints that a background thread completes: stage and split.
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <random>
#include <thread>

#include "unit/objects/memory.hpp"

// A namespace of its own: files that are compiled as one share their names.
namespace efs::objects_test {

namespace {

int configure(eo_storage* store, const char* option, const std::string& value) {
  const int error = eo_configure(store, option, value.c_str());
  INFO(eo_error());
  CHECK(error == 0);
  return error;
}

/// The files without a name that the process has open: copies in memory.
int unnamed_files() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored);
    count += target.find("/#") != std::string::npos && target.ends_with("(deleted)") ? 1 : 0;
  }
  return count;
}

}  // namespace

TEST_CASE("the program may change its memory when a checkpoint returns", "[objects]") {
  for (const char* strategy : {"stage", "split"}) {
    const TempStore temp("/dev/shm");
    Memory memory(temp.store);
    configure(temp.store, "strategy", strategy);
    configure(temp.store, "pace", "200");
    for (const int n : {1, 2, 3}) {  // from the second on split knows the rates
      memory.fill(n);
      const unsigned flags = n == 2 ? EO_SYNC : 0;
      REQUIRE(eo_checkpoint(temp.store, "run", static_cast<std::uint64_t>(n), flags) == 0);
      CHECK(eo_strategy(temp.store) == std::string(strategy));
      memory.fill(100 + n);
    }
    REQUIRE(eo_wait(temp.store) == 0);
    CHECK(drafts_in(temp.path()).empty());
    for (const std::uint64_t n : {1U, 2U, 3U}) {
      REQUIRE(eo_restore(temp.store, "run", n, nullptr) == 0);
      CHECK(memory.has(static_cast<int>(n)));
    }
  }
}

TEST_CASE("a version is invisible until the background work is complete", "[objects]") {
  const TempStore temp("/dev/shm");
  Memory memory(temp.store);
  configure(temp.store, "strategy", "stage");
  configure(temp.store, "pace", "10");  // 600 ms
  memory.fill(1);
  REQUIRE(eo_checkpoint(temp.store, "run", 1, 0) == 0);
  eo_storage* version = nullptr;
  CHECK(eo_version(temp.store, "run", 1, &version) == ENOENT);
  CHECK(eo_checkpoint(temp.store, "run", 1, 0) == EEXIST);  // it waits for the first
  REQUIRE(eo_version(temp.store, "run", 1, &version) == 0);
  eo_close(version);
  memory.fill(2);
  REQUIRE(eo_checkpoint(temp.store, "run", 2, 0) == 0);
  // A restore waits for the work, too.
  std::uint64_t found = 0;
  REQUIRE(eo_restore(temp.store, "run", EO_LATEST, &found) == 0);
  CHECK(found == 2);
  CHECK(memory.has(2));
}

TEST_CASE("memory may be freed while a staged checkpoint is on its way", "[objects]") {
  const TempStore temp("/dev/shm");
  configure(temp.store, "strategy", "stage");
  configure(temp.store, "pace", "200");
  {
    Memory memory(temp.store);
    memory.fill(1);
    REQUIRE(eo_checkpoint(temp.store, "run", 1, 0) == 0);
    for (const char* name : {"large", "odd", "sub/small", "empty"}) {
      REQUIRE(eo_unprotect(temp.store, name) == 0);
    }
  }
  Memory memory(temp.store);
  REQUIRE(eo_restore(temp.store, "run", 1, nullptr) == 0);
  CHECK(memory.has(1));
}

TEST_CASE("closing a store waits for its checkpoint", "[objects]") {
  const TempDirectory directory("/dev/shm");
  {
    const OpenStore store(directory.path());
    Memory memory(store);
    configure(store, "strategy", "stage");
    configure(store, "pace", "200");
    memory.fill(1);
    REQUIRE(eo_checkpoint(store, "run", 1, 0) == 0);
  }
  const OpenStore store(directory.path());
  Memory memory(store);
  REQUIRE(eo_restore(store, "run", 1, nullptr) == 0);
  CHECK(memory.has(1));
  CHECK(unnamed_files() == 0);
}

TEST_CASE("a full store in the background is an error of eo_wait, once", "[objects]") {
  const SizedTmpfs tmpfs("size=10m");
  if (!tmpfs.mounted()) {
    SKIP("only root can mount a tmpfs");
  }
  const OpenStore store(tmpfs.path());
  Memory memory(store);  // 6 MiB
  for (const char* strategy : {"stage", "split"}) {
    configure(store, "strategy", strategy);
    std::filesystem::remove_all(tmpfs.path() + "/run");
    memory.fill(1);
    REQUIRE(eo_checkpoint(store, "run", 1, 0) == 0);
    REQUIRE(eo_wait(store) == 0);
    memory.fill(2);
    // With split the store may be full before the call returns: the rates decide.
    const bool splits = std::string(strategy) == "split";
    const int begun = eo_checkpoint(store, "run", 2, 0);
    CHECK((begun == 0 || (splits && begun == ENOSPC)));
    CHECK(eo_wait(store) == (begun == 0 ? ENOSPC : 0));
    INFO(eo_error());
    for (const char* text : {"version 00000002 of run", "No space left", "Remove files"}) {
      CHECK(std::string(eo_error()).find(text) != std::string::npos);
    }
    CHECK(eo_wait(store) == 0);
    CHECK(drafts_in(tmpfs.path()).empty());
    // A new checkpoint reports the failure of the one before, and begins nothing.
    const int again = eo_checkpoint(store, "run", 2, 0);
    CHECK((again == 0 || (splits && again == ENOSPC)));
    const int third = eo_checkpoint(store, "run", 3, 0);
    CHECK((third == ENOSPC || (again == ENOSPC && eo_wait(store) == ENOSPC)));
    CHECK(drafts_in(tmpfs.path()).empty());
    std::uint64_t found = 0;
    REQUIRE(eo_restore(store, "run", EO_LATEST, &found) == 0);
    CHECK(found == 1);
    CHECK(memory.has(1));
  }
}

TEST_CASE("auto does not take snapshot, which a program must choose", "[objects]") {
  const TempStore temp("/dev/shm");
  Memory memory(temp.store);
  memory.fill(1);
  configure(temp.store, "strategy", "auto");
  REQUIRE(eo_checkpoint(temp.store, "run", 1, 0) == 0);
  CHECK(eo_strategy(temp.store) == std::string("stage"));
}

TEST_CASE("auto takes the first strategy that has the memory it needs", "[objects]") {
  const std::pair<const char*, const char*> cases[] = {{"size=12m,mode=0700", "stage"},
                                                       {"size=7m,mode=0700", "split"},
                                                       {"size=1m,mode=0700", "copy"}};
  for (const auto& [options, strategy] : cases) {
    const SizedTmpfs tmpfs(options);
    if (!tmpfs.mounted()) {
      SKIP("only root can mount a tmpfs");
    }
    const TempStore temp("/dev/shm");
    Memory memory(temp.store);
    memory.fill(1);
    const eo_array twin =
        array_of("<i4", {memory.large().size()}, EO_C_ORDER, memory.large().data());
    REQUIRE(eo_protect(temp.store, "twin", &twin) == 0);
    configure(temp.store, "fast", tmpfs.path());
    configure(temp.store, "strategy", "auto");
    REQUIRE(eo_checkpoint(temp.store, "run", 1, 0) == 0);
    CHECK(eo_strategy(temp.store) == std::string(strategy));
    memory.fill(2);
    REQUIRE(eo_restore(temp.store, "run", 1, nullptr) == 0);
    CHECK(memory.has(1));
    configure(temp.store, "strategy", "stage");
    const bool fits = std::string(strategy) == "stage";
    CHECK(eo_checkpoint(temp.store, "run", 2, 0) == (fits ? 0 : ENOSPC));
    CHECK(eo_strategy(temp.store) == std::string(strategy));
    CHECK((fits || std::string(eo_error()).find("use the strategy copy") != std::string::npos));
    REQUIRE(eo_wait(temp.store) == 0);
    CHECK(drafts_in(temp.path()).empty());
  }
}

TEST_CASE("copies in memory are private, and nothing is left over", "[objects]") {
  const TempStore temp("/dev/shm");
  Memory memory(temp.store);
  const std::string fast = temp.directory.path() + "/fast";
  configure(temp.store, "strategy", "stage");
  configure(temp.store, "fast", fast);
  struct stat status{};
  REQUIRE(::stat(fast.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0700);
  memory.fill(1);
  REQUIRE(eo_checkpoint(temp.store, "run", 1, 0) == 0);
  CHECK(unnamed_files() == 1);
  CHECK(std::filesystem::is_empty(fast));
  REQUIRE(eo_wait(temp.store) == 0);

  REQUIRE(::chmod(fast.c_str(), 0750) == 0);
  CHECK(eo_configure(temp.store, "fast", fast.c_str()) == EPERM);
  CHECK(std::string(eo_error()).find("mode 0700") != std::string::npos);
  REQUIRE(::chmod(fast.c_str(), 0700) == 0);
  std::filesystem::create_symlink(fast, fast + "-link");
  CHECK(eo_configure(temp.store, "fast", (fast + "-link").c_str()) != 0);
  CHECK(eo_configure(temp.store, "fast", (fast + "/a/b").c_str()) == ENOENT);
  CHECK(eo_configure(temp.store, "fast", "") != 0);
  if (::geteuid() == 0) {
    REQUIRE(::chown(fast.c_str(), 1, 1) == 0);
    CHECK(eo_configure(temp.store, "fast", fast.c_str()) == EPERM);
  }
  memory.fill(2);
  REQUIRE(eo_checkpoint(temp.store, "run", 2, 0) == 0);  // the options did not change
  REQUIRE(eo_restore(temp.store, "run", 2, nullptr) == 0);
  CHECK(memory.has(2));
}

TEST_CASE("a fork during the background work disturbs neither process", "[objects]") {
  const TempStore temp("/dev/shm");
  Memory memory(temp.store);
  configure(temp.store, "strategy", "stage");
  configure(temp.store, "pace", "100");
  memory.fill(1);
  REQUIRE(eo_checkpoint(temp.store, "run", 1, 0) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const bool refused =
        eo_wait(temp.store) == EINVAL && eo_checkpoint(temp.store, "run", 5, 0) == EINVAL;
    eo_close(temp.store);
    ::_exit(refused ? 0 : 1);
  }
  CHECK(succeeds(child));
  REQUIRE(eo_wait(temp.store) == 0);
  REQUIRE(eo_restore(temp.store, "run", 1, nullptr) == 0);
  CHECK(memory.has(1));
}

TEST_CASE("a process killed during the background work leaves whole versions",
          "[objects][killed]") {
  std::mt19937_64 random(seed());
  for (const char* strategy : {"stage", "split", "auto"}) {
    int older = 0;
    int newer = 0;
    for (int round = 0; round < 6; ++round) {
      const TempDirectory directory("/dev/shm");
      const pid_t child = ::fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        eo_storage* store = nullptr;
        bool good = eo_open(directory.path().c_str(), &store) == 0;
        Memory memory(store);
        good = good && eo_configure(store, "strategy", strategy) == 0;
        memory.fill(1);
        good = good && eo_checkpoint(store, "run", 1, 0) == 0 && eo_wait(store) == 0;
        good = good && eo_configure(store, "pace", round == 0 ? "1" : "600") == 0;
        memory.fill(2);
        good = good && eo_checkpoint(store, "run", 2, 0) == 0;
        memory.fill(3);
        good = good && eo_wait(store) == 0;
        ::_exit(good ? 0 : 1);
      }
      // Kills when the drafts of version 2 have a random size. The first round kills at the first
      // byte, seconds before the slow work ends, however busy the machine is; the last round
      // lets the child end.
      std::uint64_t limit = 1 + random() % (6U << 20U);
      limit = round == 0 ? 1 : limit;
      limit = round == 5 ? UINT64_MAX : limit;
      const std::string second = draft_of(directory.path() + "/run", 2);
      pid_t ended = 0;
      while (ended == 0 && bytes_in_drafts(second) < limit) {
        ended = ::waitpid(child, nullptr, WNOHANG);
      }
      if (ended == 0) {
        ::kill(child, SIGKILL);
        REQUIRE(::waitpid(child, nullptr, 0) == child);
      }
      const OpenStore store(directory.path());
      CHECK(drafts_in(directory.path()).empty());
      Memory memory(store);
      std::uint64_t found = 0;
      REQUIRE(eo_restore(store, "run", EO_LATEST, &found) == 0);
      REQUIRE((found == 1 || found == 2));
      CHECK(memory.has(static_cast<int>(found)));
      (found == 1 ? older : newer) += 1;
    }
    CHECK(older > 0);
    CHECK(newer > 0);
  }
}

TEST_CASE("two stores and several threads checkpoint at once", "[objects][threads]") {
  const TempStore first("/dev/shm");
  const TempStore second("/dev/shm");
  Memory one(first.store, 1U << 18U);
  Memory two(second.store, 1U << 18U);
  one.fill(1);
  two.fill(2);
  const auto run = [](eo_storage* store, const char* strategy, const char* series, int* failures) {
    for (std::uint64_t n = 0; n < 5; ++n) {
      *failures += eo_configure(store, "strategy", strategy) != 0 ? 1 : 0;
      *failures += eo_checkpoint(store, series, n, 0) != 0 ? 1 : 0;
      *failures += std::string(eo_strategy(store)).empty() ? 1 : 0;
      *failures += n % 2 == 0 && eo_wait(store) != 0 ? 1 : 0;
    }
  };
  int failures[4] = {};
  {
    const std::jthread a([&] { run(first.store, "stage", "a", &failures[0]); });
    const std::jthread b([&] { run(first.store, "split", "b", &failures[1]); });
    const std::jthread c([&] { run(second.store, "stage", "c", &failures[2]); });
    const std::jthread d([&] { run(second.store, "copy", "d", &failures[3]); });
  }
  for (const int count : failures) {
    CHECK(count == 0);
  }
  for (std::uint64_t n = 0; n < 5; ++n) {
    for (const char* series : {"a", "b"}) {
      REQUIRE(eo_restore(first.store, series, n, nullptr) == 0);
      CHECK(one.has(1));
    }
    for (const char* series : {"c", "d"}) {
      REQUIRE(eo_restore(second.store, series, n, nullptr) == 0);
      CHECK(two.has(2));
    }
  }
}

}  // namespace efs::objects_test
