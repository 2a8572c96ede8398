// SPDX-License-Identifier: BSD-3-Clause
// Several backends as one, beyond the contract: the choice of the backend for a container, and that
// only one backend has the container.
#include "backends/virtual_device.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <catch2/catch_test_macros.hpp>
#include <set>
#include <thread>
#include <vector>

#include "backends/fsdax.hpp"
#include "fs/filesystem.hpp"
#include "fs/staging.hpp"
#include "support/failing_backend.hpp"
#include "support/temp.hpp"

using namespace efs;

namespace {

constexpr std::uint64_t member_capacity = 4u << 20;

/// Two directories, which survive the device that is made of them.
struct Scene {
  test::TempDirectory directory{"/dev/shm"};

  Scene() {
    for (const char* part : {"/a", "/b", "/meta"}) {
      ::mkdir((directory.path() + part).c_str(), 0700);
    }
  }

  UniqueFd open(const std::string& part) const {
    return UniqueFd(::open((directory.path() + part).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }

  std::unique_ptr<Backend> one(const std::string& part, bool counted = true) const {
    FsdaxOptions options;
    options.directory = open(part);
    if (counted) {
      options.capacity = member_capacity;
    }
    options.strict = counted;
    return std::move(*make_fsdax(std::move(options)));
  }

  VirtualDeviceOptions both(bool spill = false, unsigned new_containers = 0,
                            bool counted = true) const {
    VirtualDeviceOptions options{.members = {}, .new_containers = new_containers, .spill = spill};
    options.members.push_back({.id = "a", .backend = one("/a", counted)});
    options.members.push_back({.id = "b", .backend = one("/b", counted)});
    return options;
  }

  std::unique_ptr<Backend> device(bool spill = false, unsigned new_containers = 0,
                                  bool counted = true) const {
    return std::move(*make_virtual_device(both(spill, new_containers, counted)));
  }

  std::multiset<std::uint64_t> in(const std::string& part) const {
    std::multiset<std::uint64_t> ids;
    REQUIRE(one(part)->for_each([&](std::uint64_t id) { ids.insert(id); }));
    return ids;
  }
};

/// A FailingBackend that owns what it passes on to.
struct Failing {
  explicit Failing(std::unique_ptr<Backend> backend) : real(std::move(backend)), failing(*real) {}

  std::unique_ptr<Backend> real;
  test::FailingBackend failing;
};

void fill(Backend& device, std::uint64_t id, std::uint64_t bytes) {
  auto container = device.open(id);
  REQUIRE(container);
  REQUIRE((*container)->write(std::vector<std::byte>(bytes, std::byte{7}), 0) == bytes);
}

}  // namespace

TEST_CASE("a container is found where it was made, also by the next device") {
  const Scene scene;
  {
    auto device = scene.device(false, 1);
    REQUIRE(device->create(5));
    REQUIRE(device->create_at(6, 0, CachePolicy::kept_open));
    REQUIRE(device->create_at(100'000, 1, CachePolicy::kept_open));
    fill(*device, 6, 10);
  }
  auto device = scene.device(false, 0);
  CHECK(device->place_of(5) == 1);
  CHECK(device->place_of(6) == 0);
  CHECK(device->place_of(100'000) == 1);
  CHECK(device->attributes(6)->st_size == 10);
  CHECK(scene.in("/a") == std::multiset<std::uint64_t>{6});
  CHECK(scene.in("/b") == std::multiset<std::uint64_t>{5, 100'000});
  // The number is taken, wherever it is.
  CHECK(device->create_at(5, 0, CachePolicy::kept_open).error().code == EEXIST);
  CHECK(device->create(100'000).error().code == EEXIST);
  device->remove(5);
  REQUIRE(device->create_at(5, 0, CachePolicy::kept_open));
  CHECK(device->place_of(5) == 0);
  CHECK(device->open(7).error().code == ENOENT);
  CHECK(device->set_times(7, std::nullopt, FileTime{}).error().code == ENOENT);
  CHECK(device->remove(7) == 0);
}

TEST_CASE(
    "a container that power loss left unfinished in one place does not count beside one in "
    "another") {
  Scene scene;
  if (::setxattr((scene.directory.path() + "/a").c_str(), label_name, "1", 1, 0) != 0) {
    SKIP("no extended attributes on /dev/shm");
  }
  ::setxattr((scene.directory.path() + "/b").c_str(), label_name, "1", 1, 0);
  for (const std::string unfinished : {"/a", "/b"}) {
    const std::uint64_t id = unfinished == "/a" ? 3 : 4;
    for (const char* part : {"/a", "/b"}) {
      REQUIRE(scene.one(part)->create(id));
    }
    REQUIRE(::removexattr((scene.directory.path() + unfinished + "/0" + std::to_string(id) +
                           "/000000000000000" + std::to_string(id))
                              .c_str(),
                          label_name) == 0);
  }
  const auto device = make_virtual_device(scene.both());
  REQUIRE(device);
  CHECK((*device)->place_of(3) == 1);
  CHECK((*device)->place_of(4) == 0);
}

TEST_CASE("a container that is in two places is refused") {
  const Scene scene;
  REQUIRE(scene.one("/a")->create(9));
  REQUIRE(scene.one("/b")->create(9));
  const auto device = make_virtual_device(scene.both());
  REQUIRE_FALSE(device);
  CHECK(device.error().code == EUCLEAN);
  CHECK(device.error().what.contains("container 9 is in two backends, a and b"));
}

TEST_CASE("a device of none, or whose new containers have no place, is refused") {
  const Scene scene;
  CHECK(make_virtual_device({}).error().code == EINVAL);
  CHECK(make_virtual_device(scene.both(false, 2)).error().code == EINVAL);
}

TEST_CASE(
    "with spill, a full place passes new containers on, and takes them again when it has room") {
  const Scene scene;
  auto device = scene.device(true);
  CHECK(device->space().capacity == 2 * member_capacity);
  CHECK(device->space().available == 2 * member_capacity);
  CHECK(device->place_for({}) == 0U);
  CHECK(device->place_for({.place = 1}) == 1U);
  REQUIRE(device->create(1));
  // less than what a file of unknown size wants
  fill(*device, 1, member_capacity - room_for_unknown(device->at(0).space()) + 4096);
  CHECK(device->place_for({}) == 1U);
  // one whose size is known goes where it fits
  CHECK(device->place_for({.place = std::nullopt, .size = 8192}) == 0U);
  CHECK(device->place_for({.place = std::nullopt, .size = 2u << 20}) == 1U);
  CHECK(device->place_for({.place = std::nullopt, .size = member_capacity + 1}).error().code ==
        ENOSPC);
  REQUIRE(device->create(2));
  CHECK(device->place_of(2) == 1);
  fill(*device, 2, member_capacity - 4096);
  // both are down to their last: the last of the first is given out
  CHECK(device->place_for({}) == 0U);
  fill(*device, 1, member_capacity);
  CHECK(device->place_for({}) == 1U);
  fill(*device, 2, member_capacity);
  CHECK(device->place_for({}).error().code == ENOSPC);
  CHECK(device->create(3).error().code == ENOSPC);
  CHECK(device->space().available == 0);
  device->remove(1);
  CHECK(device->place_for({}) == 0U);
  CHECK(device->space().available == member_capacity);
}

TEST_CASE(
    "without spill, each place ends for itself, and what is available is that of new containers") {
  const Scene scene;
  auto device = scene.device(false, 0);
  CHECK(device->space().capacity == 2 * member_capacity);
  CHECK(device->space().available == member_capacity);
  REQUIRE(device->create(1));
  fill(*device, 1, member_capacity);
  CHECK(device->place_for({}) == 0U);
  CHECK(device->space().available == 0);
  REQUIRE(device->create_at(2, 1, CachePolicy::kept_open));
  fill(*device, 2, 4096);
  CHECK(device->space().used == member_capacity + 4096);
}

TEST_CASE(
    "a place that refuses a container for want of space passes it on, and no second copy is left") {
  const Scene scene;
  Failing first(scene.one("/a"));
  for (const bool spill : {true, false}) {
    for (const int code : {ENOSPC, EIO}) {
      VirtualDeviceOptions options{.members = {}, .new_containers = 0, .spill = spill};
      auto failing = std::make_unique<test::FailingBackend>(*first.real);
      failing->allow_creates(0, code);
      options.members.push_back({.id = "a", .backend = std::move(failing)});
      options.members.push_back({.id = "b", .backend = scene.one("/b")});
      auto device = *make_virtual_device(std::move(options));
      const auto made = device->create(77);
      CHECK(made.has_value() == (spill && code == ENOSPC));
      CHECK(scene.in("/a").empty());
      CHECK(scene.in("/b").size() == (made ? 1U : 0U));
      if (made) {
        CHECK(device->place_of(77) == 1);
      } else {
        CHECK(made.error().code == code);
      }
      device->remove(77);
      CHECK(device->open(77).error().code == ENOENT);
    }
  }
}

TEST_CASE("of two who make the same container in two places one does") {
  const Scene scene;
  auto device = scene.device(false, 0, false);
  for (std::uint64_t id = 1; id <= 200; ++id) {
    std::array<bool, 2> made{};
    {
      std::jthread other(
          [&] { made[1] = device->create_at(id, 1, CachePolicy::kept_open).has_value(); });
      made[0] = device->create_at(id, 0, CachePolicy::kept_open).has_value();
    }
    REQUIRE(made[0] != made[1]);
    CHECK(device->place_of(id) == (made[1] ? 1U : 0U));
  }
  CHECK(scene.in("/a").size() + scene.in("/b").size() == 200);
}

TEST_CASE("the weakest of the places decides what all survives") {
  const Scene scene;
  const test::TempDirectory disk("/tmp");
  FsdaxOptions slow;
  slow.directory = disk.open();
  auto on_disk = *make_fsdax(std::move(slow));
  const Durability of_disk = on_disk->durability();
  VirtualDeviceOptions options;
  options.members.push_back({.id = "disk", .backend = std::move(on_disk)});
  options.members.push_back({.id = "memory", .backend = scene.one("/a")});
  auto device = *make_virtual_device(std::move(options));
  CHECK(device->durability() == of_disk);
  CHECK(weakest_durability(*device) == Durability::volatile_memory);
  CHECK(device->description().starts_with("2 backends: disk fsdax"));
}

// --- under the file system ---

namespace {

std::unique_ptr<fs::Filesystem> open_files(
    const Scene& scene, Backend& device, const UniqueFd& metadata,
    std::function<std::optional<unsigned>(const std::string&)> place_of_new = {}) {
  (void)scene;
  auto opened = fs::Filesystem::open(
      device, {.metadata_directory = metadata.get(), .place_of_new = std::move(place_of_new)});
  REQUIRE(opened);
  return std::move(*opened);
}

}  // namespace

TEST_CASE("new files go where policy says by their path, also below a directory that was moved") {
  const Scene scene;
  const UniqueFd metadata = scene.open("/meta");
  auto device = scene.device(false, 0, false);
  std::vector<std::string> asked;
  auto files = open_files(scene, *device, metadata, [&](const std::string& path) {
    asked.push_back(path);
    return std::optional<unsigned>(path.starts_with("ckpt/") ? 1 : 0);
  });
  const auto one = files->make_node({}, fs::root_ino, "one", S_IFREG | 0644, 0)->ino;
  const auto tmp = files->make_node({}, fs::root_ino, "tmp", S_IFDIR | 0755, 0)->ino;
  const auto deep = files->make_node({}, tmp, "deep", S_IFDIR | 0755, 0)->ino;
  const auto before = files->make_node({}, deep, "before", S_IFREG | 0644, 0)->ino;
  REQUIRE(files->rename({}, {fs::root_ino, "tmp"}, {fs::root_ino, "ckpt"}, 0));
  const auto after = files->make_node({}, deep, "after", S_IFREG | 0644, 0)->ino;
  CHECK(asked == std::vector<std::string>{"one", "tmp/deep/before", "ckpt/deep/after"});
  CHECK(device->place_of(one) == 0);
  CHECK(device->place_of(before) == 0);
  CHECK(device->place_of(after) == 1);
  CHECK(fs::Staging(*files).find("ckpt/deep/after")->content.place == 1);
  CHECK(fs::Staging(*files).find("ckpt/deep/before")->content.place == 0);
}

TEST_CASE("containers made ahead are used for files of their place only") {
  const Scene scene;
  const UniqueFd metadata = scene.open("/meta");
  auto device = scene.device(true);
  auto files = open_files(scene, *device, metadata);
  // counted: no descriptor for the kernel
  files->fill_pool([](std::span<const fs::ContainerPool::Ready> ready) { CHECK(ready.empty()); });
  REQUIRE(scene.in("/a").size() >= 4);
  const auto full = files->make_node({}, fs::root_ino, "full", S_IFREG | 0644, 0)->ino;
  CHECK(device->place_of(full) == 0);
  fill(*device, full, member_capacity - 8192);
  const auto spilled = files->make_node({}, fs::root_ino, "spilled", S_IFREG | 0644, 0)->ino;
  CHECK(device->place_of(spilled) == 1);
  REQUIRE(files->unlink({}, fs::root_ino, "full"));
  files->forget(full, 1);
  CHECK(device->place_of(files->make_node({}, fs::root_ino, "again", S_IFREG | 0644, 0)->ino) == 0);
}

TEST_CASE("a death between the container and its record leaves nothing in any place") {
  const Scene scene;
  const UniqueFd metadata = scene.open("/meta");
  std::uint64_t kept = 0;
  {
    auto device = scene.device(true);
    auto files = open_files(scene, *device, metadata);
    kept = files->make_node({}, fs::root_ino, "kept", S_IFREG | 0644, 0)->ino;
    fs::Staging staging(*files);
    REQUIRE(staging.begin_open_file_at(0));
    REQUIRE(staging.begin_open_file_at(1));  // as after a spill
  }
  CHECK(scene.in("/a").size() == 2);
  CHECK(scene.in("/b").size() == 1);
  auto device = scene.device(true);
  auto files = open_files(scene, *device, metadata);
  CHECK(files->recovery().unknown_containers == 2);
  CHECK(scene.in("/a") == std::multiset<std::uint64_t>{kept});
  CHECK(scene.in("/b").empty());
}

TEST_CASE("two containers in two places exchange their numbers") {
  const Scene scene;
  const auto text_of = [](Backend& device, std::uint64_t id) {
    std::string text(3, '?');
    const auto container = device.open(id);
    const auto got = container ? (*container)->read(std::as_writable_bytes(std::span(text)), 0) : 0;
    return container ? text.substr(0, *got) : "none";
  };
  const auto numbers = [](Backend& device) {
    std::set<std::uint64_t> all;
    REQUIRE(device.for_each([&](std::uint64_t id) { all.insert(id); }));
    return all;
  };
  const auto put = [](Backend& device, std::uint64_t id, unsigned place, const char* text) {
    const auto made = device.create_at(id, place, CachePolicy::closed);
    REQUIRE(made);
    REQUIRE((*made)->write(std::as_bytes(std::span(text, 3)), 0));
  };
  {
    auto device = scene.device(false, 0, false);
    put(*device, 5, 0, "old");
    put(*device, 6, 1, "new");
    {
      const auto reader = device->open(5, CachePolicy::only_read);
      CHECK(device->exchange(5, 6, Exchange::if_unused).error().code == EBUSY);
    }
    CHECK(device->exchange(5, 7, Exchange::if_unused).error().code == ENOENT);
    REQUIRE(device->exchange(5, 6, Exchange::if_unused));
    CHECK(text_of(*device, 5) == "new");
    CHECK(text_of(*device, 6) == "old");
    CHECK(device->place_of(5) == 1);
    CHECK(numbers(*device) == std::set<std::uint64_t>{5, 6});
    REQUIRE(device->exchange(5, 6, Exchange::undo));
    CHECK(text_of(*device, 5) == "old");
    REQUIRE(device->exchange(5, 6, Exchange::if_unused));
    CHECK(device->create_at(5, 0, CachePolicy::closed).error().code == EEXIST);
    // a removal that comes twice does not reach the other one
    CHECK(device->remove(6));
    CHECK(device->remove(6));
    CHECK(text_of(*device, 5) == "new");
    CHECK(text_of(*device, 6) == "none");
    CHECK(numbers(*device) == std::set<std::uint64_t>{5});
    put(*device, 8, 0, "3rd");
    REQUIRE(device->exchange(5, 8, Exchange::if_unused));
    CHECK(text_of(*device, 8) == "new");
    CHECK(text_of(*device, 5) == "3rd");
  }
  // another process, before and after the removal of the former container
  for (const bool removed : {false, true}) {
    auto device = scene.device(false, 0, false);
    CHECK(text_of(*device, 6) == (removed ? "none" : "new"));
    REQUIRE(device->exchange(5, 8, Exchange::at_set_up));
    REQUIRE(device->exchange(5, 8, Exchange::at_set_up));
    CHECK(text_of(*device, 5) == "3rd");
    CHECK(text_of(*device, 8) == "none");
    CHECK(numbers(*device) ==
          (removed ? std::set<std::uint64_t>{5} : std::set<std::uint64_t>{5, 6}));
    CHECK(device->remove(6));
    CHECK(text_of(*device, 5) == "3rd");
    if (removed) {
      CHECK(device->remove(5));
      CHECK(numbers(*device).empty());
    }
  }
}
