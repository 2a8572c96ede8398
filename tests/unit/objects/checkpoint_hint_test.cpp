// SPDX-License-Identifier: BSD-3-Clause
// eo_persisted_hint: copies before the checkpoint.
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>

#include "unit/objects/memory.hpp"

// A namespace of its own: files that are compiled as one share their names.
namespace efs::objects_test {

namespace {

/// Waits until the copies of hints have these bytes. A copy whose last bytes are being written is
/// completed, also if a checkpoint begins.
void wait_for_copies(const TempStore& temp, std::uint64_t bytes) {
  while (bytes_in_drafts(temp.path()) < bytes) {
  }
}

ino_t inode_of(const std::string& path) {
  struct stat status{};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return status.st_ino;
}

}  // namespace

TEST_CASE("an array that did not change since the hint is not written again", "[objects]") {
  for (const char* strategy : {"copy", "stage", "split"}) {
    const TempStore temp("/dev/shm");
    Memory memory(temp.store);
    REQUIRE(eo_configure(temp.store, "strategy", strategy) == 0);
    memory.fill(1);
    REQUIRE(eo_checkpoint(temp.store, "run", 1, 0) == 0);
    memory.fill(2);
    REQUIRE(eo_persisted_hint(temp.store, "large") == 0);
    REQUIRE(eo_wait(temp.store) == 0);  // of the checkpoint, not of the hint
    wait_for_copies(temp, memory.large().size() * 4);
    const auto drafts = drafts_in(temp.path());
    REQUIRE(drafts.size() == 1);
    const ino_t copy = inode_of(drafts[0]);
    REQUIRE(eo_checkpoint(temp.store, "run", 2, 0) == 0);
    REQUIRE(eo_wait(temp.store) == 0);
    CHECK(drafts_in(temp.path()).empty());
    CHECK(inode_of(temp.path() + "/run/00000002/large.npy") == copy);
    memory.fill(3);
    REQUIRE(eo_restore(temp.store, "run", 2, nullptr) == 0);
    CHECK(memory.has(2));
    REQUIRE(eo_restore(temp.store, "run", 1, nullptr) == 0);
    CHECK(memory.has(1));
  }
}

TEST_CASE("an array that changed after the hint is written again", "[objects]") {
  for (const char* strategy : {"copy", "stage", "split", "auto"}) {
    const TempStore temp("/dev/shm");
    Memory memory(temp.store);
    REQUIRE(eo_configure(temp.store, "strategy", strategy) == 0);
    memory.fill(1);
    REQUIRE(eo_persisted_hint(temp.store, "large") == 0);
    REQUIRE(eo_persisted_hint(temp.store, "odd") == 0);
    wait_for_copies(temp, memory.large().size() * 4);
    memory.large()[memory.large().size() - 1] ^= 1;
    REQUIRE(eo_checkpoint(temp.store, "run", 1, 0) == 0);
    memory.large()[memory.large().size() - 1] ^= 1;
    REQUIRE(eo_wait(temp.store) == 0);
    REQUIRE(eo_restore(temp.store, "run", 1, nullptr) == 0);
    CHECK_FALSE(memory.has(1));
    memory.large()[memory.large().size() - 1] ^= 1;
    CHECK(memory.has(1));
    CHECK(drafts_in(temp.path()).empty());
  }
}

TEST_CASE("copies of hints end with a checkpoint, an unprotect or a close", "[objects]") {
  const TempDirectory directory("/dev/shm");
  {
    const OpenStore store(directory.path());
    Memory memory(store);
    memory.fill(1);
    REQUIRE(eo_configure(store, "pace", "10") == 0);  // 400 ms for large
    REQUIRE(eo_persisted_hint(store, "large") == 0);
    CHECK(eo_persisted_hint(store, "nosuch") == ENOENT);
    CHECK(eo_persisted_hint(store, nullptr) == EINVAL);
    REQUIRE(eo_unprotect(store, "large") == 0);
    CHECK(drafts_in(directory.path()).empty());
    CHECK(eo_persisted_hint(store, "large") == ENOENT);
    REQUIRE(eo_persisted_hint(store, "odd") == 0);
    REQUIRE(eo_configure(store, "pace", "0") == 0);
    CHECK(drafts_in(directory.path()).empty());
    REQUIRE(eo_persisted_hint(store, "odd") == 0);
    REQUIRE(eo_persisted_hint(store, "odd") == 0);
    REQUIRE(eo_checkpoint(store, "run", 1, 0) == 0);
    CHECK(drafts_in(directory.path()).empty());
    REQUIRE(eo_persisted_hint(store, "odd") == 0);
    memory.fill(2);
    REQUIRE(eo_restore(store, "run", 1, nullptr) == 0);
  }
  CHECK(drafts_in(directory.path()).empty());
}

TEST_CASE("a hint in a full store is no error; the checkpoint is", "[objects]") {
  const SizedTmpfs tmpfs("size=3m");
  if (!tmpfs.mounted()) {
    SKIP("only root can mount a tmpfs");
  }
  const OpenStore store(tmpfs.path());
  Memory memory(store);
  memory.fill(1);
  REQUIRE(eo_persisted_hint(store, "large") == 0);
  CHECK(eo_wait(store) == 0);
  CHECK(eo_checkpoint(store, "run", 1, 0) == ENOSPC);
  CHECK(drafts_in(tmpfs.path()).empty());
}

}  // namespace efs::objects_test
