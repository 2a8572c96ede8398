// SPDX-License-Identifier: BSD-3-Clause
// Protection, checkpoints and restores: objects/checkpoint.
#include <catch2/catch_test_macros.hpp>

#include "unit/objects/memory.hpp"

// A namespace of its own: files that are compiled as one share their names.
namespace efs::objects_test {

TEST_CASE("a checkpoint is a version, and a restore fills the memory bit by bit", "[objects]") {
  for (const unsigned flags : {0U, EO_SYNC}) {
    const TempStore temp;
    Memory memory(temp.store);
    CHECK(eo_strategy(temp.store) == std::string());
    memory.fill(1);
    REQUIRE(eo_checkpoint(temp.store, "sim/run", 3, flags) == 0);
    CHECK(eo_strategy(temp.store) == std::string("copy"));
    CHECK(eo_wait(temp.store) == 0);
    memory.fill(2);
    REQUIRE(eo_checkpoint(temp.store, "sim/run", 4, flags) == 0);
    CHECK(drafts_in(temp.path()).empty());
    eo_storage* version = nullptr;
    REQUIRE(eo_version(temp.store, "sim/run", 4, &version) == 0);
    CHECK(names_of(version) == std::vector<std::string>{"empty", "large", "odd", "sub/small"});
    eo_close(version);
    std::uint64_t found = 0;
    memory.fill(9);
    REQUIRE(eo_restore(temp.store, "sim/run", 3, &found) == 0);
    CHECK(found == 3);
    CHECK(memory.has(1));
    REQUIRE(eo_restore(temp.store, "sim/run", EO_LATEST, &found) == 0);
    CHECK(found == 4);
    CHECK(memory.has(2));
    REQUIRE(eo_restore(temp.store, "sim/run", 3, nullptr) == 0);
  }
}

TEST_CASE("a restore that does not fit changes no memory", "[objects]") {
  const TempStore temp;
  Memory memory(temp.store);
  memory.fill(1);
  REQUIRE(eo_checkpoint(temp.store, "run", 1, 0) == 0);
  memory.fill(2);
  std::vector<std::int32_t> other(60);
  const auto wrong = [&](const eo_array& array, const char* text) {
    REQUIRE(eo_protect(temp.store, "sub/small", &array) == 0);
    for (const std::uint64_t n : {std::uint64_t{1}, EO_LATEST}) {
      CHECK(eo_restore(temp.store, "run", n, nullptr) == EINVAL);
      INFO(eo_error());
      CHECK(std::string(eo_error()).find(text) != std::string::npos);
      CHECK(memory.has(2));
    }
  };
  wrong(array_of("<i4", {20}, EO_C_ORDER, other.data()), "the memory is <i4 (20,)");
  wrong(array_of("<i4", {3, 20}, EO_C_ORDER, other.data()), "the version has <i4 (20, 3)");
  wrong(array_of("<f4", {20, 3}, EO_C_ORDER, other.data()), "array sub/small: ");
  wrong(array_of(">i4", {20, 3}, EO_C_ORDER, other.data()), ">i4");
  wrong(array_of("<i4", {20, 3}, EO_FORTRAN_ORDER, other.data()), "Fortran order");
  const eo_array array = array_of("<i4", {20, 3}, EO_C_ORDER, other.data());
  REQUIRE(eo_protect(temp.store, "sub/small", &array) == 0);
  REQUIRE(eo_protect(temp.store, "zz", &array) == 0);
  CHECK(eo_restore(temp.store, "run", EO_LATEST, nullptr) == EINVAL);
  CHECK(error_says("array zz: it is not in the version"));
  CHECK(memory.has(2));
  CHECK(eo_restore(temp.store, "run", 2, nullptr) == ENOENT);
  CHECK(eo_restore(temp.store, "nosuch", EO_LATEST, nullptr) == ENOENT);
  REQUIRE(eo_unprotect(temp.store, "zz") == 0);
  CHECK(eo_unprotect(temp.store, "zz") == ENOENT);
  REQUIRE(eo_restore(temp.store, "run", EO_LATEST, nullptr) == 0);
  CHECK(other[59] == Memory::value(1, 59));
}

TEST_CASE("a restore without arrays is refused", "[objects]") {
  const TempStore temp;
  CHECK(eo_restore(temp.store, "run", EO_LATEST, nullptr) == ENOENT);
  {
    const OpenStore writer(temp.path());
    Memory memory(writer);
    REQUIRE(eo_checkpoint(writer, "run", 1, 0) == 0);
  }
  CHECK(eo_restore(temp.store, "run", EO_LATEST, nullptr) == EINVAL);
  CHECK(error_says("no array is protected"));
  CHECK(eo_restore(temp.store, "run", 1, nullptr) == EINVAL);
}

TEST_CASE("a version that has lost an array is damaged", "[objects]") {
  const TempStore temp;
  Memory memory(temp.store);
  for (const int n : {1, 2}) {
    memory.fill(n);
    REQUIRE(eo_checkpoint(temp.store, "run", static_cast<std::uint64_t>(n), 0) == 0);
  }
  REQUIRE(std::filesystem::remove(temp.path() + "/run/00000002/large.npy"));
  CHECK(eo_restore(temp.store, "run", 2, nullptr) == EBADMSG);
  std::uint64_t found = 0;
  CHECK(eo_restore(temp.store, "run", EO_LATEST, &found) == 0);
  CHECK(found == 1);
  CHECK(memory.has(1));
}

TEST_CASE("the latest good version is restored", "[objects]") {
  const TempStore temp;
  Memory memory(temp.store);
  for (const int n : {1, 2, 3, 4}) {
    memory.fill(n);
    REQUIRE(eo_checkpoint(temp.store, "run", static_cast<std::uint64_t>(n), 0) == 0);
  }
  {
    // Bytes of the data differ: only the checksum can tell.
    std::fstream file(temp.path() + "/run/00000004/large.npy");
    file.seekp(100000);
    file << "damaged";
    REQUIRE(file.good());
  }
  write_file(temp.path() + "/run/00000003/large.npy", "damaged");
  std::uint64_t found = 0;
  memory.fill(9);
  CHECK(eo_restore(temp.store, "run", 4, &found) == EBADMSG);
  CHECK(memory.has(9));
  REQUIRE(eo_restore(temp.store, "run", EO_LATEST, &found) == 0);
  CHECK(found == 2);
  CHECK(memory.has(2));
  // The damaged versions are out of the way, with all their files.
  std::uint64_t newest = 0;
  REQUIRE(eo_newest(temp.store, "run", &newest) == 0);
  CHECK(newest == 2);
  int aside = 0;
  for (const auto& entry : std::filesystem::directory_iterator(temp.path() + "/run")) {
    aside += entry.path().string().find(".damaged-") != std::string::npos &&
             std::filesystem::exists(entry.path() / "large.npy");
  }
  CHECK(aside == 2);
  CHECK(names_of(temp.store).empty());
  CHECK(eo_checkpoint(temp.store, "run", found + 1, 0) == 0);
  CHECK(eo_remove_version(temp.store, "run", found + 1) == 0);
  for (const char* name : {"/run/00000001/large.npy", "/run/00000002/large.npy"}) {
    write_file(temp.path() + name, "damaged");
  }
  CHECK(eo_restore(temp.store, "run", EO_LATEST, &found) == EBADMSG);
  CHECK(memory.has(2));
}

TEST_CASE("wrong arguments of checkpoints are refused", "[objects]") {
  const TempStore temp;
  std::vector<double> data(4);
  const eo_array array = array_of("<f8", {4}, EO_C_ORDER, data.data());
  const eo_array empty_handed = array_of("<f8", {4});
  CHECK(eo_protect(nullptr, "a", &array) == EINVAL);
  CHECK(eo_protect(temp.store, nullptr, &array) == EINVAL);
  CHECK(eo_protect(temp.store, "a", nullptr) == EINVAL);
  CHECK(eo_protect(temp.store, "a.npy", &array) == EINVAL);
  CHECK(eo_protect(temp.store, "a", &empty_handed) == EINVAL);
  for (const char* value : {"", "fast", "COPY"}) {
    CHECK(eo_configure(temp.store, "strategy", value) == EINVAL);
  }
  for (const char* value : {"", "-1", "nan", "inf", "1x", "1e300"}) {
    CHECK(eo_configure(temp.store, "pace", value) == EINVAL);
  }
  CHECK(eo_configure(temp.store, "pace", "0.5") == 0);
  CHECK(eo_configure(temp.store, "pace", "0") == 0);
  CHECK(eo_configure(temp.store, "colour", "red") == EINVAL);
  CHECK(eo_configure(temp.store, "strategy", nullptr) == EINVAL);
  REQUIRE(eo_protect(temp.store, "a", &array) == 0);
  CHECK(eo_checkpoint(temp.store, nullptr, 1, 0) == EINVAL);
  CHECK(eo_checkpoint(temp.store, "run", 1, 2) == EINVAL);
  CHECK(eo_checkpoint(temp.store, "run", EO_LATEST, 0) == EINVAL);
  REQUIRE(eo_checkpoint(temp.store, "run", 1, 0) == 0);
  CHECK(eo_checkpoint(temp.store, "run", 1, 0) == EEXIST);
  eo_storage* version = nullptr;
  REQUIRE(eo_begin(temp.store, "run", 2, &version) == 0);
  CHECK(eo_protect(version, "a", &array) == EINVAL);
  CHECK(std::string(eo_error()).find("Use the store of eo_open") != std::string::npos);
  CHECK(eo_strategy(version) == std::string());
  CHECK(eo_checkpoint(temp.store, "run", 2, 0) == EBUSY);
  eo_abort(version);
  CHECK(eo_wait(nullptr) == EINVAL);
  CHECK(eo_restore(temp.store, nullptr, 1, nullptr) == EINVAL);
}

TEST_CASE("a child of the process that opened the store has no checkpoints", "[objects]") {
  const TempStore temp;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::int8_t byte = 0;
    const eo_array array = array_of("|i1", {1}, EO_C_ORDER, &byte);
    ::_exit(eo_protect(temp.store, "a", &array) == EINVAL &&
                    std::string(eo_error()).find("before fork()") != std::string::npos
                ? 0
                : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

}  // namespace efs::objects_test
