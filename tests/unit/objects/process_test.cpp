// SPDX-License-Identifier: BSD-3-Clause
// Several processes, and processes that die at any moment.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <functional>
#include <iterator>

#include "unit/objects/arrays.hpp"

// A namespace of its own: files that are compiled as one share their names.
namespace efs::objects_test {

namespace {

constexpr std::size_t length = 3000;

bool stores(const std::string& path, unsigned flags) {
  eo_storage* store = nullptr;
  return eo_open(path.c_str(), &store) == 0 && store_filled(store, "d/a", 2, length, flags) == 0;
}

bool publishes(const std::string& path, unsigned flags) {
  eo_storage* store = nullptr;
  eo_draft* draft = nullptr;
  const eo_array array = array_of("<i4", {length});
  if (eo_open(path.c_str(), &store) != 0 || eo_create(store, "d/a", &array, &draft) != 0) {
    return false;
  }
  const auto data = filled(2, length);
  const std::uint64_t start[] = {0};
  const std::uint64_t count[] = {length / 2};
  if (eo_put(draft, start, count, data.data()) != 0) {
    return false;
  }
  std::copy_n(data.data(), length, static_cast<std::int32_t*>(eo_data(draft)));
  return eo_publish(draft, flags) == 0;
}

bool commits(const std::string& path, unsigned flags) {
  eo_storage* store = nullptr;
  eo_storage* version = nullptr;
  return eo_open(path.c_str(), &store) == 0 && eo_begin(store, "run", 2, &version) == 0 &&
         store_filled(version, "u", 2, length, flags) == 0 &&
         store_filled(version, "d/v", 2, 10 * length, flags) == 0 &&
         eo_commit(version, flags) == 0 && eo_keep(store, "run", 1) == 0;
}

bool bundles(const std::string& path, unsigned flags) {
  eo_storage* store = nullptr;
  eo_storage* bundle = nullptr;
  return eo_open(path.c_str(), &store) == 0 && eo_begin_bundle(store, "d/few", &bundle) == 0 &&
         store_filled(bundle, "a", 2, length) == 0 &&
         store_filled(bundle, "large", 2, 100 * length) == 0 && eo_commit(bundle, flags) == 0;
}

/// Runs the action and kills it at each of its stops, and calls check(ended) after each.
void kill_everywhere(const std::function<bool()>& action, const std::function<void(bool)>& check) {
  const Sample sample(seed());
  for (long n = 1 + static_cast<long>(sample.first);; n += static_cast<long>(sample.step)) {
    INFO("killed at stop " << n);
    const bool killed = killed_at(n, action);
    check(!killed);
    if (!killed) {
      CHECK((n > 20 || sample.step > 1));
      return;
    }
  }
}

/// Returns how often a process has opened a directory.
int opens_of(const std::string& directory, pid_t process) {
  const std::string descriptors = "/proc/" + std::to_string(process) + "/fd";
  int opens = 0;
  std::error_code gone;
  for (const auto& fd : std::filesystem::directory_iterator(descriptors)) {
    opens += std::filesystem::equivalent(fd.path(), directory, gone) ? 1 : 0;
  }
  return opens;
}

/// Runs the action while another user, who may read the directory, holds its lock.
void with_lock_of_stranger(const std::string& directory, const std::function<void()>& action) {
  int held[2];
  REQUIRE(::pipe(held) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const bool stranger = ::setgid(65534) == 0 && ::setuid(65534) == 0;
    const int fd = ::open(directory.c_str(), O_RDONLY);
    const bool locked = stranger && fd >= 0 && ::flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (::write(held[1], locked ? "l" : "-", 1) == 1) {
      ::pause();
    }
    ::_exit(1);
  }
  char byte{};
  REQUIRE(::read(held[0], &byte, 1) == 1);
  CHECK(byte == 'l');
  action();
  ::kill(child, SIGKILL);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  ::close(held[0]);
  ::close(held[1]);
}

}  // namespace

TEST_CASE("a process killed while it stores or publishes leaves the old or the new object",
          "[objects][killed]") {
  for (const auto action : {stores, publishes}) {
    for (const unsigned flags : {0U, EO_SYNC}) {
      const TempStore temp("/dev/shm");
      REQUIRE(store_filled(temp.store, "d/a", 1, length / 2) == 0);
      int replaced = 0;
      kill_everywhere([&] { return action(temp.path(), flags); },
                      [&](bool ended) {
                        const OpenStore store(temp.path());
                        const std::int32_t value = value_of(store, "d/a");
                        CHECK((value == 1 || value == 2));
                        CHECK((!ended || value == 2));
                        CHECK(drafts_in(temp.path()).empty());
                        CHECK(names_of(store) == std::vector<std::string>{"d/a"});
                        replaced += value == 2 ? 1 : 0;
                        REQUIRE(store_filled(store, "d/a", 1, length / 2) == 0);
                      });
      CHECK(replaced >= 1);
    }
  }
}

TEST_CASE("a process killed while it commits leaves the old or the new version",
          "[objects][killed]") {
  for (const unsigned flags : {0U, EO_SYNC}) {
    const TempDirectory parent("/dev/shm");
    const std::string path = parent.path() + "/store";
    const auto fresh = [&] {
      std::filesystem::remove_all(path);
      const OpenStore store(path);
      eo_storage* version = nullptr;
      REQUIRE(eo_begin(store, "run", 1, &version) == 0);
      REQUIRE(store_filled(version, "u", 1, length) == 0);
      REQUIRE(store_filled(version, "d/v", 1, length) == 0);
      REQUIRE(eo_commit(version, 0) == 0);
    };
    fresh();
    int replaced = 0;
    kill_everywhere([&] { return commits(path, flags); },
                    [&](bool ended) {
                      const OpenStore store(path);
                      eo_storage* version = nullptr;
                      REQUIRE(eo_version(store, "run", EO_LATEST, &version) == 0);
                      const std::int32_t value = value_of(version, "u");
                      CHECK((value == 1 || value == 2));
                      CHECK(value_of(version, "d/v") == value);
                      CHECK(names_of(version) == std::vector<std::string>{"d/v", "u"});
                      eo_close(version);
                      CHECK((!ended || value == 2));
                      CHECK(drafts_in(path).empty());
                      replaced += value == 2 ? 1 : 0;
                      fresh();
                    });
    CHECK(replaced >= 1);
  }
}

TEST_CASE("a process killed while it makes a bundle leaves the old or the new bundle",
          "[objects][killed]") {
  for (const unsigned flags : {0U, EO_SYNC}) {
    const TempStore temp("/dev/shm");
    const auto old = [&] {
      eo_storage* bundle = nullptr;
      REQUIRE(eo_begin_bundle(temp.store, "d/few", &bundle) == 0);
      REQUIRE(store_filled(bundle, "a", 1, length) == 0);
      REQUIRE(store_filled(bundle, "large", 1, length) == 0);
      REQUIRE(eo_commit(bundle, 0) == 0);
    };
    old();
    int replaced = 0;
    kill_everywhere([&] { return bundles(temp.path(), flags); },
                    [&](bool ended) {
                      const OpenStore store(temp.path());
                      eo_storage* bundle = nullptr;
                      REQUIRE(eo_bundle(store, "d/few", &bundle) == 0);
                      const std::int32_t value = value_of(bundle, "a");
                      CHECK((value == 1 || value == 2));
                      CHECK(value_of(bundle, "large") == value);
                      eo_close(bundle);
                      CHECK((!ended || value == 2));
                      CHECK(drafts_in(temp.path()).empty());
                      replaced += value == 2 ? 1 : 0;
                      old();
                    });
    CHECK(replaced >= 1);
  }
}

TEST_CASE("two writers of one name do not mix", "[objects]") {
  const TempStore temp("/dev/shm");
  REQUIRE(store_filled(temp.store, "a", 0, 1000) == 0);
  std::vector<pid_t> writers;
  for (int writer = 1; writer <= 2; ++writer) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      eo_storage* store = nullptr;
      int error = eo_open(temp.path().c_str(), &store);
      for (int i = 0; i < 300 && error == 0; ++i) {
        error = store_filled(store, "a", writer, 1000 * static_cast<std::size_t>(writer));
      }
      ::_exit(error);
    }
    writers.push_back(child);
  }
  int reads = 0;
  for (std::size_t ended = 0; ended < writers.size(); ++reads) {
    const std::int32_t value = value_of(temp.store, "a");
    REQUIRE(value >= 0);
    int status = 0;
    if (::waitpid(writers[ended], &status, WNOHANG) > 0) {
      CHECK(status == 0);
      ++ended;
    }
  }
  CHECK(reads > 1);
  CHECK(value_of(temp.store, "a") > 0);
  CHECK(drafts_in(temp.path()).empty());
}

TEST_CASE("opens beside writers remove no draft that is alive", "[objects]") {
  const TempStore temp("/dev/shm");
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int error = 0;
    for (int i = 0; i < 2000 && error == 0; ++i) {
      eo_storage* store = nullptr;
      error = eo_open(temp.path().c_str(), &store);
      eo_close(store);
    }
    ::_exit(error);
  }
  for (int status = 0; ::waitpid(child, &status, WNOHANG) == 0;) {
    REQUIRE(store_filled(temp.store, "d/a", 1, 100) == 0);
    eo_storage* version = nullptr;
    REQUIRE(eo_begin(temp.store, "run", 1, &version) == 0);
    REQUIRE(store_filled(version, "u", 1, 100) == 0);
    eo_abort(version);
  }
  CHECK(drafts_in(temp.path()).empty());
}

TEST_CASE("a version begins while another process removes its abandoned draft", "[objects]") {
  const TempStore temp("/dev/shm");
  const std::string series = temp.path() + "/run";
  const std::string draft = draft_of(series, 1);
  REQUIRE((::mkdir(series.c_str(), 0700) == 0 && ::mkdir(draft.c_str(), 0700) == 0));
  int held[2];
  REQUIRE(::pipe(held) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const int entries = ::open(series.c_str(), O_RDONLY);
    const int fd = ::open(draft.c_str(), O_RDONLY);
    const bool locked = ::flock(entries, LOCK_EX) == 0 && ::flock(fd, LOCK_EX) == 0;
    if (!locked || ::write(held[1], "x", 1) != 1) {
      ::_exit(1);
    }
    // The parent opens the series, and then once more to lock it.
    while (opens_of(series, ::getppid()) < 2) {
    }
    ::_exit(::rmdir(draft.c_str()) == 0 ? 0 : 1);
  }
  char byte{};
  REQUIRE(::read(held[0], &byte, 1) == 1);
  eo_storage* version = nullptr;
  CHECK(eo_begin(temp.store, "run", 1, &version) == 0);
  eo_abort(version);
  ::kill(child, SIGKILL);  // without effect, unless the version did not wait
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  ::close(held[0]);
  ::close(held[1]);
}

TEST_CASE("a child of fork() does not end what its parent has begun", "[objects]") {
  const TempStore temp;
  eo_storage* version = nullptr;
  eo_storage* bundle = nullptr;
  eo_draft* draft = nullptr;
  const eo_array array = array_of("<i4", {length});
  REQUIRE(eo_begin(temp.store, "run", 1, &version) == 0);
  REQUIRE(store_filled(version, "u", 1, length) == 0);
  REQUIRE(eo_begin_bundle(temp.store, "few", &bundle) == 0);
  REQUIRE(store_filled(bundle, "u", 2, length) == 0);
  REQUIRE(eo_create(temp.store, "v", &array, &draft) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    eo_close(version);
    eo_abort(bundle);
    eo_discard(draft);
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(eo_commit(version, 0) == 0);
  CHECK(eo_commit(bundle, 0) == 0);
  CHECK(eo_publish(draft, 0) == 0);
  REQUIRE(eo_version(temp.store, "run", 1, &version) == 0);
  CHECK(value_of(version, "u") == 1);
  eo_close(version);
}

TEST_CASE("another user cannot hold up a version by a lock", "[objects]") {
  if (::geteuid() != 0) {
    SKIP("only root can become another user");
  }
  const TempStore temp;
  REQUIRE(::chmod(temp.directory.path().c_str(), 0755) == 0);
  const auto previous = ::umask(022);
  eo_storage* version = nullptr;
  REQUIRE(eo_begin(temp.store, "run", 1, &version) == 0);
  struct stat status{};
  REQUIRE(::stat(draft_of(temp.path() + "/run", 1).c_str(), &status) == 0);
  CHECK((status.st_mode & 07777U) == 0700);
  REQUIRE(eo_commit(version, 0) == 0);
  REQUIRE(::stat((temp.path() + "/run/00000001").c_str(), &status) == 0);
  CHECK((status.st_mode & 07777U) == 0755);
  with_lock_of_stranger(temp.path() + "/run", [&] {
    CHECK(eo_begin(temp.store, "run", 2, &version) == 0);
    CHECK(eo_commit(version, 0) == 0);
  });
  ::umask(previous);
}

}  // namespace efs::objects_test
