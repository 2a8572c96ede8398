// SPDX-License-Identifier: BSD-3-Clause
// File systems that report a failed write at the close of the file, such as NFS.
#include <fcntl.h>

#include <catch2/catch_test_macros.hpp>
#include <functional>

#include "objects/bundle.hpp"
#include "objects/store.hpp"
#include "support/failing_calls.hpp"
#include "unit/objects/arrays.hpp"

// A namespace of its own: files that are compiled as one share their names.
namespace efs::objects_test {

namespace {

/// Returns the result of a call whose closes all fail with EDQUOT.
int without_closes(const std::function<int()>& call) {
  int result = -1;
  std::string text;
  test::with_calls_failing({{SYS_close, EDQUOT}}, [&] {
    result = call();
    text = eo_error();
  });
  INFO(text);
  CHECK(text.find("larger quota") != std::string::npos);
  return result;
}

}  // namespace

TEST_CASE("an object is not published if the close of its file fails", "[objects][close]") {
  const TempStore temp;
  REQUIRE(store_filled(temp.store, "a", 1, 1000) == 0);
  CHECK(without_closes([&] { return store_filled(temp.store, "a", 2, 1000); }) == EDQUOT);
  CHECK(value_of(temp.store, "a") == 1);

  eo_draft* draft = nullptr;
  const eo_array array = array_of("<i4", {1000});
  REQUIRE(eo_create(temp.store, "a", &array, &draft) == 0);
  CHECK(without_closes([&] { return eo_publish(draft, 0); }) == EDQUOT);
  CHECK(value_of(temp.store, "a") == 1);

  eo_storage* bundle = nullptr;
  REQUIRE(eo_begin_bundle(temp.store, "few", &bundle) == 0);
  REQUIRE(store_filled(bundle, "a", 2, 10) == 0);
  CHECK(without_closes([&] { return eo_commit(bundle, 0); }) == EDQUOT);
  CHECK(eo_bundle(temp.store, "few", &bundle) == ENOENT);
  CHECK(drafts_in(temp.path()).empty());
}

TEST_CASE("a version is not published if a close of its files fails", "[objects][close]") {
  const TempStore temp;
  eo_storage* version = nullptr;
  REQUIRE(eo_begin(temp.store, "run", 1, &version) == 0);
  // Its file is published before: only the manifest is written by the commit.
  REQUIRE(store_filled(version, "u", 2, objects::max_small) == 0);
  CHECK(without_closes([&] { return eo_commit(version, 0); }) == EDQUOT);
  CHECK(eo_version(temp.store, "run", EO_LATEST, &version) == ENOENT);
  CHECK(drafts_in(temp.path()).empty());
}

TEST_CASE("a bundle of small arrays is not finished if the close of its file fails",
          "[objects][close]") {
  const TempDirectory temp;
  auto directory = objects::open_directory(AT_FDCWD, temp.path());
  REQUIRE(directory);
  objects::Bundle bundle(std::move(*directory), "small.npz");
  const auto shape = objects::checked(array_of("<i4", {10}));
  REQUIRE(shape);
  REQUIRE(bundle.store("a", *shape, filled(1, 10).data(), false));
  objects::Status finished;
  test::with_calls_failing({{SYS_close, EIO}}, [&] { finished = bundle.finish(false); });
  REQUIRE(!finished);
  CHECK(finished.error().code == EIO);
  CHECK(bundle.finish(false));  // a second attempt
}

}  // namespace efs::objects_test
