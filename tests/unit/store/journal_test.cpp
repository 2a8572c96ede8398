// SPDX-License-Identifier: BSD-3-Clause
#include "store/journal.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fstream>
#include <functional>
#include <sstream>

#include "base/checksum.hpp"
#include "store/format.hpp"
#include "support/journal_file.hpp"
#include "support/temp.hpp"

using efs::Status;
using efs::store::Journal;
using efs::store::Record;

namespace {

std::span<const std::byte> bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

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
      written.push_back(
          std::string(static_cast<std::size_t>(i) * 7 % 5000 + 1, static_cast<char>('a' + i % 26)));
      REQUIRE(journal->append(static_cast<std::uint64_t>(i), bytes(written.back()), 0));
    }
    CHECK(journal->size() > efs::store::journal_chunk);
  }
  CHECK(replay(fd.get()) == written);
  auto again = Journal::open(efs::store::directory_medium(fd.get()), "j",
                             [](const Record&) -> Status { return {}; });
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
    for (const char* text : {"one", "two", "three"}) {
      REQUIRE(journal->append(1, bytes(text), 0));
    }
  }
  const std::string path = directory.path() + "/j";
  const auto first = sizeof(efs::store::JournalHeader) + Journal::record_size(3);
  // each byte of the second record but its padding
  for (std::size_t at = first; at < first + Journal::record_size(3) - 5; ++at) {
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
  const auto journal = Journal::open(efs::store::directory_medium(fd.get()), "j",
                                     [](const Record&) -> Status { return {}; });
  REQUIRE_FALSE(journal);
  CHECK(journal.error().code == EPROTO);
  CHECK(journal.error().what.find("not a journal") != std::string::npos);
}

namespace {

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;  // by blocks: it is mebibytes, and often
  text << file.rdbuf();
  return std::move(text).str();
}

// Writes a header as another version would, with a correct checksum.
void change_header(const std::string& path,
                   const std::function<void(efs::store::JournalHeader&)>& change) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  efs::store::JournalHeader header{};
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  change(header);
  header.checksum = efs::checksum(
      std::as_bytes(std::span(&header, 1)).first(offsetof(efs::store::JournalHeader, checksum)));
  file.seekp(0);
  file.write(reinterpret_cast<const char*>(&header), sizeof header);
}

}  // namespace

TEST_CASE(
    "a journal or a snapshot of another version is refused with its number, and is left as it is",
    "[replay]") {
  for (const bool snapshot : {false, true}) {
    const efs::test::TempDirectory directory("/dev/shm");
    const auto fd = directory.open();
    const auto medium = efs::store::directory_medium(fd.get());
    {
      auto journal = Journal::create(medium, "j");
      REQUIRE(journal);
      REQUIRE(journal->append(0, bytes("one"), 0));
      if (snapshot) {
        REQUIRE(journal->replace([](Journal& next) -> Status {
          return next.append(0, std::as_bytes(std::span("one", 3)), 0);
        }));
      }
    }
    const std::string path = directory.path() + "/j";
    using Header = efs::store::JournalHeader;
    const auto now = efs::store::journal_version;
    const std::pair<std::uint32_t, std::function<void(Header&)>> others[] = {{now + 1,
                                                                              [](Header& h) {
                                                                                ++h.version;
                                                                              }},
                                                                             {2,
                                                                              [](Header& h) {
                                                                                h.version = 2;
                                                                              }},
                                                                             {now,
                                                                              [](Header& h) {
                                                                                h.chunk *= 2;
                                                                              }},
                                                                             {now, [](Header& h) {
                                                                                h.header_size += 64;
                                                                              }}};
    for (const auto& [version, change] : others) {
      const std::string before = content(path);
      change_header(path, change);
      const std::string changed = content(path);
      const auto nothing = [](const Record&) -> Status {
        FAIL("a record of another version was replayed");
        return {};
      };
      const auto opened = Journal::open(medium, "j", nothing);
      const auto scanned = Journal::scan(*medium, "j", nothing);
      REQUIRE_FALSE(opened);
      REQUIRE_FALSE(scanned);
      for (const auto& error : {opened.error(), scanned.error()}) {
        CHECK(error.code == EPROTONOSUPPORT);
        CHECK(error.what == "journal j: written by another version of efs (format " +
                                std::to_string(version) +
                                ", and this efs reads 3 to 4). Nothing was changed. Open the store "
                                "with the efs that wrote it" +
                                (version < 3 ? "" : ", or a newer one"));
      }
      CHECK(content(path) == changed);
      std::ofstream(path, std::ios::binary | std::ios::trunc) << before;
    }
    std::size_t records = 0;
    CHECK(Journal::open(medium, "j", [&](const Record&) -> Status {
      ++records;
      return {};
    }));
    CHECK(records == 1);
  }
}

TEST_CASE("a version that was damaged is not taken for a later one", "[replay]") {
  const efs::test::TempDirectory directory("/dev/shm");
  const auto fd = directory.open();
  const auto medium = efs::store::directory_medium(fd.get());
  REQUIRE(Journal::create(medium, "j"));
  const std::string path = directory.path() + "/j";
  const auto code_with = [&](std::uint32_t version) {
    std::string changed = content(path);
    std::memcpy(changed.data() + offsetof(efs::store::JournalHeader, version), &version,
                sizeof version);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << changed;
    const auto nothing = [](const Record&) -> efs::Status {
      return {};
    };
    const auto opened = Journal::open(medium, "j", nothing);
    CHECK(content(path) == changed);
    return opened ? 0 : opened.error().code;
  };
  CHECK(code_with(efs::store::journal_version + 1) == EPROTO);
  CHECK(code_with(efs::store::oldest_version) == EPROTO);
  CHECK(code_with(efs::store::journal_version) == 0);
}

TEST_CASE("a journal of an older version takes no record before a snapshot replaces it",
          "[replay]") {
  const efs::test::TempDirectory directory("/dev/shm");
  const auto fd = directory.open();
  const auto medium = efs::store::directory_medium(fd.get());
  {
    auto journal = Journal::create(medium, "j");
    REQUIRE(journal);
    REQUIRE(journal->append(7, bytes("one"), 0));
  }
  const std::string path = directory.path() + "/j";
  change_header(
      path, [](efs::store::JournalHeader& header) { header.version = efs::store::oldest_version; });
  const std::string before = content(path);
  std::vector<std::uint32_t> versions;
  const auto note = [&](const Record& record) -> Status {
    versions.push_back(record.version);
    return {};
  };
  auto journal = Journal::open(medium, "j", note);
  REQUIRE(journal);
  CHECK(journal->replayed().version == efs::store::oldest_version);
  CHECK(journal->append(0, bytes("two"), 0).error().code == EPROTO);
  CHECK_FALSE(journal->replace([](Journal&) -> Status { return efs::fail(ENOSPC); }));
  CHECK(journal->append(0, bytes("two"), 0).error().code == EPROTO);
  CHECK(content(path) == before);
  REQUIRE(journal->replace([](Journal& next) -> Status {
    return next.append(0, std::as_bytes(std::span("state", 5)), 0);
  }));
  CHECK(journal->append(0, bytes("two"), 0));
  const auto end = Journal::scan(*medium, "j", note);
  REQUIRE(end);
  CHECK(end->version == efs::store::journal_version);
  CHECK(versions == std::vector<std::uint32_t>{3, 4, 4});
}

TEST_CASE("a snapshot of another version that never became the journal is removed") {
  const efs::test::TempDirectory directory("/dev/shm");
  const auto fd = directory.open();
  const auto medium = efs::store::directory_medium(fd.get());
  REQUIRE(Journal::create(medium, "j"));
  const std::string beside = directory.path() + "/j.new";
  std::ofstream(beside, std::ios::binary)
      << std::ifstream(directory.path() + "/j", std::ios::binary).rdbuf();
  change_header(beside, [](efs::store::JournalHeader& header) { ++header.version; });
  CHECK(Journal::open(medium, "j", [](const Record&) -> Status { return {}; }));
  CHECK_FALSE(std::ifstream(beside));
}

TEST_CASE("replace switches to the new journal whole, and keeps the old one when it fails") {
  const efs::test::TempDirectory directory("/dev/shm");
  const auto fd = directory.open();
  auto journal = Journal::create(efs::store::directory_medium(fd.get()), "j");
  for (int i = 0; i < 100; ++i) {
    REQUIRE(journal->append(0, bytes("old"), 0));
  }
  CHECK_FALSE(journal->replace([](Journal&) -> Status { return efs::fail(ENOSPC); }));
  CHECK(replay(fd.get()).size() == 100);
  REQUIRE(journal->replace([](Journal& next) -> Status {
    return next.append(0, std::as_bytes(std::span("state", 5)), 0);
  }));
  REQUIRE(journal->append(0, bytes("after"), 0));
  CHECK(journal->sequence() == 102);
  std::vector<std::uint64_t> sequences;
  auto reopened = Journal::open(efs::store::directory_medium(fd.get()), "j",
                                [&](const Record& record) -> Status {
                                  sequences.push_back(record.sequence);
                                  return {};
                                });
  REQUIRE(reopened);
  CHECK(sequences == std::vector<std::uint64_t>{101, 102});
  struct stat st{};
  CHECK(::fstatat(fd.get(), "j.new", &st, 0) != 0);
}

TEST_CASE(
    "a journal that ends before what it began with is refused, whatever became of the machine, and "
    "one that was never finished",
    "[replay]") {
  const efs::test::TempDirectory directory("/dev/shm");
  const auto fd = directory.open();
  const auto medium = efs::store::directory_medium(fd.get());
  const std::string path = directory.path() + "/j";
  std::string unfinished;
  {
    auto journal = Journal::create(medium, "j");
    REQUIRE(journal);
    REQUIRE(journal->replace([&](Journal& next) -> Status {
      for (const char* text : {"one", "two", "three"}) {
        REQUIRE(next.append(0, std::as_bytes(std::span(text, 3)), 0));
      }
      unfinished = content(path + ".new");
      return {};
    }));
    for (const char* text : {"four", "five"}) {
      REQUIRE(journal->append(0, bytes(text), 0));
    }
  }
  const std::string whole = content(path);
  const auto offsets = efs::test::record_offsets(whole);
  REQUIRE(offsets.size() == 6);
  const auto nothing = [](const Record&) -> Status {
    return {};
  };
  for (std::size_t left = 0; left < offsets.size(); ++left) {
    const std::string cut = efs::test::cut_at(whole, offsets[left], false);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << cut;
    const auto scanned = Journal::scan(*medium, "j", nothing);
    REQUIRE(scanned);
    CHECK(scanned->records == left);
    CHECK(scanned->incomplete == (left < 3));
    for (const bool after_power_loss : {true, false}) {
      const auto opened =
          Journal::open(medium, "j", nothing, {.after_power_loss = after_power_loss});
      CHECK(opened.has_value() == (left >= 3));
      if (!opened) {
        CHECK(opened.error().code == EUCLEAN);
      }
      CHECK(content(path) == cut);
    }
  }
  std::ofstream(path, std::ios::binary | std::ios::trunc) << unfinished;
  const auto opened = Journal::open(medium, "j", nothing);
  REQUIRE_FALSE(opened);
  CHECK(opened.error().what.find("was never finished") != std::string::npos);
}

namespace {

// Makes a journal of `chunks` full chunks and some more; the offset of the last record of each of
// the former, and of what follows it.
struct Ends {
  std::size_t last = 0, behind = 0;
};

std::vector<Ends> write_chunks(const std::shared_ptr<efs::store::Medium>& medium,
                               std::size_t chunks) {
  auto journal = Journal::create(medium, "j");
  REQUIRE(journal);
  std::vector<Ends> ends(1);
  for (std::size_t i = 0, at = journal->size();
       ends.size() <= chunks || at % efs::store::journal_chunk < 100'000; ++i) {
    const std::string text(i * 7 % 5000 + 1, 'r');
    REQUIRE(journal->append(0, bytes(text), 0));
    const std::size_t size = Journal::record_size(text.size());
    if ((at + size - 1) / efs::store::journal_chunk != at / efs::store::journal_chunk) {
      at = (at / efs::store::journal_chunk + 1) * efs::store::journal_chunk;
      ends.emplace_back();
    }
    ends.back() = {.last = at, .behind = at + size};
    at += size;
    REQUIRE(journal->size() == at);
  }
  ends.pop_back();
  return ends;
}

void put_zeros(std::string& in, std::size_t from, std::size_t to) {
  std::fill(in.begin() + static_cast<std::ptrdiff_t>(from),
            in.begin() + static_cast<std::ptrdiff_t>(to), '\0');
}

}  // namespace

TEST_CASE(
    "damage at the end of a chunk, or of chunks as a whole, is told by the records of a later one",
    "[replay]") {
  const efs::test::TempDirectory directory("/dev/shm");
  const auto fd = directory.open();
  const auto medium = efs::store::directory_medium(fd.get());
  const auto ends = write_chunks(medium, 3);
  const std::string path = directory.path() + "/j", whole = content(path);
  constexpr std::size_t chunk = efs::store::journal_chunk;
  const std::pair<const char*, std::function<void(std::string&)>> damages[] = {
      {"the last record of a chunk",
       [&](std::string& j) {
         j[ends[0].last + 40] = static_cast<char>(j[ends[0].last + 40] ^ 1);
       }},
      {"the mark behind it",
       [&](std::string& j) {
         put_zeros(j, ends[1].behind, ends[1].behind + 4);
       }},
      {"all from some record to the end of its chunk",
       [&](std::string& j) {
         put_zeros(j, ends[0].last, chunk);
       }},
      {"a chunk",
       [&](std::string& j) {
         put_zeros(j, chunk, 2 * chunk);
       }},
      {"the end of a chunk and the next", [&](std::string& j) {
         put_zeros(j, ends[0].last, 2 * chunk);
       }}};
  const auto nothing = [](const Record&) -> Status {
    return {};
  };
  for (const auto& [what, damage] : damages) {
    INFO(what);
    std::string bad = whole;
    damage(bad);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bad;
    const auto scanned = Journal::scan(*medium, "j", nothing);
    REQUIRE(scanned);
    CHECK(scanned->followed);
    CHECK(scanned->torn);
    const auto refused = Journal::open(medium, "j", nothing, {.after_power_loss = false});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == EUCLEAN);
    CHECK(content(path) == bad);
    auto recovered = Journal::open(medium, "j", nothing, {.after_power_loss = true});
    REQUIRE(recovered);
    CHECK(recovered->append(0, bytes("goes on"), 0));
    const auto again = Journal::scan(*medium, "j", nothing);
    REQUIRE(again);
    CHECK_FALSE(again->torn);
  }
}

TEST_CASE("a journal that ends among its records is refused, unless power may have failed",
          "[replay]") {
  const efs::test::TempDirectory directory("/dev/shm");
  const auto fd = directory.open();
  const auto medium = efs::store::directory_medium(fd.get());
  const auto ends = write_chunks(medium, 1);
  const std::string path = directory.path() + "/j", whole = content(path);
  const auto nothing = [](const Record&) -> Status {
    return {};
  };
  for (const std::size_t left :
       {std::size_t{1000}, ends[0].last, ends[0].last + 10, efs::store::journal_chunk,
        efs::store::journal_chunk + 40, efs::store::journal_chunk + 50'000}) {
    INFO(left << " bytes are left");
    const std::string cut = whole.substr(0, left);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << cut;
    const auto scanned = Journal::scan(*medium, "j", nothing);
    REQUIRE(scanned);
    CHECK(scanned->cut_short);
    const auto refused = Journal::open(medium, "j", nothing, {.after_power_loss = false});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == EUCLEAN);
    CHECK(content(path) == cut);
    CHECK(Journal::open(medium, "j", nothing, {.after_power_loss = true}));
  }
}

namespace {

Status nothing(const Record&) {
  return {};
}

// A process that dies before its store number `left`: only its earlier writes exist.
class Mortal final : public efs::store::MediumFile {
 public:
  Mortal(std::unique_ptr<efs::store::MediumFile> file, int& left)
      : file_(std::move(file)), left_(left) {}

  efs::Result<std::uint64_t> size() override { return file_->size(); }

  Status allocate(std::uint64_t size) override { return file_->allocate(size); }

  Status cut(std::uint64_t size) override { return file_->cut(size); }

  efs::Result<std::byte*> map(std::uint64_t offset, std::size_t length) override {
    return file_->map(offset, length);
  }

  void store(std::byte* to, std::span<const std::byte> from) override {
    if (left_-- > 0) {
      file_->store(to, from);
    }
  }

  void drain() override { file_->drain(); }

  Status sync() override { return file_->sync(); }

 private:
  const std::unique_ptr<efs::store::MediumFile> file_;
  int& left_;
};

class MortalMedium final : public efs::store::Medium {
 public:
  MortalMedium(std::shared_ptr<efs::store::Medium> medium, int& left)
      : medium_(std::move(medium)), left_(left) {}

  efs::Result<std::unique_ptr<efs::store::MediumFile>> create(const std::string& name) override {
    return mortal(medium_->create(name));
  }

  efs::Result<std::unique_ptr<efs::store::MediumFile>> open(const std::string& name,
                                                            bool read_only) override {
    return mortal(medium_->open(name, read_only));
  }

  Status rename(const std::string& from, const std::string& to) override {
    return medium_->rename(from, to);
  }

  Status remove(const std::string& name) override { return medium_->remove(name); }

  Status sync_names() override { return medium_->sync_names(); }

 private:
  efs::Result<std::unique_ptr<efs::store::MediumFile>> mortal(
      efs::Result<std::unique_ptr<efs::store::MediumFile>> file) {
    if (!file) {
      return file;
    }
    return std::make_unique<Mortal>(std::move(*file), left_);
  }

  const std::shared_ptr<efs::store::Medium> medium_;
  int& left_;
};

}  // namespace

TEST_CASE(
    "the last record: one that a death of ours cut off is cleared, one that was whole and is "
    "damaged is refused, unless power may have failed",
    "[replay]") {
  const efs::test::TempDirectory directory("/dev/shm");
  const auto fd = directory.open();
  const auto medium = efs::store::directory_medium(fd.get());
  const std::string path = directory.path() + "/j";
  SECTION("cut off before any of its stores") {
    const auto finds = [&](bool torn) {
      auto journal = Journal::open(medium, "j", nothing, {.after_power_loss = false});
      REQUIRE(journal);
      CHECK(journal->replayed().torn == torn);
      return journal->replayed().records;
    };
    int left = 1000, stores = 0;
    {
      auto journal = Journal::create(std::make_shared<MortalMedium>(medium, left), "j");
      REQUIRE(journal->append(0, bytes("first"), 0));
      left = 1000;
      REQUIRE(journal->append(0, bytes("second"), 0));
      stores = 1000 - left;
    }
    // the record but for its length, the length, and the number beside the journal
    REQUIRE(stores == 3);
    for (int n = 0; n <= stores; ++n) {
      left = 1000;
      auto journal = Journal::open(std::make_shared<MortalMedium>(medium, left), "j", nothing,
                                   {.after_power_loss = false});
      REQUIRE(journal);
      const auto before = journal->records();
      left = n;
      REQUIRE(journal->append(0, bytes("the last one"), 0));
      journal = efs::fail(EIO);
      CHECK(finds(n == 1) == before + (n > 1 ? 1 : 0));
    }
  }
  SECTION("damaged") {
    std::uint64_t at = 0, end = 0;
    {
      auto journal = Journal::create(medium, "j");
      for (const char* text : {"one", "two"}) {
        REQUIRE(journal->append(1, bytes(text), 0));
      }
      at = journal->size();
      REQUIRE(journal->append(1, bytes("three"), 0));
      end = at + sizeof(efs::store::RecordHeader) + 5;
    }
    const std::string whole = content(path);
    for (auto where = at; where < end; ++where) {
      INFO("byte " << where - at);
      std::string bad = whole;
      bad[where] = static_cast<char>(bad[where] ^ 0x40);
      std::ofstream(path, std::ios::binary | std::ios::trunc) << bad;
      const auto refused = Journal::open(medium, "j", nothing, {.after_power_loss = false});
      REQUIRE_FALSE(refused);
      CHECK(refused.error().code == EUCLEAN);
      CHECK(content(path) == bad);
      const auto recovered = Journal::open(medium, "j", nothing, {.after_power_loss = true});
      REQUIRE(recovered);
      CHECK(recovered->replayed().records == 2);
    }
  }
}

TEST_CASE(
    "damage of what had survived power loss, by the word of the records behind it, is refused "
    "whatever became of the machine",
    "[replay]") {
  const efs::test::TempDirectory directory("/dev/shm");
  const auto fd = directory.open();
  const auto medium = efs::store::directory_medium(fd.get());
  const std::string path = directory.path() + "/j";
  // in one chunk, and over several
  const std::size_t size = GENERATE(std::size_t{10}, std::size_t{250'000});
  std::vector<std::uint64_t> at;
  {
    auto journal = Journal::create(medium, "j");
    REQUIRE(journal);
    for (std::uint64_t i = 0; i < 40; ++i) {
      at.push_back(journal->size());
      REQUIRE(journal->append(0, bytes(std::string(size, 'r')), 0, i < 20 ? 0 : 20));
    }
  }
  const std::string whole = content(path);
  for (const std::size_t damaged : {0U, 5U, 15U, 16U, 18U, 19U, 20U, 30U}) {
    INFO("record " << damaged + 1);
    std::string bad = whole;
    const auto where = std::size_t{
        at[damaged] +
        (at[damaged] % efs::store::journal_chunk + 300'000 > efs::store::journal_chunk ? 0 : 8)};
    bad[where] = static_cast<char>(bad[where] ^ 1);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bad;
    const auto scanned = Journal::scan(*medium, "j", nothing);
    REQUIRE(scanned);
    if (scanned->records != damaged) {
      continue;  // it met the end of a chunk
    }
    CHECK(scanned->followed);
    CHECK(scanned->settled == (damaged < 20));
    const auto opened = Journal::open(medium, "j", nothing, {.after_power_loss = true});
    CHECK(opened.has_value() == (damaged >= 20));
    if (damaged < 20) {
      CHECK(content(path) == bad);
    }
  }
}

TEST_CASE("a journal that ends before what its store had when it was left is refused") {
  const efs::test::TempDirectory directory("/dev/shm");
  const auto fd = directory.open();
  const auto medium = efs::store::directory_medium(fd.get());
  {
    auto journal = Journal::create(medium, "j");
    for (const char* text : {"one", "two", "three"}) {
      REQUIRE(journal->append(1, bytes(text), 0));
    }
  }
  for (const bool after_power_loss : {false, true}) {
    const auto refused = Journal::open(medium, "j", nothing,
                                       {.after_power_loss = after_power_loss, .complete_to = 4});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == EUCLEAN);
    CHECK(Journal::open(medium, "j", nothing,
                        {.after_power_loss = after_power_loss, .complete_to = 3}));
  }
  CHECK(Journal::scan(*medium, "j", nothing, {.complete_to = 4})->incomplete);
  CHECK_FALSE(Journal::scan(*medium, "j", nothing, {.complete_to = 3})->incomplete);
}

TEST_CASE(
    "while the machine is up, a journal that has lost its end is told by the number that is noted "
    "beside it") {
  const efs::test::TempDirectory directory("/dev/shm");
  const auto fd = directory.open();
  const auto medium = efs::store::directory_medium(fd.get());
  const std::string path = directory.path() + "/j";
  std::uint64_t last = 0;
  {
    auto journal = Journal::create(medium, "j");
    for (const char* text : {"one", "two"}) {
      REQUIRE(journal->append(0, bytes(text), 0));
    }
    REQUIRE(journal->replace([](Journal& next) { return next.append(0, bytes("all"), 0); }));
    REQUIRE(journal->append(0, bytes("behind"), 0));
    last = journal->size();
    REQUIRE(journal->append(0, bytes("the last"), 0));
  }
  const std::string whole = content(path), cut = efs::test::cut_at(whole, last, false);
  CHECK_FALSE(Journal::scan(*medium, "j", nothing, {.after_power_loss = false})->incomplete);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << cut;
  CHECK(Journal::scan(*medium, "j", nothing, {.after_power_loss = false})->incomplete);
  const auto refused = Journal::open(medium, "j", nothing, {.after_power_loss = false});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == EUCLEAN);
  CHECK(content(path) == cut);
  SECTION("power loss takes records, and the number is right from then on") {
    CHECK(Journal::open(medium, "j", nothing, {.after_power_loss = true}));
    auto again = Journal::open(medium, "j", nothing, {.after_power_loss = false});
    REQUIRE(again);
    CHECK(again->append(0, bytes("goes on"), 0));
  }
  SECTION("what was noted of an earlier journal counts for none that is new") {
    REQUIRE(::unlink(path.c_str()) == 0);
    CHECK(Journal::create(medium, "j"));
    CHECK(Journal::open(medium, "j", nothing, {.after_power_loss = false}));
  }
  SECTION("nor does that of another store, and where none can be kept it is gone without") {
    const efs::store::InstanceId id{{1, 2, 3}};
    change_header(path, [&](auto& header) { header.instance = id.bytes; });
    CHECK(Journal::open(medium, "j", nothing, {.after_power_loss = false}));
    REQUIRE(::unlink((path + ".last").c_str()) == 0);
    REQUIRE(::mkdir((path + ".last").c_str(), 0700) == 0);
    auto without = Journal::open(medium, "j", nothing, {.after_power_loss = false});
    REQUIRE(without);
    CHECK(without->append(0, bytes("goes on"), 0));
  }
}

TEST_CASE(
    "what a full file system gave of a chunk is no part of a journal, and takes no room to go on "
    "without") {
  const efs::test::TempDirectory directory("/dev/shm");
  const auto fd = directory.open();
  const auto medium = efs::store::directory_medium(fd.get());
  (void)write_chunks(medium, 0);
  const std::string path = directory.path() + "/j";
  const auto size = content(path).size() + 12'288;
  REQUIRE(::truncate(path.c_str(), static_cast<off_t>(size)) == 0);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit full{.rlim_cur = size, .rlim_max = before.rlim_max};
  const auto signal = ::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &full) == 0);
  {
    auto journal = Journal::open(medium, "j", [](const Record&) -> Status { return {}; },
                                 {.after_power_loss = false});
    CHECK(journal);
    if (journal) {
      CHECK_FALSE(journal->replayed().cut_short);
    }
    if (journal) {
      CHECK(journal->append(0, bytes("there is room in its last chunk"), 0));
    }
  }
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  ::signal(SIGXFSZ, signal);
}

TEST_CASE("the reserve keeps room for removals") {
  const efs::test::TempDirectory directory("/dev/shm");
  const auto fd = directory.open();
  auto journal = Journal::create(efs::store::directory_medium(fd.get()), "j");
  // Enough reserve for 100,000 removals must be allocated before the creations are answered.
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(journal->append(0, bytes("create"),
                            static_cast<std::int64_t>(100 * Journal::record_size(40))));
  }
  struct stat st{};
  REQUIRE(::fstatat(fd.get(), "j", &st, 0) == 0);
  CHECK(static_cast<std::uint64_t>(st.st_blocks) * 512 >= 100'000 * Journal::record_size(40));
}
