// SPDX-License-Identifier: BSD-3-Clause
#include "store/device_medium.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "store/file_table.hpp"
#include "store/format.hpp"
#include "store/journal.hpp"
#include "support/logged_device.hpp"

namespace efs::device_medium_test {
namespace {

using store::Journal;
using store::table_page;
using test::LoggedDevice;

constexpr std::uint64_t range_bytes = 256U << 10U;  // 32 pages for files
constexpr std::uint64_t file_pages = range_bytes / table_page - store::first_page;

using Files = std::map<std::string, std::string>;  // content by name

std::shared_ptr<store::Medium> open(const std::shared_ptr<LoggedDevice>& device) {
  auto medium = store::device_medium(device);
  REQUIRE(medium);
  return *medium;
}

int code_of(const auto& result) {
  return result ? 0 : result.error().code;
}

void put(store::MediumFile& file, const std::string& text) {
  REQUIRE(file.allocate(text.size()));
  const auto window = file.map(0, text.size());
  REQUIRE(window);
  file.store(*window, std::as_bytes(std::span(text)));
  file.drain();
}

std::string text_of(store::MediumFile& file) {
  const auto size = file.size();
  REQUIRE(size);
  const auto window = *size > 0 ? file.map(0, *size) : Result<std::byte*>(nullptr);
  REQUIRE(window);
  return {reinterpret_cast<const char*>(*window), *size};
}

std::string text_in(store::Medium& medium, const std::string& name) {
  const auto file = medium.open(name, true);
  REQUIRE(file);
  return text_of(**file);
}

Files files_in(const std::shared_ptr<LoggedDevice>& device) {
  const auto table = store::read_table(*device);
  REQUIRE(table);
  Files files;
  const auto medium = open(device);
  for (const auto& file : table->files) {
    files[file.name] = text_in(*medium, file.name);
  }
  return files;
}

std::vector<std::byte> payload_of(std::uint64_t number, std::size_t size) {
  std::vector<std::byte> bytes(size, std::byte(number));
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

}  // namespace

TEST_CASE("files on a device have names, as those of a directory", "[store]") {
  const auto device = std::make_shared<LoggedDevice>(range_bytes);
  {
    const auto medium = open(device);
    CHECK(code_of(medium->open("one", false)) == ENOENT);
    put(**medium->create("one"), "first");
    put(**medium->create("two"), "second");
    CHECK(code_of(medium->create("one")) == EEXIST);
    CHECK(code_of(medium->create("")) == ENAMETOOLONG);
    CHECK(code_of(medium->create(std::string(40, 'n'))) == ENAMETOOLONG);
    CHECK(medium->create(std::string(39, 'n')));
    CHECK(code_of(medium->rename("none", "two")) == ENOENT);
    CHECK(code_of(medium->rename("two", std::string(40, 'n'))) == ENAMETOOLONG);
    CHECK(medium->rename("two", "two"));
    CHECK(medium->rename("one", "two"));
    CHECK(medium->remove("none"));
    CHECK(medium->sync_names());
    const auto reader = *medium->open("two", true);
    CHECK(code_of(reader->allocate(10)) == EROFS);
    CHECK(code_of(reader->cut(0)) == EROFS);
  }
  CHECK(files_in(device) == Files{{std::string(39, 'n'), ""}, {"two", "first"}});
  CHECK(open(device)->remove("two"));
  CHECK(files_in(device) == Files{{std::string(39, 'n'), ""}});
}

TEST_CASE("a removed file on a device keeps its pages while it is open", "[store]") {
  const auto device = std::make_shared<LoggedDevice>(range_bytes);
  const auto medium = open(device);
  auto old = *medium->create("old");
  const std::string half((file_pages / 2) * table_page, 'o');
  put(*old, half);
  SECTION("by a removal") {
    REQUIRE(medium->remove("old"));
  }
  SECTION("by another file that gets its name") {
    REQUIRE(medium->create("new"));
    REQUIRE(medium->rename("new", "old"));
  }
  auto other = *medium->create("other");
  put(*other, std::string(half.size(), 'x'));
  CHECK(text_of(*old) == half);
  CHECK(code_of(other->allocate(half.size() + 1)) == ENOSPC);
  old.reset();
  CHECK(other->allocate(half.size() + 1));
}

TEST_CASE("new bytes of a file on a device are zero, and a full range changes nothing", "[store]") {
  const auto device = std::make_shared<LoggedDevice>(range_bytes);
  const auto medium = open(device);
  put(**medium->create("old"), std::string(file_pages * table_page, 'o'));
  CHECK(code_of((*medium->create("more"))->allocate(1)) == ENOSPC);
  REQUIRE(medium->remove("old"));
  auto file = *medium->create("file");
  put(*file, std::string(5000, 'x'));
  CHECK(file->allocate(100));  // never shortens
  REQUIRE(file->cut(10));
  REQUIRE(file->cut(20));
  REQUIRE(file->allocate(8000));
  CHECK(text_of(*file) == std::string(10, 'x') + std::string(7990, '\0'));
  CHECK(code_of(file->allocate(9000)) == ENOSPC);  // its last piece cannot go on
  CHECK(code_of(file->allocate((file_pages + 1) * table_page)) == ENOSPC);
  CHECK(*file->size() == 8000);
  CHECK(code_of(file->map(8192, 4096)) == ENXIO);
  const auto reader = *medium->open("file", true);
  const auto window = reader->map(0, 20'000);  // behind the end are zeros
  REQUIRE(window);
  CHECK(
      std::all_of(*window + 10, *window + 20'000, [](auto byte) { return byte == std::byte{0}; }));
}

TEST_CASE("a table that cannot be trusted opens no files", "[store]") {
  const auto device = std::make_shared<LoggedDevice>(range_bytes);
  put(**open(device)->create("file"), "text");
  const auto bytes = device->bytes();
  const auto flip = [&](std::size_t copy, std::size_t at) {
    bytes[copy * store::table_bytes + at] ^= std::byte{4};
  };
  const std::size_t length = 40 + 56 + 8;
  for (std::size_t at = 0; at < length; ++at) {
    for (const std::size_t copy : {0U, 1U}) {
      flip(copy, at);
      CHECK(files_in(device) == Files{{"file", "text"}});
      const bool is_version = at >= 8 && at < 12;
      flip(1 - copy, at);
      CHECK(code_of(store::device_medium(device)) == (is_version ? EPROTONOSUPPORT : EUCLEAN));
      flip(copy, at);
      flip(1 - copy, at);
    }
  }
  flip(1, 20);  // a write replaces the damaged copy first
  put(**open(device)->create("more"), "more");
  flip(0, 20);
  CHECK(files_in(device) == Files{{"file", "text"}, {"more", "more"}});
}

TEST_CASE("a table with impossible files is damaged", "[store]") {
  const auto device = std::make_shared<LoggedDevice>(range_bytes);
  using store::TableFile;
  const TableFile sound{.name = "one", .size = 4097, .pieces = {{.first = 40, .count = 2}}};
  const auto code_with = [&](std::vector<TableFile> files) {
    REQUIRE(store::write_table(*device, {.generation = 9, .files = std::move(files)}));
    return code_of(store::device_medium(device));
  };
  CHECK(code_with({sound}) == 0);
  CHECK(code_with({sound, sound}) == EUCLEAN);  // a name twice
  CHECK(code_with({{.name = "", .size = 0, .pieces = {}}}) == EUCLEAN);
  CHECK(code_with({{.name = "one", .size = 4097, .pieces = {{40, 1}}}}) == EUCLEAN);
  CHECK(code_with({sound, {.name = "two", .size = 1, .pieces = {{41, 1}}}}) == EUCLEAN);
  CHECK(code_with({{.name = "one", .size = 1, .pieces = {{31, 1}}}}) == EUCLEAN);
  CHECK(code_with({{.name = "one", .size = 1, .pieces = {{63, 2}}}}) == EUCLEAN);
  CHECK(code_with({{.name = "one", .size = 1, .pieces = {{40, 1}, {50, 0}}}}) == EUCLEAN);
  CHECK(code_with({{.name = "one", .size = 1, .pieces = {{UINT32_MAX, UINT32_MAX}}}}) == EUCLEAN);
  const std::vector<TableFile> many(1171, sound);
  CHECK(code_of(store::write_table(*device, {.generation = 10, .files = many})) == ENOSPC);
}

TEST_CASE("power loss leaves the names of a device before or after a change", "[store]") {
  const auto seed = GENERATE(1U, 2U, 3U);
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const auto device = std::make_shared<LoggedDevice>(range_bytes);
  const auto medium = open(device);
  // The states of the files, and the events before each. A file "new" has no content yet.
  std::vector<std::pair<std::size_t, Files>> states{{0, {}}};
  const auto done = [&](const Files& files) {
    states.emplace_back(device->events(), files);
  };
  Files files;
  for (unsigned step = 0; step < 40; ++step) {
    const std::string name = "f" + std::to_string(random() % 4);
    if (random() % 3 == 0) {
      REQUIRE(medium->remove(name));
      files.erase(name);
      done(files);
      continue;
    }
    const std::string text(random() % 20'000, static_cast<char>('a' + step % 26));
    auto file = *medium->create("new");
    done(files);
    put(*file, text);
    done(files);
    REQUIRE(medium->rename("new", name));
    files[name] = text;
    done(files);
  }
  CHECK(files_in(device) == files);
  for (std::size_t events = 0; events <= device->events(); ++events) {
    const auto after =
        std::ranges::upper_bound(states, events, {}, [](const auto& state) { return state.first; });
    const Files& before = std::prev(after)->second;
    const Files& then = after == states.end() ? before : after->second;
    auto found = files_in(std::make_shared<LoggedDevice>(device->after_power_loss(events, random)));
    found.erase("new");
    CAPTURE(events);
    CHECK((found == before || found == then));
  }
}

TEST_CASE("a journal on a device has every record whose append returned", "[store]") {
  constexpr unsigned seed = 11;
  std::mt19937_64 random(seed);
  const auto device = std::make_shared<LoggedDevice>(26U << 20U);  // six chunks, and less
  auto journal = Journal::create(open(device), "journal");
  REQUIRE(journal);
  std::vector<std::size_t> appended;  // the events before the return of each append
  std::uint64_t first = 1;            // of the records that the last snapshot left
  std::vector<std::pair<std::size_t, std::uint64_t>> snapshots{{0, 1}};
  const auto write = [&](Journal& to, std::uint64_t number, std::size_t size) {
    REQUIRE(to.append(0, payload_of(number, size), 0));
  };
  for (unsigned round = 0; round < 2; ++round) {
    for (unsigned i = 0; i < 25; ++i) {  // more than a chunk
      write(*journal, appended.size() + 1, 200'000 + random() % 50'000);
      appended.push_back(device->events());
    }
    const std::size_t begun = device->events();
    REQUIRE(journal->replace([&](Journal& next) -> Status {
      for (std::uint64_t number = first + 20; number <= appended.size(); ++number) {
        write(next, number, 1000);
      }
      return {};
    }));
    first += 20;
    snapshots.emplace_back(begun, first);
  }
  const auto check = [&](std::size_t events) {
    const auto image = std::make_shared<LoggedDevice>(device->after_power_loss(events, random));
    std::vector<std::uint64_t> found;
    const auto opened =
        Journal::open(open(image), "journal", [&](const store::Record& record) -> Status {
          std::uint64_t number = 0;
          std::memcpy(&number, record.payload.data(), sizeof number);
          found.push_back(number);
          return {};
        });
    CAPTURE(events);
    REQUIRE(opened);
    const auto returned =
        static_cast<std::uint64_t>(std::ranges::upper_bound(appended, events) - appended.begin());
    const std::uint64_t last = found.empty() ? 0 : found.back();
    CHECK((last == returned || last == returned + 1));
    CHECK(std::ranges::is_sorted(found));
    const std::uint64_t begin = found.empty() ? 1 : found.front();
    CHECK(found.size() == (found.empty() ? 0 : last + 1 - begin));
    CHECK(std::ranges::any_of(
        snapshots, [&](const auto& one) { return one.second == begin && one.first <= events; }));
  };
  const std::size_t begin = appended.front();
  for (unsigned i = 0; i < 15; ++i) {
    check(begin + random() % (device->events() - begin + 1));
  }
  check(device->events());
}

}  // namespace efs::device_medium_test
