// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/look_ahead.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace efs::daemon {
namespace {

constexpr std::uint64_t ample = 1000;
using Files = std::vector<std::uint64_t>;

/// Directory 1 has the files 101..., all remote, of 10 bytes.
struct FakeOrder final : FileOrder {
  FakeOrder() = default;

  /// The names "frame 1" and so on.
  explicit FakeOrder(std::size_t count) {
    for (std::size_t i = 1; i <= count; ++i) {
      names.push_back("frame " + std::to_string(i));
    }
  }

  std::uint64_t directory_of(std::uint64_t ino) const override { return ino / 100; }

  std::vector<File> files_in(std::uint64_t directory) const override {
    std::vector<File> files;
    for (std::size_t i = 0; i < names.size(); ++i) {
      files.push_back({.name = names[i], .ino = directory * 100 + i + 1, .size = 10});
    }
    return files;
  }

  bool is_remote(std::uint64_t ino) const override { return !here.contains(ino); }

  std::vector<std::string> names;
  std::set<std::uint64_t> here;
};

}  // namespace

TEST_CASE("numbers in names count by their value", "[fetch]") {
  CHECK(comes_before("a2", "a10"));
  CHECK_FALSE(comes_before("a10", "a2"));
  CHECK(comes_before("a02b", "a2c"));
  CHECK(comes_before("a02", "a2"));
  CHECK_FALSE(comes_before("a2", "a02"));
  CHECK(comes_before("a", "a0"));
  CHECK(comes_before("a1", "b0"));
  CHECK(comes_before("1", "a"));
  CHECK(comes_before("z", "\xc3\xa4"));
  CHECK(comes_before("x99999999999999999998", "x99999999999999999999"));
  CHECK_FALSE(comes_before("a1", "a1"));
}

TEST_CASE("the second of two neighbours begins a window, which doubles with each hit", "[fetch]") {
  const FakeOrder names(50);
  LookAhead ahead;
  CHECK(ahead.opened(101, ample, names).fetch.empty());
  CHECK(ahead.opened(102, ample, names).fetch == Files{103, 104});
  CHECK(ahead.opened(103, ample, names).fetch == Files{105, 106, 107});
  CHECK(ahead.opened(104, ample, names).fetch == Files{108, 109, 110, 111, 112});
  std::size_t fetched = 10;
  for (std::uint64_t ino = 105; ino <= 150; ++ino) {
    const auto next = ahead.opened(ino, ample, names);
    CHECK(next.forget.empty());
    fetched += next.fetch.size();
    CHECK(fetched + 2 - (ino - 100) <= LookAhead::most_files);
  }
  CHECK(fetched == 48);
}

TEST_CASE("opens in no order fetch nothing ahead, and end a window", "[fetch]") {
  const FakeOrder names(50);
  LookAhead ahead;
  for (const std::uint64_t ino : {110, 140, 120, 105, 133}) {
    CHECK(ahead.opened(ino, ample, names).fetch.empty());
  }
  CHECK(ahead.opened(134, ample, names).fetch == Files{135, 136});
  const auto next = ahead.opened(102, ample, names);
  CHECK(next.fetch.empty());
  CHECK(std::set(next.forget.begin(), next.forget.end()) == std::set<std::uint64_t>{135, 136});
  CHECK(ahead.opened(103, ample, names).fetch == Files{104, 105});
}

TEST_CASE("opens follow the order by name or that of the listing, too", "[fetch]") {
  FakeOrder names(20);
  LookAhead ahead;
  CHECK(ahead.opened(101, ample, names).fetch.empty());
  CHECK(ahead.opened(110, ample, names).fetch == Files{111, 112});
  names.names = {"c", "a", "d", "b"};
  CHECK(ahead.opened(201, ample, names).fetch.empty());
  CHECK(ahead.opened(202, ample, names).fetch == Files{203, 204});
}

TEST_CASE("programs that take turns stay in one window", "[fetch]") {
  const FakeOrder names(50);
  LookAhead ahead;
  (void)ahead.opened(101, ample, names);
  std::size_t fetched = ahead.opened(102, ample, names).fetch.size();
  for (const std::uint64_t ino : {104, 103, 106, 105, 107}) {
    const auto next = ahead.opened(ino, ample, names);
    CHECK(next.forget.empty());
    fetched += next.fetch.size();
  }
  for (std::uint64_t ino = 108; ino <= 150; ++ino) {
    const auto next = ahead.opened(ino, ample, names);
    CHECK(next.forget.empty());
    fetched += next.fetch.size();
  }
  CHECK(fetched == 48);
}

TEST_CASE("files that are here are passed over, and a full buffer gets nothing ahead", "[fetch]") {
  FakeOrder names(50);
  names.here = {103, 105};
  LookAhead ahead;
  (void)ahead.opened(101, 25, names);
  CHECK(ahead.opened(102, 25, names).fetch == Files{104, 106});
  CHECK(ahead.opened(104, 25, names).fetch == Files{107});
  CHECK(ahead.opened(106, 25, names).fetch == Files{108});
  CHECK(ahead.opened(107, 5, names).fetch.empty());
}

TEST_CASE("only so many directories are followed, and a failure ends all windows", "[fetch]") {
  const FakeOrder names(50);
  LookAhead ahead;
  std::size_t forgotten = 0;
  for (std::uint64_t directory = 1; directory <= LookAhead::most_followed + 2; ++directory) {
    forgotten += ahead.opened(directory * 100 + 1, ample, names).forget.size();
    const auto next = ahead.opened(directory * 100 + 2, ample, names);
    CHECK(next.fetch.size() == 2);
    forgotten += next.forget.size();
  }
  CHECK(forgotten == 4);
  CHECK(ahead.end_all().size() == 2 * LookAhead::most_followed);
  CHECK(ahead.end_all().empty());
}

}  // namespace efs::daemon
