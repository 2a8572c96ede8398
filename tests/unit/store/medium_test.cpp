// SPDX-License-Identifier: BSD-3-Clause
// The production medium: the calls that reach the kernel and libpmem, their objects and their
// order. (tests/crash proves on its own medium why the order matters.)
#include "store/medium.hpp"

#include <fcntl.h>
#include <sys/resource.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "store/format.hpp"
#include "store/journal.hpp"
#include "support/durable_calls.hpp"
#include "support/temp.hpp"

namespace efs::medium_test {
namespace {

using store::Journal;
using test::DurableCalls;

struct Scene {
  test::TempDirectory directory;
  std::string path = std::filesystem::canonical(directory.path());
  std::string journal = path + "/j", next = journal + ".new";
  UniqueFd fd = directory.open();
  std::shared_ptr<store::Medium> medium = store::directory_medium(fd.get());
};

std::vector<std::byte> payload(std::size_t size) {
  return std::vector<std::byte>(size, std::byte{'x'});
}

struct Extent {
  std::uint64_t begin = 0, end = 0;  // in the file
};

// Where the record lies; what follows it up to the next multiple of 8 means nothing.
Extent append(Journal& journal, std::size_t size) {
  REQUIRE(journal.append(0, payload(size), 0));
  const std::uint64_t begin = journal.size() - Journal::record_size(size);
  return {begin, begin + sizeof(store::RecordHeader) + size};
}

Result<Journal> open(const Scene& scene, bool after_power_loss) {
  return Journal::open(scene.medium, "j", [](const store::Record&) -> Status { return {}; },
                       {.after_power_loss = after_power_loss});
}

}  // namespace

TEST_CASE("a file of the medium that gets a part only of what it asks for keeps its size",
          "[store]") {
  const Scene scene;
  auto file = *scene.medium->create("f");
  constexpr std::uint64_t mib = 1U << 20U;
  REQUIRE(file->allocate(mib));
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit few = before;
  few.rlim_cur = 3 * mib + mib / 2;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &few) == 0);
  const Status refused = file->allocate(8 * mib);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == EFBIG);
  CHECK(std::filesystem::file_size(scene.path + "/f") == mib);
  CHECK(file->allocate(8 * mib + 4096));
  CHECK(std::filesystem::file_size(scene.path + "/f") == 8 * mib + 4096);
}

TEST_CASE("a sync of a file of the medium is one of the file itself", "[store]") {
  const Scene scene;
  auto file = *scene.medium->create("f");
  const DurableCalls calls;
  REQUIRE(file->sync());
  CHECK(happens(calls.so_far(), test::syncs(scene.path + "/f")));
}

TEST_CASE("a sync of the medium's names is one of the directory itself", "[store]") {
  const Scene scene;
  const bool path_only = GENERATE(false, true);
  const UniqueFd fd(
      ::open(scene.path.c_str(), (path_only ? O_PATH : O_RDONLY) | O_DIRECTORY | O_CLOEXEC));
  const DurableCalls calls;
  REQUIRE(store::directory_medium(fd.get())->sync_names());
  CHECK(happens(calls.so_far(), test::syncs(scene.path)));
}

TEST_CASE("what a sync of the medium could not do is an error", "[store]") {
  const Scene scene;
  const test::PersistentMemory memory(true);
  auto file = *scene.medium->create("f");
  REQUIRE(file->allocate(4096));
  REQUIRE(file->map(0, 4096));
  DurableCalls calls;
  calls.fail_syncs(EIO);
  const Status content = file->sync(), names = scene.medium->sync_names(),
               longer = file->allocate(8192);
  REQUIRE_FALSE(content);
  CHECK(content.error().code == EIO);
  REQUIRE_FALSE(names);
  CHECK(names.error().code == EIO);
  REQUIRE_FALSE(longer);
  CHECK(longer.error().code == EIO);
}

TEST_CASE("a record on persistent memory is durable when append returns", "[store]") {
  const Scene scene;
  const test::PersistentMemory memory(true);
  auto journal = Journal::create(scene.medium, "j");
  REQUIRE(journal);
  for (const std::size_t size : {1, 7, 64, 4096, 100'000}) {
    const DurableCalls calls;
    const Extent record = append(*journal, size);
    INFO("payload of " << size << " bytes\n" << text_of(calls.so_far()));
    CHECK(exposed(calls.so_far(), scene.journal, record.begin, record.end) == 0);
  }
}

TEST_CASE(
    "on persistent memory a record in a new chunk follows the chunk, and is durable with the mark "
    "that leads to it",
    "[store]") {
  const Scene scene;
  const test::PersistentMemory memory(true);
  auto journal = Journal::create(scene.medium, "j");
  REQUIRE(journal);
  constexpr std::size_t size = 250'000;
  while (journal->size() + Journal::record_size(size) <= store::journal_chunk) {
    append(*journal, size);
  }
  const std::uint64_t mark = journal->size();
  const DurableCalls calls;
  const Extent record = append(*journal, size);
  REQUIRE(record.begin == store::journal_chunk);
  INFO(text_of(calls.so_far()));
  CHECK(exposed(calls.so_far(), scene.journal, mark, mark + sizeof(std::uint32_t)) == 0);
  CHECK(exposed(calls.so_far(), scene.journal, record.begin, record.end) == 0);
  // The file is as long as it must be before anything lies there.
  CHECK(disorder(calls.so_far(), {test::syncs(scene.journal), test::stores_to(scene.journal)}) ==
        "");
}

TEST_CASE("a record in the page cache is durable when the journal's sync returns, and not before",
          "[store]") {
  const Scene scene;
  const test::PersistentMemory memory(false);
  auto journal = Journal::create(scene.medium, "j");
  REQUIRE(journal);
  const DurableCalls calls;
  const Extent record = append(*journal, 100);
  const bool dax = exposed(calls.so_far(), scene.journal, record.begin, record.end) == 0;
  if (dax) {
    SKIP(scene.path << " is on persistent memory");
  }
  REQUIRE(journal->sync());
  CHECK(exposed(calls.so_far(), scene.journal, record.begin, record.end) == 0);
}

TEST_CASE("a journal is durable before it gets its name, and the name before the journal is used",
          "[store]") {
  const bool persistent = GENERATE(false, true), snapshot = GENERATE(false, true);
  const Scene scene;
  const test::PersistentMemory memory(persistent);
  if (snapshot) {
    REQUIRE(Journal::create(scene.medium, "j"));
  }
  auto journal = snapshot ? open(scene, false) : fail(ENOENT);
  const DurableCalls noted;
  if (snapshot) {
    REQUIRE(journal->replace([](Journal& next) -> Status {
      for (int i = 0; i < 20; ++i) {
        append(next, 64);
      }
      return {};
    }));
  } else {
    journal = Journal::create(scene.medium, "j");
  }
  REQUIRE(journal);
  const auto calls = noted.so_far();
  INFO((persistent ? "persistent memory\n" : "page cache\n") << text_of(calls));
  const auto switched = test::renames(scene.next, scene.journal);
  CHECK(disorder(calls, {test::stores_to(scene.next), test::syncs(scene.next), switched,
                         test::syncs(scene.path)}) == "");
  CHECK(exposed(up_to(calls, switched), scene.next, 0, journal->size()) == 0);
  CHECK_FALSE(happens(calls, test::stores_to(scene.journal)));
}

TEST_CASE(
    "what is cleared behind the tail is durable before anything is appended, and so is the "
    "journal's name",
    "[store]") {
  const Scene scene;
  const test::PersistentMemory memory(GENERATE(false, true));
  std::uint64_t tail = 0;
  {
    auto journal = Journal::create(scene.medium, "j");
    REQUIRE(journal);
    append(*journal, 100);
    tail = journal->size();
  }
  constexpr std::uint64_t torn = 3000;
  std::fstream(scene.journal, std::ios::in | std::ios::out | std::ios::binary)
          .seekp(static_cast<std::streamoff>(tail))
      << std::string(torn, '!');
  const DurableCalls calls;
  REQUIRE(open(scene, true));
  INFO(text_of(calls.so_far()));
  CHECK(exposed(calls.so_far(), scene.journal, tail, tail + torn) == 0);
  CHECK(left_behind(calls.so_far(), test::stores_to(scene.journal), test::syncs(scene.journal)) ==
        "");
  CHECK(happens(calls.so_far(), test::syncs(scene.path)));
}

// The checks above can fail.
TEST_CASE(
    "what is stored and not flushed, flushed and not drained, or synced before is not taken for "
    "durable",
    "[store]") {
  const Scene scene;
  const test::PersistentMemory memory(true);
  auto file = *scene.medium->create("f");
  REQUIRE(file->allocate(4096));
  auto* window = file->map(0, 4096).value();
  const auto bytes = payload(100);
  const auto left = [&](const std::function<void()>& act) {
    const DurableCalls calls;
    act();
    return exposed(calls.so_far(), scene.path + "/f", 0, bytes.size());
  };
  const auto store = [&] {
    file->store(window, bytes);
  };
  const auto drain = [&] {
    file->drain();
  };
  const auto sync = [&] {
    REQUIRE(file->sync());
  };
  CHECK(left([] {}) == 100);
  CHECK(left(store) == 100);
  CHECK(left([&] { drain(), store(); }) == 100);
  CHECK(left([&] { sync(), store(); }) == 100);
  CHECK(left([&] { std::memcpy(window, bytes.data(), 100), drain(); }) == 100);
  CHECK(left([&] { file->store(window, std::span(bytes).first(60)), drain(); }) == 40);
  CHECK(left([&] { store(), drain(), file->store(window + 8, std::span(bytes).first(8)); }) == 8);
  CHECK(left([&] { store(), drain(); }) == 0);
  CHECK(left([&] { store(), sync(); }) == 0);
}

}  // namespace efs::medium_test
