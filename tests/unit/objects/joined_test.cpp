// SPDX-License-Identifier: BSD-3-Clause
// Versions and drafts that several processes fill: objects/joined.cpp.
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <functional>

#include "unit/objects/arrays.hpp"

// A namespace of its own: files that are compiled as one share their names.
namespace efs::objects_test {

namespace {

constexpr std::size_t joined_length = 30000;

struct Begun {
  Begun() {
    REQUIRE(eo_begin(temp.store, "sim/run", 1, &version) == 0);
    REQUIRE(eo_token(version, token) == 0);
  }

  /// Runs the action in a process that has joined; returns its exit status.
  int joined(const std::function<int(eo_storage*)>& action) const {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      eo_storage* store = nullptr;
      eo_storage* mine = nullptr;
      const bool made = eo_open(temp.path().c_str(), &store) == 0 &&
                        eo_join(store, "sim/run", 1, token, &mine) == 0;
      ::_exit(made ? action(mine) : 99);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string path() const { return temp.path() + "/sim/run/00000001"; }

  std::string draft() const { return draft_of(temp.path() + "/sim/run", 1); }

  TempStore temp{"/dev/shm"};
  eo_storage* version = nullptr;
  char token[EO_MAX_TOKEN] = {};
};

}  // namespace

TEST_CASE("several processes fill one version", "[objects][joined]") {
  for (const unsigned flags : {0U, EO_SYNC}) {
    Begun begun;
    CHECK(std::string_view(begun.token).find_first_of("/.") == std::string_view::npos);
    char again[EO_MAX_TOKEN];
    REQUIRE(eo_token(begun.version, again) == 0);
    CHECK(std::string_view(again) == begun.token);
    for (const char* name : {"a", "d/b"}) {
      CHECK(begun.joined([&](eo_storage* version) {
        eo_draft* draft = nullptr;
        const eo_array array = array_of("<i4", {joined_length});
        const std::string in_place = std::string(name) + "-draft";
        eo_storage* other = nullptr;
        const bool refused = eo_begin(version, "x", 1, &other) == EINVAL &&
                             eo_commit(version, 0) == EINVAL && eo_token(version, again) == EINVAL;
        const bool made = store_filled(version, name, 7, joined_length, flags) == 0 &&
                          store_filled(version, "few/values", 5, 3) == 0 &&
                          eo_create(version, in_place.c_str(), &array, &draft) == 0 &&
                          eo_publish(draft, 0) == 0;
        return refused && made && eo_leave(version, flags) == 0 ? 0 : 1;
      }) == 0);
    }
    REQUIRE(store_filled(begun.version, "own", 1, joined_length) == 0);
    REQUIRE(eo_commit(begun.version, flags) == 0);
    CHECK(drafts_in(begun.temp.path()).empty());
    eo_storage* version = nullptr;
    REQUIRE(eo_version(begun.temp.store, "sim/run", 1, &version) == 0);
    CHECK(names_of(version) ==
          std::vector<std::string>{"a", "a-draft", "d/b", "d/b-draft", "few/values", "own"});
    CHECK(eo_check(version, nullptr) == 0);
    CHECK(value_of(version, "d/b") == 7);
    CHECK(value_of(version, "few/values") == 5);
    eo_close(version);
  }
}

TEST_CASE("the array that was stored last wins, and a removed one is gone", "[objects][joined]") {
  Begun begun;
  CHECK(begun.joined([](eo_storage* version) {
    const bool stored = store_filled(version, "d/a", 2, 3) == 0 &&
                        store_filled(version, "b", 20, 3) == 0 &&
                        store_filled(version, "c", 2, joined_length) == 0;
    return stored && eo_leave(version, 0) == 0 ? 0 : 1;
  }) == 0);
  REQUIRE(store_filled(begun.version, "d/a", 3, 3) == 0);
  REQUIRE(store_filled(begun.version, "b", 30, 3) == 0);
  REQUIRE(eo_remove(begun.version, "b") == 0);
  REQUIRE(store_filled(begun.version, "c", 3, joined_length) == 0);
  // In the bundle of this process, and then a file of another one.
  REQUIRE(store_filled(begun.version, "e", 1, 3) == 0);
  CHECK(begun.joined([](eo_storage* version) {
    return store_filled(version, "e", 2, 3) == 0 && eo_remove(version, "c") == 0 &&
                   eo_leave(version, 0) == 0
               ? 0
               : 1;
  }) == 0);
  REQUIRE(eo_remove(begun.version, "e") == 0);
  CHECK(eo_remove(begun.version, "e") == ENOENT);
  INFO(eo_error());
  REQUIRE(eo_commit(begun.version, 0) == 0);
  eo_storage* version = nullptr;
  REQUIRE(eo_version(begun.temp.store, "sim/run", 1, &version) == 0);
  CHECK(names_of(version) == std::vector<std::string>{"d/a"});
  CHECK(value_of(version, "d/a") == 3);
  CHECK(eo_check(version, nullptr) == 0);
  eo_close(version);
}

TEST_CASE("a version is not committed when a stored file is gone", "[objects][joined]") {
  for (const char* lost : {"own", "joined"}) {
    Begun begun;
    CHECK(begun.joined([](eo_storage* version) {
      const int error = store_filled(version, "joined", 2, joined_length);
      return error == 0 ? eo_leave(version, 0) : error;
    }) == 0);
    REQUIRE(store_filled(begun.version, "own", 3, joined_length) == 0);
    REQUIRE(std::filesystem::remove(begun.draft() + '/' + lost + ".npy"));
    CHECK(eo_commit(begun.version, 0) == EIO);
    CHECK(error_says(std::string(lost) + " was stored"));
    CHECK_FALSE(std::filesystem::exists(begun.path()));
  }
}

TEST_CASE("a version waits for the processes that joined it", "[objects][joined]") {
  Begun begun;
  eo_storage* mine = nullptr;
  REQUIRE(eo_join(begun.temp.store, "sim/run", 1, begun.token, &mine) == 0);
  CHECK(eo_commit(begun.version, 0) == EBUSY);
  CHECK(error_says("a process that joined it has not left"));
  REQUIRE(store_filled(mine, "u", 1, joined_length) == 0);
  CHECK(eo_leave(begun.version, 0) == EINVAL);
  CHECK(eo_leave(mine, 0x80) == EINVAL);  // frees it: it has not left
  CHECK(eo_commit(begun.version, 0) == EOWNERDEAD);
  CHECK(error_says("ended without leaving"));
  CHECK(drafts_in(begun.temp.path()).empty());
  CHECK_FALSE(std::filesystem::exists(begun.path()));
}

TEST_CASE("a child of a joined process does not hold up the commit", "[objects][joined]") {
  Begun begun;
  eo_storage* mine = nullptr;
  REQUIRE(eo_join(begun.temp.store, "sim/run", 1, begun.token, &mine) == 0);
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    char byte{};
    ::close(ends[1]);
    ::_exit(::read(ends[0], &byte, 1) == 0 ? 0 : 1);
  }
  REQUIRE(eo_leave(mine, 0) == 0);
  CHECK(eo_commit(begun.version, 0) == 0);
  ::close(ends[0]);
  ::close(ends[1]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("a version is not committed after a joined process has died", "[objects][joined]") {
  Begun begun;
  const auto left = [](eo_storage* version) {
    return eo_leave(version, 0);
  };
  CHECK(begun.joined(left) == 0);
  CHECK(begun.joined([](eo_storage* version) {
    (void)store_filled(version, "u", 1, joined_length);
    ::kill(::getpid(), SIGKILL);
    return 0;
  }) == -1);
  CHECK(begun.joined(left) == 0);
  CHECK(eo_commit(begun.version, 0) == EOWNERDEAD);
  CHECK(drafts_in(begun.temp.path()).empty());
}

TEST_CASE("a version whose beginner is gone cannot be joined or left", "[objects][joined]") {
  for (const bool dead : {false, true}) {
    Begun begun;
    eo_storage* mine = nullptr;
    REQUIRE(eo_join(begun.temp.store, "sim/run", 1, begun.token, &mine) == 0);
    eo_abort(begun.version);
    if (dead) {  // as a process that was killed leaves it, with the same token
      REQUIRE(::mkdir(begun.draft().c_str(), 0700) == 0);
      write_file(begun.draft() + "/eo-" + begun.token + "-join.part", "");
    }
    CHECK(store_filled(mine, "u", 1, joined_length) == ENOENT);
    CHECK(eo_leave(mine, 0) == ESTALE);
    CHECK(eo_join(begun.temp.store, "sim/run", 1, begun.token, &mine) == (dead ? ESTALE : ENOENT));
    eo_storage* next = nullptr;
    REQUIRE(eo_begin(begun.temp.store, "sim/run", 1, &next) == 0);
    CHECK(eo_join(begun.temp.store, "sim/run", 1, begun.token, &mine) == ESTALE);
    eo_abort(next);
  }
}

TEST_CASE("the checksums of a joined process are used, unless they do not fit",
          "[objects][joined]") {
  for (const bool damaged : {false, true}) {
    Begun begun;
    for (const char* name : {"a", "b"}) {
      CHECK(begun.joined([&](eo_storage* version) {
        return store_filled(version, name, 3, 20 * joined_length) != 0 || eo_leave(version, 0) != 0;
      }) == 0);
    }
    for (const std::string& part : drafts_in(begun.temp.path())) {
      if (damaged && part.ends_with("-sums.part")) {
        const std::string text = bytes_of(part);
        REQUIRE(text.size() > 20);
        // Another inode; then a text that is none.
        write_file(part, (text.ends_with(" a\n") ? "1" : "x") + text);
      }
    }
    const std::uint64_t before = bytes_read();
    REQUIRE(eo_commit(begun.version, 0) == 0);
    const std::uint64_t read = bytes_read() - before;
    CHECK((damaged ? read > 2 * 20 * joined_length * 4 : read < 100000));
    CHECK(drafts_in(begun.temp.path()).empty());
    eo_storage* version = nullptr;
    REQUIRE(eo_version(begun.temp.store, "sim/run", 1, &version) == 0);
    CHECK(eo_check(version, nullptr) == 0);
    CHECK(value_of(version, "b") == 3);
    eo_close(version);
  }
}

TEST_CASE("a token leads nowhere else", "[objects][joined]") {
  const Begun begun;
  eo_storage* mine = nullptr;
  for (const std::string& token :
       {std::string("../../../../etc"), std::string("..%2f"), std::string(""),
        std::string(begun.token) + "/", std::string("0000000000000000-join.part/../.."),
        std::string("ABCDEF0123456789"), std::string(5000, '0')}) {
    CHECK(eo_join(begun.temp.store, "sim/run", 1, token.c_str(), &mine) == EINVAL);
  }
  CHECK(eo_join(begun.temp.store, "sim/run", 1, "0123456789abcdef", &mine) == ENOENT);
  const std::string unused = objects::node_mark() + "0123456789";
  CHECK(eo_join(begun.temp.store, "sim/run", 1, unused.c_str(), &mine) == ESTALE);
  CHECK(eo_join(begun.temp.store, "../run", 1, begun.token, &mine) == EINVAL);
  CHECK(eo_join(begun.temp.store, "sim/run", 2, begun.token, &mine) == ENOENT);
  CHECK(eo_join(begun.temp.store, "sim/run", EO_LATEST, begun.token, &mine) == ENOENT);
  const std::string joins = begun.draft() + "/eo-" + begun.token + "-join.part";
  REQUIRE(std::filesystem::exists(joins));
  if (::geteuid() == 0) {
    REQUIRE(::chown(joins.c_str(), 1, 1) == 0);
    CHECK(eo_join(begun.temp.store, "sim/run", 1, begun.token, &mine) == EPERM);
    REQUIRE(::chown(joins.c_str(), 0, 0) == 0);
    REQUIRE(::chown(begun.draft().c_str(), 1, 1) == 0);
    CHECK(eo_join(begun.temp.store, "sim/run", 1, begun.token, &mine) == EPERM);
    REQUIRE(::chown(begun.draft().c_str(), 0, 0) == 0);
  } else {
    WARN("files of other users are not tried: only root can make them");
  }
  std::filesystem::remove(joins);
  std::filesystem::create_symlink("/etc/passwd", joins);
  CHECK(eo_join(begun.temp.store, "sim/run", 1, begun.token, &mine) == ELOOP);
  eo_abort(begun.version);
}

TEST_CASE("several processes fill one draft", "[objects][joined]") {
  for (const unsigned flags : {0U, EO_SYNC}) {
    const TempStore temp("/dev/shm");
    const eo_array array = array_of("<i4", {joined_length});
    eo_draft* draft = nullptr;
    char token[EO_MAX_TOKEN];
    REQUIRE(eo_create(temp.store, "d/a", &array, &draft) == 0);
    REQUIRE(eo_draft_token(draft, token) == 0);
    REQUIRE(eo_draft_token(draft, token) == 0);
    for (std::uint64_t rank = 0; rank < 3; ++rank) {
      const pid_t child = ::fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        eo_storage* store = nullptr;
        eo_draft* mine = nullptr;
        const std::uint64_t start[] = {rank * joined_length / 3};
        const std::uint64_t count[] = {rank == 0 ? joined_length / 3 : 5};
        const auto data = filled(4, joined_length);
        bool made = eo_open(temp.path().c_str(), &store) == 0 &&
                    eo_join_draft(store, "d/a", token, &mine) == 0 &&
                    eo_put(mine, start, count, data.data()) == 0;
        auto* const memory = static_cast<std::int32_t*>(eo_data(mine));
        std::fill_n(memory + start[0], joined_length / 3, 4);
        made = made && eo_draft_token(mine, token) == EINVAL && eo_leave_draft(mine, flags) == 0;
        ::_exit(made ? 0 : 1);
      }
      int status = 0;
      REQUIRE(::waitpid(child, &status, 0) == child);
      CHECK(status == 0);
    }
    CHECK(value_of(temp.store, "d/a") == -1);
    REQUIRE(eo_publish(draft, flags) == 0);
    CHECK(value_of(temp.store, "d/a") == 4);
    CHECK(drafts_in(temp.path()).empty());
  }
}

TEST_CASE("a draft waits for the processes that joined it", "[objects][joined]") {
  const TempStore temp("/dev/shm");
  const eo_array array = array_of("<i4", {joined_length});
  eo_draft* draft = nullptr;
  eo_draft* mine = nullptr;
  char token[EO_MAX_TOKEN];
  REQUIRE(eo_create(temp.store, "a", &array, &draft) == 0);
  REQUIRE(eo_draft_token(draft, token) == 0);
  CHECK(eo_join_draft(temp.store, "b", token, &mine) == EINVAL);
  CHECK(eo_join_draft(temp.store, "a", "../a", &mine) == EINVAL);
  REQUIRE(eo_join_draft(temp.store, "a", token, &mine) == 0);
  CHECK(eo_publish(draft, 0) == EBUSY);
  static_cast<std::int32_t*>(eo_data(draft))[0] = 1;  // it is still open
  CHECK(eo_leave_draft(draft, 0) == EINVAL);
  REQUIRE(eo_leave_draft(mine, 0) == 0);
  REQUIRE(eo_join_draft(temp.store, "a", token, &mine) == 0);
  CHECK(eo_publish(mine, 0) == EINVAL);  // frees it: it has not left
  CHECK(eo_publish(draft, 0) == EOWNERDEAD);
  CHECK(names_of(temp.store).empty());
  CHECK(drafts_in(temp.path()).empty());
  CHECK(eo_join_draft(temp.store, "a", token, &mine) == ESTALE);

  REQUIRE(eo_create(temp.store, "a", &array, &draft) == 0);
  REQUIRE(eo_draft_token(draft, token) == 0);
  std::filesystem::resize_file(drafts_in(temp.path())[0].ends_with("-join.part")
                                   ? drafts_in(temp.path())[1]
                                   : drafts_in(temp.path())[0],
                               100);
  CHECK(eo_join_draft(temp.store, "a", token, &mine) == EBADMSG);
  eo_discard(draft);
  CHECK(drafts_in(temp.path()).empty());
}

TEST_CASE("a joined process is killed anywhere: the version is whole or fails",
          "[objects][joined][killed]") {
  const Sample sample(seed());
  int failed = 0;
  for (long n = 1 + static_cast<long>(sample.first);; n += static_cast<long>(sample.step)) {
    Begun begun;
    REQUIRE(store_filled(begun.version, "own", 1, joined_length) == 0);
    const bool killed = killed_at(n, [&] {
      eo_storage* store = nullptr;
      eo_storage* mine = nullptr;
      return eo_open(begun.temp.path().c_str(), &store) == 0 &&
             eo_join(store, "sim/run", 1, begun.token, &mine) == 0 &&
             store_filled(mine, "u", 2, joined_length) == 0 && eo_leave(mine, EO_SYNC) == 0;
    });
    INFO("killed at stop " << n);
    const int error = eo_commit(begun.version, 0);
    CHECK((error == 0 || error == EOWNERDEAD));
    CHECK((killed || error == 0));
    failed += error != 0 ? 1 : 0;
    CHECK(drafts_in(begun.temp.path()).empty());
    if (error == 0) {
      eo_storage* version = nullptr;
      REQUIRE(eo_version(begun.temp.store, "sim/run", 1, &version) == 0);
      CHECK(eo_check(version, nullptr) == 0);
      const std::int32_t value = value_of(version, "u");
      CHECK((value == 2 || (value == -1 && killed)));
      eo_close(version);
    }
    if (!killed) {
      break;
    }
  }
  CHECK((failed > 5 || sample.step > 1));
}

TEST_CASE("the creator of a joined draft is killed anywhere: an open removes all",
          "[objects][joined][killed]") {
  const Sample sample(seed());
  const TempStore temp("/dev/shm");
  for (long n = 1 + static_cast<long>(sample.first);; n += static_cast<long>(sample.step)) {
    INFO("killed at stop " << n);
    const bool killed = killed_at(n, [&] {
      eo_storage* store = nullptr;
      eo_draft* draft = nullptr;
      eo_draft* mine = nullptr;
      char token[EO_MAX_TOKEN];
      const eo_array array = array_of("<i4", {100});
      return eo_open(temp.path().c_str(), &store) == 0 &&
             eo_create(store, "d/a", &array, &draft) == 0 && eo_draft_token(draft, token) == 0 &&
             eo_join_draft(store, "d/a", token, &mine) == 0 && eo_leave_draft(mine, 0) == 0 &&
             eo_publish(draft, 0) == 0;
    });
    const OpenStore again(temp.path());
    CHECK(drafts_in(temp.path()).empty());
    const std::int32_t value = value_of(again, "d/a");
    CHECK((value == 0 || (killed && value == -1)));
    if (!killed) {
      break;
    }
    (void)eo_remove(again, "d/a");
  }
}

}  // namespace efs::objects_test
