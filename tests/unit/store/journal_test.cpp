#include "store/journal.hpp"

#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <fstream>

#include "store/format.hpp"
#include "support/temp.hpp"

using efs::Status;
using efs::store::Journal;
using efs::store::Record;

namespace {

std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::vector<std::string> replay(int directory) {
  std::vector<std::string> found;
  const auto medium = efs::store::directory_medium(directory);
  const auto journal = Journal::scan(*medium, "j", [&](const Record& record) -> Status {
    CHECK(record.sequence == found.size() + 1);
    found.emplace_back(reinterpret_cast<const char*>(record.payload.data()), record.payload.size());
    return {};
  });
  REQUIRE(journal);
  return found;
}

}  // namespace

TEST_CASE("what was appended is replayed in order, across chunks, and appending goes on") {
  const efs::test::TempDirectory directory("/dev/shm");
  const auto fd = directory.open();
  std::vector<std::string> written;
  {
    auto journal = Journal::create(efs::store::directory_medium(fd.get()), "j");
    REQUIRE(journal);
    for (int i = 0; i < 3000; ++i) {
      written.push_back(std::string(static_cast<std::size_t>(i) * 7 % 5000 + 1, static_cast<char>('a' + i % 26)));
      REQUIRE(journal->append(static_cast<std::uint64_t>(i), bytes(written.back()), 0));
    }
    CHECK(journal->size() > efs::store::journal_chunk);
  }
  CHECK(replay(fd.get()) == written);
  auto again = Journal::open(efs::store::directory_medium(fd.get()), "j", [](const Record&) -> Status { return {}; });
  REQUIRE(again);
  REQUIRE(again->append(0, bytes("last"), 0));
  written.push_back("last");
  again = efs::fail(EIO);
  CHECK(replay(fd.get()) == written);
}

TEST_CASE("replay stops at the first record that does not verify") {
  const efs::test::TempDirectory directory("/dev/shm");
  const auto fd = directory.open();
  {
    auto journal = Journal::create(efs::store::directory_medium(fd.get()), "j");
    for (const char* text : {"one", "two", "three"}) REQUIRE(journal->append(1, bytes(text), 0));
  }
  const std::string path = directory.path() + "/j";
  const auto first = sizeof(efs::store::JournalHeader) + Journal::record_size(3);
  for (std::size_t at = first; at < first + Journal::record_size(3) - 5; ++at) {  // each byte of the second record but its padding
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const char old = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(old ^ 0x40));
    file.flush();
    CHECK(replay(fd.get()) == std::vector<std::string>{"one"});
    file.seekp(static_cast<std::streamoff>(at));
    file.put(old);
  }
  CHECK(replay(fd.get()).size() == 3);
}

TEST_CASE("a damaged or foreign header is refused with a text") {
  const efs::test::TempDirectory directory("/dev/shm");
  const auto fd = directory.open();
  std::ofstream(directory.path() + "/j") << std::string(efs::store::journal_chunk, 'x');
  const auto journal = Journal::open(efs::store::directory_medium(fd.get()), "j", [](const Record&) -> Status { return {}; });
  REQUIRE_FALSE(journal);
  CHECK(journal.error().code == EPROTO);
  CHECK(journal.error().what.find("not a journal") != std::string::npos);
}

TEST_CASE("replace switches to the new journal whole, and keeps the old one when it fails") {
  const efs::test::TempDirectory directory("/dev/shm");
  const auto fd = directory.open();
  auto journal = Journal::create(efs::store::directory_medium(fd.get()), "j");
  for (int i = 0; i < 100; ++i) REQUIRE(journal->append(0, bytes("old"), 0));
  CHECK_FALSE(journal->replace([](Journal&) -> Status { return efs::fail(ENOSPC); }));
  CHECK(replay(fd.get()).size() == 100);
  REQUIRE(journal->replace([](Journal& next) -> Status { return next.append(0, std::as_bytes(std::span("state", 5)), 0); }));
  REQUIRE(journal->append(0, bytes("after"), 0));
  CHECK(journal->sequence() == 102);
  std::vector<std::uint64_t> sequences;
  auto reopened = Journal::open(efs::store::directory_medium(fd.get()), "j", [&](const Record& record) -> Status {
    sequences.push_back(record.sequence);
    return {};
  });
  REQUIRE(reopened);
  CHECK(sequences == std::vector<std::uint64_t>{101, 102});
  struct stat st {};
  CHECK(::fstatat(fd.get(), "j.new", &st, 0) != 0);
}

TEST_CASE("the reserve keeps room for removals") {
  const efs::test::TempDirectory directory("/dev/shm");
  const auto fd = directory.open();
  auto journal = Journal::create(efs::store::directory_medium(fd.get()), "j");
  // Enough reserve for 100,000 removals must be allocated before the creations are answered.
  for (int i = 0; i < 1000; ++i) REQUIRE(journal->append(0, bytes("create"), static_cast<std::int64_t>(100 * Journal::record_size(40))));
  struct stat st {};
  REQUIRE(::fstatat(fd.get(), "j", &st, 0) == 0);
  CHECK(static_cast<std::uint64_t>(st.st_blocks) * 512 >= 100'000 * Journal::record_size(40));
}
