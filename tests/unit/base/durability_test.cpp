// SPDX-License-Identifier: BSD-3-Clause
// The durability class of a directory.
#include "base/durability.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <string>

#include "base/shared_mapping.hpp"
#include "support/temp.hpp"

namespace {

using namespace efs;

int is_none(const void* /*address*/, std::size_t /*length*/) {
  return 0;
}

int is_all(const void* /*address*/, std::size_t /*length*/) {
  return 1;
}

TEST_CASE("the class of a directory follows from its file system", "[durability]") {
  const test::TempDirectory in_memory("/dev/shm");
  const DurabilityProbe memory = probe_durability(in_memory.open().get(), is_none);
  CHECK(memory.memory);
  CHECK(memory.problem == 0);
  CHECK(memory.durability() == Durability::volatile_memory);
  CHECK(std::filesystem::is_empty(in_memory.path()));

  const test::TempDirectory directory;
  const UniqueFd file(
      ::open((directory.path() + "/probe").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  REQUIRE(::ftruncate(file.get(), 4096) == 0);
  const SharedMapping mapping = map_shared(file.get(), 4096, 0);
  REQUIRE(mapping.address != nullptr);
  CHECK(probe_durability(directory.open().get(), is_none).maps_persistent == mapping.synchronous);
  ::munmap(mapping.address, 4096);
}

TEST_CASE("a class combines the kind of the file system and its mappings", "[durability]") {
  CHECK(DurabilityProbe{}.durability() == Durability::page);
  CHECK(DurabilityProbe{.maps_persistent = true}.durability() == Durability::cache_line);
  CHECK(DurabilityProbe{.memory = true}.durability() == Durability::volatile_memory);
  // only with a forced libpmem: memory does not become persistent by that
  CHECK(DurabilityProbe{.memory = true, .maps_persistent = true}.durability() ==
        Durability::volatile_memory);
}

TEST_CASE("a probe that cannot make a file says why, and promises the least", "[durability]") {
  const UniqueFd no_files(::open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  REQUIRE(no_files);
  const DurabilityProbe found = probe_durability(no_files.get(), is_none);
  CHECK(found.problem != 0);
  CHECK(!found.maps_persistent);
  CHECK(found.durability() == Durability::page);
  CHECK(probe_durability(-1, is_none).problem == EBADF);
}

TEST_CASE("only tests can force persistent memory", "[durability]") {
  int bytes = 0;
  CHECK(is_persistent({&bytes, true}, sizeof bytes, is_none));
  CHECK(!is_persistent({&bytes, false}, sizeof bytes, is_none));
  CHECK(is_persistent({&bytes, false}, sizeof bytes, is_all) == may_be_forced());
  CHECK(!is_persistent({nullptr, true}, sizeof bytes, is_all));
}

TEST_CASE("each class has a name and a meaning", "[durability]") {
  CHECK(name_of(Durability::volatile_memory) == std::string("memory"));
  CHECK(name_of(Durability::page) == std::string("page cache"));
  CHECK(name_of(Durability::cache_line) == std::string("persistent memory"));
  for (const auto one : {Durability::volatile_memory, Durability::page, Durability::cache_line}) {
    CHECK(durability_named(name_of(one)) == one);
  }
  CHECK(!durability_named("Page cache"));
  CHECK(!durability_named(""));
  CHECK(std::string(meaning_of(Durability::volatile_memory)).contains("volatile"));
  CHECK(std::string(meaning_of(Durability::page)).contains("fsync or msync"));
  CHECK(std::string(meaning_of(Durability::cache_line)).contains("real DAX"));
}

}  // namespace
