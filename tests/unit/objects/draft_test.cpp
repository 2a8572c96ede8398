// SPDX-License-Identifier: BSD-3-Clause
// Drafts: objects/draft.cpp and objects/leftovers.cpp.
#include <sys/mount.h>

#include <catch2/catch_test_macros.hpp>

#include "objects/leftovers.hpp"
#include "objects/name.hpp"
#include "unit/objects/arrays.hpp"

// A namespace of its own: files that are compiled as one share their names.
namespace efs::objects_test {

namespace {

/// A tmpfs of 4 MiB; no mount without root.
class SmallTmpfs {
 public:
  SmallTmpfs() {
    mounted_ = ::mount("efs-test", directory_.path().c_str(), "tmpfs", 0, "size=4m") == 0;
  }

  SmallTmpfs(const SmallTmpfs&) = delete;
  SmallTmpfs& operator=(const SmallTmpfs&) = delete;

  ~SmallTmpfs() {
    if (mounted_) {
      ::umount2(directory_.path().c_str(), MNT_DETACH);
    }
  }

  bool mounted() const { return mounted_; }

  std::string path() const { return directory_.path() + "/store"; }

 private:
  TempDirectory directory_;
  bool mounted_ = false;
};

}  // namespace

TEST_CASE("a draft has no name before it is published", "[objects]") {
  for (const unsigned flags : {0U, EO_SYNC}) {
    const TempStore temp;
    REQUIRE(store_filled(temp.store, "d/a", 1, 10) == 0);
    const eo_array array = array_of("<i4", {1000});
    eo_draft* draft = nullptr;
    REQUIRE(eo_create(temp.store, "d/a", &array, &draft) == 0);
    auto* const data = static_cast<std::int32_t*>(eo_data(draft));
    CHECK(reinterpret_cast<std::uintptr_t>(data) % 64 == 0);
    CHECK(std::all_of(data, data + 1000, [](std::int32_t value) { return value == 0; }));
    std::fill_n(data, 1000, 2);
    CHECK(value_of(temp.store, "d/a") == 1);
    CHECK(names_of(temp.store) == std::vector<std::string>{"d/a"});
    CHECK(drafts_in(temp.path()).size() == 1);
    REQUIRE(eo_publish(draft, flags) == 0);
    CHECK(value_of(temp.store, "d/a") == 2);
    CHECK(drafts_in(temp.path()).empty());
  }
}

TEST_CASE("a draft that is discarded or fails leaves nothing", "[objects]") {
  const TempStore temp;
  REQUIRE(store_filled(temp.store, "a", 1, 10) == 0);
  const eo_array array = array_of("<i4", {1000});
  eo_draft* draft = nullptr;
  REQUIRE(eo_create(temp.store, "a", &array, &draft) == 0);
  const std::uint64_t start[] = {999};
  const std::uint64_t count[] = {2};
  CHECK(eo_put(draft, start, count, "12345678") == EINVAL);
  CHECK(eo_put(draft, nullptr, nullptr, nullptr) == EINVAL);
  eo_discard(draft);
  REQUIRE(eo_create(temp.store, "a", &array, &draft) == 0);
  CHECK(eo_publish(draft, 0x80) == EINVAL);
  CHECK(drafts_in(temp.path()).empty());
  CHECK(value_of(temp.store, "a") == 1);
  CHECK(eo_create(temp.store, "a.part", &array, &draft) == EINVAL);
  std::filesystem::create_directory(temp.path() + "/b.npy");
  REQUIRE(eo_create(temp.store, "b", &array, &draft) == 0);
  CHECK(eo_publish(draft, 0) == EISDIR);
  CHECK(drafts_in(temp.path()).empty());
}

TEST_CASE("a draft outlives its store", "[objects]") {
  const TempDirectory temp;
  eo_storage* store = nullptr;
  REQUIRE(eo_open(temp.path().c_str(), &store) == 0);
  const eo_array array = array_of("<i4", {10});
  eo_draft* draft = nullptr;
  REQUIRE(eo_create(store, "a/b", &array, &draft) == 0);
  eo_close(store);
  REQUIRE(eo_publish(draft, EO_SYNC) == 0);
  const OpenStore again(temp.path());
  CHECK(value_of(again, "a/b") == 0);
}

TEST_CASE("a full file system is ENOSPC, and the old object stays", "[objects]") {
  const SmallTmpfs tmpfs;
  if (!tmpfs.mounted()) {
    SKIP("only root can mount a tmpfs");
  }
  const OpenStore store(tmpfs.path());
  REQUIRE(store_filled(store, "a", 1, 250000) == 0);
  CHECK(store_filled(store, "a", 2, 1000000) == ENOSPC);
  CHECK(std::string(eo_error()).find("No space left") != std::string::npos);
  CHECK(std::string(eo_error()).find("Remove files") != std::string::npos);
  CHECK(value_of(store, "a") == 1);
  const eo_array large = array_of("<i4", {1000000});
  eo_draft* draft = nullptr;
  CHECK(eo_create(store, "a", &large, &draft) == ENOSPC);
  CHECK(drafts_in(tmpfs.path()).empty());
  // The space of a draft is reserved: another writer cannot take it.
  const eo_array array = array_of("<i4", {500000});
  REQUIRE(eo_create(store, "b", &array, &draft) == 0);
  CHECK(store_filled(store, "c", 3, 500000) == ENOSPC);
  std::fill_n(static_cast<std::int32_t*>(eo_data(draft)), 500000, 4);
  REQUIRE(eo_publish(draft, 0) == 0);
  CHECK(value_of(store, "b") == 4);
}

TEST_CASE("a full file system is an error of a bundle, and the old bundle stays", "[objects]") {
  const SmallTmpfs tmpfs;
  if (!tmpfs.mounted()) {
    SKIP("only root can mount a tmpfs");
  }
  const OpenStore store(tmpfs.path());
  for (const std::size_t size : {std::size_t{250}, std::size_t{1000000}}) {  // buffered, and not
    eo_storage* bundle = nullptr;
    REQUIRE(eo_begin_bundle(store, "few", &bundle) == 0);
    REQUIRE(store_filled(bundle, "a", 1, 100) == 0);
    REQUIRE(eo_commit(bundle, 0) == 0);
    REQUIRE(eo_begin_bundle(store, "few", &bundle) == 0);
    int error = 0;
    for (int i = 0; i < 5000 && error == 0; ++i) {
      error = store_filled(bundle, std::to_string(i).c_str(), 2, size);
    }
    CHECK(error == ENOSPC);
    // The bundle is still open: what was stored before can be read.
    CHECK((size > 1000 || value_of(bundle, "0") == 2));
    CHECK((size > 1000 || eo_commit(bundle, 0) == ENOSPC));
    if (size > 1000) {
      eo_abort(bundle);
    }
    CHECK(drafts_in(tmpfs.path()).empty());
    REQUIRE(eo_bundle(store, "few", &bundle) == 0);
    CHECK(value_of(bundle, "a") == 1);
    eo_close(bundle);
  }
}

TEST_CASE("an open removes the drafts of dead processes only", "[objects]") {
  const TempStore temp;
  const eo_array array = array_of("<i4", {1000});
  eo_draft* alive = nullptr;
  REQUIRE(eo_create(temp.store, "d/alive", &array, &alive) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // A store of its own: the parent's lock is not inherited by what the child opens.
    eo_storage* store = nullptr;
    eo_draft* draft = nullptr;
    eo_storage* version = nullptr;
    const bool made = eo_open(temp.path().c_str(), &store) == 0 &&
                      eo_create(store, "d/dead", &array, &draft) == 0 &&
                      eo_create(store, "dead", &array, &draft) == 0 &&
                      eo_begin(store, "run", 42, &version) == 0 &&
                      store_filled(version, "x/u", 1, 10) == 0 &&
                      eo_create(version, "x/v", &array, &draft) == 0;
    ::_exit(made ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  CHECK(drafts_in(temp.path()).size() == 5);
  write_file(temp.path() + "/film.part", "another program's");
  write_file(temp.path() + "/d/eo-0123.part", "also");
  {
    const OpenStore again(temp.path());
  }
  CHECK(drafts_in(temp.path()).size() == 3);
  CHECK(std::filesystem::exists(temp.path() + "/film.part"));
  CHECK_FALSE(std::filesystem::exists(draft_of(temp.path() + "/run", 42)));
  REQUIRE(eo_publish(alive, 0) == 0);
  CHECK(value_of(temp.store, "d/alive") == 0);
}

TEST_CASE("a sweep keeps the directories of users", "[objects]") {
  const TempStore temp;
  const std::string directory = temp.path() + "/thesis/20261129.part";
  std::filesystem::create_directories(directory);
  write_file(directory + "/a.txt", "precious");
  {
    const OpenStore again(temp.path());
  }
  CHECK(bytes_of(directory + "/a.txt") == "precious");
}

TEST_CASE("a sweep keeps drafts of other nodes for seven days", "[objects]") {
  const TempStore temp;
  std::string mark = objects::node_mark();
  mark.back() = mark.back() == '0' ? '1' : '0';
  const std::string file = temp.path() + "/eo-" + mark + "0123456789.part";
  const std::string directory = temp.path() + "/run/" + objects::version_draft_name(1, mark);
  std::filesystem::create_directories(directory);
  write_file(file, "of another node");
  {
    const OpenStore again(temp.path());
  }
  CHECK(drafts_in(temp.path()).size() == 2);
  const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::hours(7 * 24 + 1);
  std::filesystem::last_write_time(file, old);
  std::filesystem::last_write_time(directory, old);
  {
    const OpenStore again(temp.path());
  }
  CHECK(drafts_in(temp.path()).empty());
}

TEST_CASE("a sweep does not follow links", "[objects]") {
  const TempDirectory outside;
  const TempStore temp;
  const std::string draft = *efs::objects::new_draft_name();
  write_file(outside.path() + '/' + draft, "not in the store");
  std::filesystem::create_directory_symlink(outside.path(), temp.path() + "/link");
  std::filesystem::create_directory_symlink(outside.path(), draft_of(temp.path(), 1));
  std::filesystem::create_symlink(outside.path() + '/' + draft, temp.path() + '/' + draft);
  {
    const OpenStore again(temp.path());
  }
  CHECK(std::filesystem::exists(outside.path() + '/' + draft));
  CHECK(store_filled(temp.store, "link/a", 1, 1) == ENOTDIR);
  CHECK(names_of(temp.store).empty());
}

}  // namespace efs::objects_test
