// SPDX-License-Identifier: BSD-3-Clause
// The production containers: the calls that reach the kernel and libpmem, and their objects.
#include "backends/fsdax.hpp"
#include "backends/container_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <set>
#include <string>

#include "backends/virtual_device.hpp"
#include "support/durable_calls.hpp"
#include "support/temp.hpp"

namespace efs::fsdax_test {
namespace {

using test::DurableCalls;

constexpr std::uint64_t ids[]{1, 2, 0x1ff, 0x3fe};

struct Scene {
  explicit Scene(bool persistent) : memory(persistent), backend(make(path)) {}

  static std::unique_ptr<Backend> make(const std::string& directory) {
    FsdaxOptions options;
    options.directory.reset(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return std::move(make_fsdax(std::move(options)).value());
  }

  const test::PersistentMemory memory;
  const test::TempDirectory directory;
  const std::string path = std::filesystem::canonical(directory.path());
  const std::unique_ptr<Backend> backend;
};

std::string directory_of(const std::string& data, std::uint64_t id) {
  char name[8];
  std::snprintf(name, sizeof name, "/%02x", static_cast<unsigned>(id % 256));
  return data + name;
}

std::string container_of(const std::string& data, std::uint64_t id) {
  char name[32];
  std::snprintf(name, sizeof name, "/%016llx", static_cast<unsigned long long>(id));
  return directory_of(data, id) + name;
}

// Those below `data` that this process has open.
std::set<std::uint64_t> kept_open(const std::string& data) {
  std::set<std::uint64_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    const std::uint64_t id = target.string().starts_with(data + "/") && target.parent_path() != data
                                 ? std::stoull(target.filename(), nullptr, 16)
                                 : 0;
    if (id != 0) {
      found.insert(id);
    }
  }
  return found;
}

std::vector<std::byte> content(std::size_t size) {
  return std::vector<std::byte>(size, std::byte{'c'});
}

}  // namespace

TEST_CASE("a program that opens a container during the proof that none can write ends no process",
          "[fsdax]") {
  const Scene scene(false);
  REQUIRE(scene.backend->create(1));
  std::string file;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(scene.path)) {
    file = entry.is_regular_file() ? entry.path().string() : file;
  }
  const pid_t opener = ::fork();
  if (opener == 0) {  // until the parent ends it
    for (;;) {
      ::close(::open(file.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
    }
  }
  const pid_t prover = ::fork();
  if (prover == 0) {
    for (int i = 0; i < 20000; ++i) {
      (void)scene.backend->may_be_written(1);
    }
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(prover, &status, 0) == prover);
  ::kill(opener, SIGKILL);
  ::waitpid(opener, nullptr, 0);
  CHECK(status == 0);
}

TEST_CASE("a container that is open or mapped in any way may be open", "[fsdax]") {
  const Scene scene(false);
  REQUIRE(scene.backend->create(1));
  REQUIRE((*scene.backend->open(1))->write(content(100), 0));
  CHECK_FALSE(scene.backend->may_be_open(1));
  const std::string file = container_of(scene.path, 1);
  for (const int flags : {O_RDONLY, O_WRONLY, O_RDWR}) {
    const UniqueFd open(::open(file.c_str(), flags | O_CLOEXEC));
    REQUIRE(open);
    CHECK(scene.backend->may_be_open(1));
  }
  CHECK_FALSE(scene.backend->may_be_open(1));
  UniqueFd open(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  void* const mapped = ::mmap(nullptr, 100, PROT_READ, MAP_SHARED, open.get(), 0);
  REQUIRE(mapped != MAP_FAILED);
  open.reset();
  CHECK(scene.backend->may_be_open(1));
  ::munmap(mapped, 100);
  CHECK_FALSE(scene.backend->may_be_open(1));
  CHECK(scene.backend->may_be_open(2));  // there is none, so nothing is proved
}

TEST_CASE("a sync of a container is one of its file, with its times where they are asked for",
          "[backends]") {
  const Scene scene(GENERATE(false, true));
  const bool metadata = GENERATE(false, true);
  for (const auto id : ids) {
    auto container = *scene.backend->create(id);
    REQUIRE(container->write(content(100), 0));
    const DurableCalls calls;
    REQUIRE(container->sync(metadata));
    INFO(text_of(calls.so_far()));
    const std::string path = container_of(scene.path, id);
    CHECK(happens(calls.so_far(), metadata ? test::syncs_all_of(path) : test::syncs(path)));
  }
}

TEST_CASE("a sync of a container's name is one of the directory that has it", "[backends]") {
  const Scene scene(GENERATE(false, true));
  for (const auto id : ids) {
    REQUIRE(scene.backend->create(id));
    const DurableCalls calls;
    REQUIRE(scene.backend->sync_name(id));
    INFO(text_of(calls.so_far()));
    CHECK(happens(calls.so_far(), test::syncs(directory_of(scene.path, id))));
  }
}

TEST_CASE("a sync of all containers reaches each, its times and its name", "[backends]") {
  const Scene scene(GENERATE(false, true));
  for (const auto id : ids) {
    REQUIRE((*scene.backend->create(id))->write(content(100), 0));
  }
  const DurableCalls calls;
  REQUIRE(scene.backend->sync_all());
  INFO(text_of(calls.so_far()));
  for (const auto id : ids) {
    CHECK(happens(calls.so_far(), test::syncs_all_of(container_of(scene.path, id))));
    CHECK(happens(calls.so_far(), test::syncs(directory_of(scene.path, id))));
  }
}

TEST_CASE("the syncs of a virtual device reach the backend that has the container", "[backends]") {
  const test::TempDirectory directory;
  const std::string path = std::filesystem::canonical(directory.path());
  VirtualDeviceOptions options{.members = {}, .new_containers = 0, .spill = false};
  for (const char* name : {"/a", "/b"}) {
    REQUIRE(::mkdir((path + name).c_str(), 0700) == 0);
    options.members.push_back({.id = name, .backend = Scene::make(path + name)});
  }
  const auto device = *make_virtual_device(std::move(options));
  for (unsigned place = 0; place < 2; ++place) {
    const std::string data = path + (place == 0 ? "/a" : "/b");
    auto container = *device->create_at(7 + place, place, CachePolicy::kept_open);
    const DurableCalls calls;
    REQUIRE(container->sync(true));
    REQUIRE(device->sync_name(7 + place));
    CHECK(happens(calls.so_far(), test::syncs(container_of(data, 7 + place))));
    CHECK(happens(calls.so_far(), test::syncs(directory_of(data, 7 + place))));
  }
  const DurableCalls calls;
  REQUIRE(device->sync_all());
  CHECK(happens(calls.so_far(), test::syncs(container_of(path + "/a", 7))));
  CHECK(happens(calls.so_far(), test::syncs(container_of(path + "/b", 8))));
}

TEST_CASE("what a sync of containers could not do is an error", "[backends]") {
  const Scene scene(GENERATE(false, true));
  auto container = *scene.backend->create(1);
  DurableCalls calls;
  calls.fail_syncs(EIO);
  for (const Status& done : {container->sync(false), container->sync(true),
                             scene.backend->sync_name(1), scene.backend->sync_all()}) {
    REQUIRE_FALSE(done);
    CHECK(done.error().code == EIO);
  }
}

TEST_CASE(
    "what is stored in a mapped segment is flushed, and drained before its container's sync, or "
    "that of all",
    "[backends]") {
  const bool all = GENERATE(false, true);
  const Scene scene(true);
  auto container = *scene.backend->create(1);
  REQUIRE(container->allocate(0, 0, 8192));
  const auto segment = container->map(0, 8192);
  REQUIRE(segment);
  const std::string path = container_of(scene.path, 1);
  const DurableCalls noted;
  (*segment)->store(100, content(5000));
  REQUIRE((all ? scene.backend->sync_all() : container->sync(false)));
  const auto calls = noted.so_far();
  INFO(text_of(calls));
  CHECK(disorder(calls, {test::stores_to(path), test::drains(), test::syncs(path)}) == "");
  CHECK(exposed(up_to(calls, test::syncs(path)), path, 100, 5100) == 0);
}

TEST_CASE("those asked for last are kept open; what its maker closes is not", "[backends]") {
  const test::TempDirectory directory;
  const std::string path = std::filesystem::canonical(directory.path());
  FsdaxOptions options;
  options.directory.reset(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  options.open_containers = 3;
  const auto backend = std::move(make_fsdax(std::move(options)).value());
  using Ids = std::set<std::uint64_t>;
  for (const std::uint64_t id : {1, 2, 3}) {
    REQUIRE(backend->create(id));
  }
  CHECK(kept_open(path) == Ids{1, 2, 3});
  REQUIRE(backend->open(1));
  REQUIRE(backend->create(4));
  CHECK(kept_open(path) == Ids{1, 3, 4});
  {
    const auto made = backend->create(5, CachePolicy::closed);
    REQUIRE(made);
    CHECK(kept_open(path) == Ids{1, 3, 4, 5});
  }
  CHECK(kept_open(path) == Ids{1, 3, 4});
  backend->remove(3);
  CHECK(kept_open(path) == Ids{1, 4});
  for (const std::uint64_t id : {5, 2}) {
    REQUIRE(backend->open(id));
  }
  CHECK(kept_open(path) == Ids{2, 4, 5});
  REQUIRE(backend->open(1, CachePolicy::closed));
  CHECK(kept_open(path) == Ids{2, 4, 5});
}

TEST_CASE("what is kept open makes room where no more may be opened", "[backends]") {
  const Scene scene(false);
  for (std::uint64_t id = 1; id <= 40; ++id) {
    REQUIRE(scene.backend->create(id));
  }
  std::vector<UniqueFd> all;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit few = before;
  few.rlim_cur = 256;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  while (true) {
    UniqueFd one(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!one) {
      break;
    }
    all.push_back(std::move(one));
  }
  const int full = errno;
  bool created = true;
  for (std::uint64_t id = 41; id <= 60 && created; ++id) {
    created = scene.backend->create(id).has_value();
  }
  const auto opened = scene.backend->open(1);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(full == EMFILE);
  CHECK(created);
  CHECK(opened.has_value());
}

TEST_CASE("a directory of containers that was removed because it was empty is made again",
          "[backends]") {
  const Scene scene(GENERATE(false, true));
  for (const auto& entry : std::filesystem::directory_iterator(scene.path)) {
    std::filesystem::remove(entry.path());
  }
  const DurableCalls calls;
  for (const auto id : ids) {
    REQUIRE(scene.backend->create(id));
  }
  INFO(text_of(calls.so_far()));
  CHECK((scene.backend->durability() == Durability::volatile_memory ||
         happens(calls.so_far(), test::syncs(scene.path))));
  for (const auto id : ids) {
    CHECK(std::filesystem::exists(container_of(scene.path, id)));
  }
  if (UniqueFd file(::open(scene.path.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)); file) {
    ContainerFile other(std::move(file), nullptr, false, false);
    CHECK(scene.backend->adopt(0x77, other));
  }
}

TEST_CASE(
    "where the directory of all containers is gone, a new one is an I/O error and no missing name",
    "[backends]") {
  const Scene scene(false);
  std::filesystem::remove_all(scene.path);
  const auto made = scene.backend->create(1);
  REQUIRE_FALSE(made);
  CHECK(made.error().code == EIO);
}

TEST_CASE("what cannot be listed is an error, and does not hide the other containers",
          "[backends]") {
  const Scene scene(false);
  for (const auto id : ids) {
    REQUIRE(scene.backend->create(id));
  }
  std::filesystem::rename(directory_of(scene.path, 1), scene.path + "/aside");
  REQUIRE(std::fclose(std::fopen(directory_of(scene.path, 1).c_str(), "w")) == 0);
  std::set<std::uint64_t> seen;
  const Status listed = scene.backend->for_each([&](std::uint64_t id) { seen.insert(id); });
  REQUIRE_FALSE(listed);
  CHECK(listed.error().code == ENOTDIR);
  CHECK(seen == std::set<std::uint64_t>{2, 0x1ff, 0x3fe});
}

}  // namespace efs::fsdax_test
