// SPDX-License-Identifier: BSD-3-Clause
// Versions: objects/version.cpp.
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "base/checksum.hpp"
#include "support/durable_calls.hpp"
#include "support/file_text.hpp"
#include "unit/objects/arrays.hpp"

// A namespace of its own: files that are compiled as one share their names.
namespace efs::objects_test {

namespace {

std::string content_of(const std::string& path) {
  return test::file_text(path);
}

constexpr std::size_t large = 20000;  // elements: a file of its own

/// Commits a version with one object of this value.
int committed(eo_storage* store, std::uint64_t n, std::int32_t value, unsigned flags = 0) {
  eo_storage* version = nullptr;
  const int error = eo_begin(store, "run", n, &version);
  if (error != 0) {
    return error;
  }
  REQUIRE(store_filled(version, "u", value, large) == 0);
  return eo_commit(version, flags);
}

std::int32_t value_in(eo_storage* store, std::uint64_t n) {
  eo_storage* version = nullptr;
  if (eo_version(store, "run", n, &version) != 0) {
    return -1;
  }
  const std::int32_t value = value_of(version, "u");
  eo_close(version);
  return value;
}

}  // namespace

TEST_CASE("a version appears whole, with a manifest", "[objects]") {
  for (const unsigned flags : {0U, EO_SYNC}) {
    const TempStore temp;
    eo_storage* version = nullptr;
    REQUIRE(eo_begin(temp.store, "sim/run", 42, &version) == 0);
    REQUIRE(store_filled(version, "u", 1, large) == 0);
    REQUIRE(store_filled(version, "sub/a \"b\"\\", 2, large) == 0);
    const eo_array array = array_of("<f8", {200, 300}, EO_FORTRAN_ORDER);
    eo_draft* draft = nullptr;
    REQUIRE(eo_create(version, "v", &array, &draft) == 0);
    eo_storage* other = nullptr;
    CHECK(eo_version(temp.store, "sim/run", 42, &other) == ENOENT);
    CHECK(eo_version(temp.store, "sim/run", EO_LATEST, &other) == ENOENT);
    CHECK(eo_commit(version, flags) == EBUSY);
    REQUIRE(eo_publish(draft, flags) == 0);
    REQUIRE(eo_commit(version, flags) == 0);
    CHECK(drafts_in(temp.path()).empty());

    const std::string path = temp.path() + "/sim/run/00000042/";
    const auto manifest = nlohmann::json::parse(content_of(path + "manifest.json"));
    CHECK(manifest["format"] == "efs-objects-1");
    REQUIRE(manifest["objects"].size() == 3);
    CHECK(manifest["objects"][0]["name"] == "sub/a \"b\"\\");
    CHECK(manifest["objects"][2]["shape"] == nlohmann::json::array({200, 300}));
    CHECK(manifest["objects"][2]["fortran_order"] == true);
    for (const auto& object : manifest["objects"]) {
      const std::string bytes = content_of(path + object["name"].get<std::string>() + ".npy");
      CHECK(object["size"] == bytes.size());
      char sum[32];
      std::snprintf(
          sum, sizeof sum, "xxh3:%016llx",
          static_cast<unsigned long long>(efs::checksum(std::as_bytes(std::span(bytes)))));
      CHECK(object["checksum"] == sum);
    }

    REQUIRE(eo_version(temp.store, "sim/run", EO_LATEST, &version) == 0);
    CHECK(names_of(version) == std::vector<std::string>{"sub/a \"b\"\\", "u", "v"});
    CHECK(value_of(version, "u") == 1);
    CHECK(store_filled(version, "u", 3, 10) == EROFS);
    CHECK(eo_create(version, "w", &array, &draft) == EROFS);
    CHECK(eo_remove(version, "u") == EROFS);
    CHECK(eo_begin(version, "x", 1, &other) == EROFS);
    CHECK(eo_keep(version, "x", 1) == EROFS);
    eo_close(version);
    CHECK(names_of(temp.store).empty());
    CHECK(store_filled(temp.store, "sim/run/00000042/u", 9, 9) == EINVAL);
  }
}

TEST_CASE("a version is written once", "[objects]") {
  const TempStore temp;
  REQUIRE(committed(temp.store, 7, 1) == 0);
  CHECK(committed(temp.store, 7, 2) == EEXIST);
  CHECK(committed(temp.store, EO_LATEST, 2) == EINVAL);
  eo_storage* version = nullptr;
  eo_storage* other = nullptr;
  REQUIRE(eo_begin(temp.store, "run", 8, &version) == 0);
  CHECK(eo_begin(temp.store, "run", 8, &other) == EBUSY);
  CHECK(eo_begin(version, "run", 9, &other) == EINVAL);
  REQUIRE(store_filled(version, "u", 3, 5) == 0);
  {
    const OpenStore again(temp.path());  // sweeps, and leaves the version alone
  }
  REQUIRE(eo_commit(version, 0) == 0);
  CHECK(value_in(temp.store, 7) == 1);
  CHECK(value_in(temp.store, 8) == 3);
  CHECK(eo_begin(temp.store, "../run", 9, &version) == EINVAL);
  REQUIRE(eo_begin(temp.store, "empty", 1, &version) == 0);
  CHECK(eo_commit(version, 0) == 0);
}

TEST_CASE("a version that is aborted or closed leaves nothing", "[objects]") {
  const TempStore temp;
  for (const auto end : {eo_abort, eo_close}) {
    eo_storage* version = nullptr;
    REQUIRE(eo_begin(temp.store, "run", 1, &version) == 0);
    REQUIRE(store_filled(version, "a/b/u", 1, 10) == 0);
    end(version);
    CHECK(drafts_in(temp.path()).empty());
    CHECK(value_in(temp.store, 1) == -1);
  }
  eo_abort(nullptr);
}

TEST_CASE("a version that cannot be read is none of those that are kept", "[objects]") {
  const TempStore temp;
  for (const std::uint64_t n : {1U, 2U, 3U, 4U}) {
    REQUIRE(committed(temp.store, n, static_cast<std::int32_t>(n)) == 0);
  }
  write_file(temp.path() + "/run/00000004/manifest.json", "damaged");
  REQUIRE(eo_keep(temp.store, "run", 2) == 0);
  CHECK(value_in(temp.store, 1) == -1);
  CHECK(value_in(temp.store, 2) == 2);
  CHECK(value_in(temp.store, 3) == 3);
  CHECK(value_in(temp.store, 4) == 4);
}

TEST_CASE("a damaged object is not committed", "[objects]") {
  const TempStore temp;
  eo_storage* version = nullptr;
  REQUIRE(eo_begin(temp.store, "run", 1, &version) == 0);
  REQUIRE(store_filled(version, "u", 1, large) == 0);
  write_file(draft_of(temp.path() + "/run", 1) + "/u.npy", "damaged");
  CHECK(eo_commit(version, 0) == EBADMSG);
  CHECK(std::string(eo_error()).find("u: the file is not") != std::string::npos);
  CHECK(drafts_in(temp.path()).empty());
}

TEST_CASE("a commit reads no object again that it stored, unless the file has changed",
          "[objects]") {
  const TempStore temp("/dev/shm");
  eo_storage* version = nullptr;
  REQUIRE(eo_begin(temp.store, "run", 1, &version) == 0);
  REQUIRE(store_filled(version, "u", 1, 50 * large) == 0);
  REQUIRE(store_filled(version, "v", 1, 50 * large) == 0);
  REQUIRE(eo_remove(version, "v") == 0);
  REQUIRE(store_filled(version, "v", 2, 50 * large) == 0);
  const std::uint64_t before = bytes_read();
  REQUIRE(eo_commit(version, 0) == 0);
  CHECK(bytes_read() - before < 100000);
  REQUIRE(eo_version(temp.store, "run", 1, &version) == 0);
  CHECK(eo_check(version, nullptr) == 0);
  eo_close(version);

  REQUIRE(eo_begin(temp.store, "run", 2, &version) == 0);
  REQUIRE(store_filled(version, "u", 1, large) == 0);
  const std::string file = draft_of(temp.path() + "/run", 2) + "/u.npy";
  std::string changed = content_of(file);
  changed.back() = 7;
  struct stat stored{};
  struct stat now{};
  REQUIRE(::stat(file.c_str(), &stored) == 0);
  do {  // until the clock of the file system has moved
    write_file(file, changed);
    REQUIRE(::stat(file.c_str(), &now) == 0);
  } while (now.st_mtim.tv_nsec == stored.st_mtim.tv_nsec);
  REQUIRE(eo_commit(version, 0) == 0);
  REQUIRE(eo_version(temp.store, "run", 2, &version) == 0);
  CHECK(eo_check(version, nullptr) == 0);
  eo_close(version);
}

TEST_CASE("latest is found, and the newest are kept", "[objects]") {
  const TempStore temp;
  for (const std::uint64_t n : {5U, 300000000U, 1U, 99999999U, 20U}) {
    REQUIRE(committed(temp.store, n, static_cast<std::int32_t>(n)) == 0);
  }
  CHECK(value_in(temp.store, EO_LATEST) == 300000000);
  std::filesystem::create_directory(temp.path() + "/run/999999999");  // without a manifest
  write_file(temp.path() + "/run/notes", "");
  CHECK(value_in(temp.store, EO_LATEST) == 300000000);
  CHECK(value_in(temp.store, 999999999) == -1);
  eo_storage* old = nullptr;
  REQUIRE(eo_version(temp.store, "run", 1, &old) == 0);
  eo_array view{};
  REQUIRE(eo_view(old, "u", &view) == 0);
  CHECK(eo_keep(temp.store, "run", 0) == EINVAL);
  REQUIRE(eo_keep(temp.store, "run", 2) == 0);
  CHECK(value_in(temp.store, 1) == -1);
  CHECK(value_in(temp.store, 20) == -1);
  CHECK(value_in(temp.store, 99999999) == 99999999);
  CHECK(value_in(temp.store, 300000000) == 300000000);
  CHECK(std::filesystem::exists(temp.path() + "/run/notes"));
  CHECK(static_cast<const std::int32_t*>(view.data)[99] == 1);
  CHECK(value_of(old, "u") == -1);
  eo_release(&view);
  eo_close(old);
  CHECK(drafts_in(temp.path()).empty());
  CHECK(eo_keep(temp.store, "nosuch", 1) == ENOENT);
}

TEST_CASE("a store that is created is durable", "[objects]") {
  const TempDirectory parent;
  const test::DurableCalls calls;
  const OpenStore store(parent.path() + "/a/b");
  const auto made = calls.so_far();
  CHECK(test::disorder(made, {test::syncs(parent.path()), test::syncs(parent.path() + "/a")}) ==
        "");
}

TEST_CASE("EO_SYNC syncs the file, renames it and syncs its directories", "[objects]") {
  const TempStore temp;
  const std::string path = temp.path();
  const auto renamed_to = [](const std::string& to) {
    return test::DurableEvent{"rename to " + to, [to](const test::DurableCall& call) {
                                return call.kind == test::DurableCall::Kind::rename &&
                                       call.to == to;
                              }};
  };
  const test::DurableEvent draft_synced{"sync of a draft", [](const test::DurableCall& call) {
                                          return call.kind == test::DurableCall::Kind::sync &&
                                                 call.path.ends_with(".part");
                                        }};
  {
    const test::DurableCalls calls;
    REQUIRE(store_filled(temp.store, "d/a", 1, 10, EO_SYNC) == 0);
    const auto made = calls.so_far();
    CHECK(test::disorder(made, {draft_synced, renamed_to(path + "/d/a.npy"),
                                test::syncs(path + "/d"), test::syncs(path)}) == "");
  }
  {
    const test::DurableCalls calls;
    REQUIRE(committed(temp.store, 3, 1, EO_SYNC) == 0);
    const auto made = calls.so_far();
    const std::string draft = draft_of(path + "/run", 3);
    CHECK(
        test::disorder(made, {test::syncs(draft + "/u.npy"), test::syncs(draft + "/manifest.json"),
                              test::syncs(draft), renamed_to(path + "/run/00000003"),
                              test::syncs(path + "/run"), test::syncs(path)}) == "");
  }
  test::DurableCalls calls;
  REQUIRE(store_filled(temp.store, "d/a", 2, 10) == 0);
  CHECK(calls.so_far().size() == 1);  // the rename alone
  calls.fail_syncs(EIO);
  CHECK(store_filled(temp.store, "d/a", 3, 10, EO_SYNC) == EIO);
  CHECK(value_of(temp.store, "d/a") == 2);
  CHECK(committed(temp.store, 4, 1, EO_SYNC) == EIO);
  CHECK(value_in(temp.store, EO_LATEST) == 1);
  CHECK(drafts_in(path).empty());
  calls.fail_syncs(EIO, 1);  // the sync of the file succeeds
  CHECK(store_filled(temp.store, "d/a", 4, 10, EO_SYNC) == EIO);
  CHECK(error_says("it is in its place"));
  CHECK(value_of(temp.store, "d/a") == 4);
  calls.fail_syncs(EIO, 3);  // so do those of u.npy, the manifest and the directory of the version
  CHECK(committed(temp.store, 4, 5, EO_SYNC) == EIO);
  CHECK(error_says("it is in its place"));
  CHECK(value_in(temp.store, 4) == 5);
}

}  // namespace efs::objects_test
