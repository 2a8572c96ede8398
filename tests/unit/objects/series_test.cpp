// SPDX-License-Identifier: BSD-3-Clause
// The versions of a series: objects/series.cpp. And eo_fail.
#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "unit/objects/arrays.hpp"

// A namespace of its own: files that are compiled as one share their names.
namespace efs::objects_test {

namespace {

void commit_empty(eo_storage* store, std::uint64_t n) {
  eo_storage* version = nullptr;
  REQUIRE(eo_begin(store, "sim/run", n, &version) == 0);
  REQUIRE(eo_commit(version, 0) == 0);
}

std::vector<std::uint64_t> versions_of(eo_storage* store, const char* series = "sim/run") {
  std::vector<std::uint64_t> found;
  const auto each = [](std::uint64_t n, void* context) {
    static_cast<std::vector<std::uint64_t>*>(context)->push_back(n);
    return 0;
  };
  REQUIRE(eo_versions(store, series, each, &found) == 0);
  return found;
}

}  // namespace

TEST_CASE("the versions of a series are listed, the newest is found", "[objects]") {
  const TempStore temp;
  std::uint64_t n = 77;
  CHECK(eo_newest(temp.store, "sim/run", &n) == ENOENT);
  CHECK(versions_of(temp.store).empty());
  for (const std::uint64_t number : {300000000U, 5U, 20U}) {
    commit_empty(temp.store, number);
  }
  eo_storage* unfinished = nullptr;
  REQUIRE(eo_begin(temp.store, "sim/run", 400000000, &unfinished) == 0);
  std::filesystem::create_directory(temp.path() + "/sim/run/999999999");  // without a manifest
  CHECK(versions_of(temp.store) == std::vector<std::uint64_t>{5, 20, 300000000});
  REQUIRE(eo_newest(temp.store, "sim/run", &n) == 0);
  CHECK(n == 300000000);
  const auto second = [](std::uint64_t, void* context) {
    return ++*static_cast<int*>(context) == 2 ? 7 : 0;
  };
  int calls = 0;
  CHECK(eo_versions(temp.store, "sim/run", second, &calls) == 7);
  CHECK(calls == 2);
  CHECK(eo_versions(temp.store, "sim/run", nullptr, nullptr) == EINVAL);
  CHECK(eo_versions(temp.store, "../run", second, nullptr) == EINVAL);
  CHECK(eo_newest(temp.store, nullptr, &n) == EINVAL);
  eo_abort(unfinished);
}

TEST_CASE("a version is removed, and its views stay", "[objects]") {
  const TempStore temp;
  eo_storage* version = nullptr;
  REQUIRE(eo_begin(temp.store, "sim/run", 3, &version) == 0);
  REQUIRE(store_filled(version, "d/u", 6, 100000) == 0);
  REQUIRE(eo_commit(version, 0) == 0);
  commit_empty(temp.store, 4);
  REQUIRE(eo_version(temp.store, "sim/run", 3, &version) == 0);
  eo_array view{};
  REQUIRE(eo_view(version, "d/u", &view) == 0);
  CHECK(eo_remove_version(version, "sim/run", 4) == EROFS);
  REQUIRE(eo_remove_version(temp.store, "sim/run", 3) == 0);
  CHECK(static_cast<const std::int32_t*>(view.data)[99999] == 6);
  eo_release(&view);
  eo_close(version);
  CHECK(versions_of(temp.store) == std::vector<std::uint64_t>{4});
  CHECK(eo_remove_version(temp.store, "sim/run", 3) == ENOENT);
  CHECK(eo_remove_version(temp.store, "sim/run", EO_LATEST) == EINVAL);
  CHECK(eo_remove_version(temp.store, "nosuch", 1) == ENOENT);
  CHECK(drafts_in(temp.path()).empty());
}

TEST_CASE("an interface in another language sets the text of a failure", "[objects]") {
  CHECK(eo_fail(EBUSY, "cannot do it: busy. Wait.") == EBUSY);
  CHECK(std::string(eo_error()) == "cannot do it: busy. Wait.");
  CHECK(eo_fail(ENOENT, nullptr) == ENOENT);
  CHECK(std::string(eo_error()) == "No such file or directory");
  std::string other = "unset";
  std::thread([&] { other = eo_error(); }).join();
  CHECK(other == "");
}

}  // namespace efs::objects_test
