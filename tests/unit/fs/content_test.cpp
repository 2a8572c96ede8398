// SPDX-License-Identifier: BSD-3-Clause
// The content of a file whose container does not know it: size, times and extents in records.
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "fs/namespace.hpp"
#include "fs/record.hpp"
#include "store/journal.hpp"

namespace efs::content_test {

using fs::SetContent;

namespace {

constexpr std::uint64_t file = 2, directory = 3;
constexpr std::uint64_t to_the_end = ~std::uint64_t{0};

fs::Namespace with_a_file() {
  fs::Namespace names(0755, 0, 0, 0);
  REQUIRE(names.apply(
      fs::MakeNode{.ino = file, .parent = fs::root_ino, .mode = S_IFREG | 0644, .name = "f"}));
  REQUIRE(names.apply(
      fs::MakeNode{.ino = directory, .parent = fs::root_ino, .mode = S_IFDIR | 0755, .name = "d"}));
  return names;
}

std::vector<Extent> extents_of(const fs::Namespace& names) {
  return names.find(file)->content()->extents.list();
}

// The namespace that the next start makes of a snapshot. `records`: those of the content.
fs::Namespace copy_of(const fs::Namespace& names, std::size_t* records = nullptr) {
  fs::Namespace copy(0755, 0, 0, 0);
  names.snapshot([&](const fs::Record& record) {
    std::vector<std::byte> bytes;
    fs::encode(record, bytes);
    REQUIRE(bytes.size() <= store::Journal::max_payload);
    REQUIRE(copy.apply(fs::decode(bytes, store::journal_version, fs::content_level)->value()));
    if (records != nullptr && std::holds_alternative<SetContent>(record)) {
      ++*records;
    }
  });
  return copy;
}

}  // namespace

TEST_CASE("a content record replaces the extents of its range only", "[fs]") {
  fs::Namespace names = with_a_file();
  CHECK(names.find(file)->content() == nullptr);
  const SetContent first{.ino = file,
                         .size = 300,
                         .physical = 512,
                         .atime = 11,
                         .mtime = 12,
                         .ctime = 13,
                         .begin = 0,
                         .end = to_the_end,
                         .extents = {{0, 1000, 100}, {100, 1100, 50}, {200, 5000, 100}}};
  REQUIRE(names.apply(first));
  REQUIRE(names.apply(first));  // once more: the same
  CHECK(extents_of(names) == std::vector<Extent>{{0, 1000, 150}, {200, 5000, 100}});
  const fs::Inode& inode = *names.find(file);
  CHECK(inode.content()->size == 300);
  CHECK(inode.content()->physical == 512);
  CHECK(inode.atime == FileTime(11));
  CHECK(inode.mtime == FileTime(12));
  CHECK(inode.ctime == FileTime(13));
  REQUIRE(names.apply(SetContent{.ino = file,
                                 .size = 400,
                                 .physical = 1024,
                                 .mtime = 20,
                                 .begin = 120,
                                 .end = 220,
                                 .extents = {{130, 9000, 10}}}));
  CHECK(extents_of(names) == std::vector<Extent>{{0, 1000, 120}, {130, 9000, 10}, {220, 5020, 80}});
  REQUIRE(names.apply(SetContent{.ino = file, .size = 7}));  // no range: the extents stay
  CHECK(extents_of(names).size() == 3);
  CHECK(names.find(file)->content()->size == 7);
}

TEST_CASE("content records that no backend can cause are refused and change nothing", "[fs]") {
  fs::Namespace names = with_a_file();
  const std::vector<std::vector<Extent>> wrong{{{0, 0, 0}},
                                               {{0, 0, 101}},
                                               {{9, 0, 2}},
                                               {{95, 0, 6}},
                                               {{10, 0, 20}, {29, 0, 1}},
                                               {{50, 0, 5}, {20, 0, 5}},
                                               {{20, to_the_end - 3, 5}},
                                               {{to_the_end - 3, 0, 5}}};
  for (const auto& extents : wrong) {
    INFO(&extents - wrong.data());
    CHECK_FALSE(names.apply(
        SetContent{.ino = file, .size = 1, .begin = 10, .end = 100, .extents = extents}));
  }
  constexpr std::uint64_t too_large = std::uint64_t{1} << 63U;
  CHECK_FALSE(names.apply(SetContent{.ino = file, .size = too_large}));
  CHECK_FALSE(names.apply(SetContent{.ino = file, .size = 1, .physical = too_large}));
  CHECK_FALSE(names.apply(SetContent{.ino = file, .size = 1, .begin = 2, .end = 1}));
  std::vector<Extent> too_many;
  for (std::uint64_t i = 0; i <= SetContent::most_extents; ++i) {
    too_many.push_back({.offset = 2 * i, .device = 4 * i, .length = 1});
  }
  SetContent many{.ino = file, .size = 1, .begin = 0, .end = to_the_end, .extents = too_many};
  CHECK_FALSE(names.apply(many));
  CHECK_FALSE(names.apply(SetContent{.ino = directory, .size = 1}));
  CHECK_FALSE(names.apply(SetContent{.ino = 99, .size = 1}));
  CHECK(names.find(file)->content() == nullptr);
  CHECK(names.find(directory)->content() == nullptr);
  many.extents.pop_back();
  CHECK(names.apply(many));
  CHECK(names.apply(SetContent{.ino = file, .size = too_large - 1, .physical = too_large - 1}));
}

TEST_CASE("a snapshot keeps a content, in as many records as it needs", "[fs]") {
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, SetContent::most_extents,
                                  SetContent::most_extents + 1, 3 * SetContent::most_extents}) {
    INFO(count);
    fs::Namespace names = with_a_file();
    for (std::uint64_t i = 0; i < count; ++i) {
      const Extent extent{.offset = 10 + i * 100, .device = i * 4096, .length = 60};
      REQUIRE(names.apply(SetContent{.ino = file,
                                     .size = 1u << 30,
                                     .physical = 77,
                                     .atime = 1,
                                     .mtime = 2,
                                     .ctime = 3,
                                     .begin = extent.offset,
                                     .end = extent.end(),
                                     .extents = {extent}}));
    }
    if (count == 0) {
      REQUIRE(names.apply(SetContent{.ino = file, .size = 1u << 30, .physical = 77}));
    }
    std::size_t records = 0;
    const fs::Namespace copy = copy_of(names, &records);
    CHECK(records == std::max<std::size_t>(
                         1, (count + SetContent::most_extents - 1) / SetContent::most_extents));
    const fs::Inode &before = *names.find(file), &after = *copy.find(file);
    REQUIRE(after.content() != nullptr);
    CHECK(after.content()->size == 1u << 30);
    CHECK(after.content()->physical == 77);
    CHECK(after.content()->extents == before.content()->extents);
    CHECK(after.content()->extents.size() == count);
    CHECK(after.mtime == before.mtime);
    CHECK(after.ctime == before.ctime);
    CHECK(copy.find(directory)->content() == nullptr);
  }
}

}  // namespace efs::content_test
