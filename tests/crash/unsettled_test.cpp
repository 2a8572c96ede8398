// SPDX-License-Identifier: BSD-3-Clause
// Clean files that are not settled, and failing syncs: after power loss, everything promised is
// there.
#include <fcntl.h>
#include <linux/fs.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "crash/enumeration.hpp"
#include "fs/filesystem.hpp"
#include "fs/staging.hpp"
#include "support/failing_backend.hpp"
#include "support/open_handles.hpp"
#include "support/sim_backend.hpp"
#include "support/sim_medium.hpp"
#include "support/staged_file.hpp"

namespace efs::unsettled_test {

using fs::Filesystem;

namespace {

const std::string before = "what was there before";
const std::string input = "what was staged in";

std::unique_ptr<Filesystem> open_on(Backend& backend, test::SimWorld& world, bool after_power_loss,
                                    bool takeover = false, Filesystem::Rules rules = {}) {
  auto opened = Filesystem::open(backend, {.medium = std::make_shared<test::SimMedium>(world),
                                           .after_power_loss = after_power_loss,
                                           .takeover = takeover,
                                           .rules = rules});
  return opened ? std::move(*opened) : nullptr;
}

// Returns 0 if there is none.
std::uint64_t inode_at(Filesystem& filesystem, const std::string& path) {
  std::uint64_t at = fs::root_ino;
  for (std::size_t begin = 0; begin < path.size();) {
    const auto slash = std::min(path.find('/', begin), path.size());
    const auto entry = filesystem.lookup(at, path.substr(begin, slash - begin));
    if (!entry) {
      return 0;
    }
    (void)filesystem.forget(entry->ino, 1);
    at = entry->ino;
    begin = slash + 1;
  }
  return at;
}

// Returns "" if there is none.
std::string content_at(Backend& backend, Filesystem& filesystem, const std::string& path) {
  const auto ino = inode_at(filesystem, path);
  auto container = ino == 0 ? Result<std::shared_ptr<Container>>(fail(ENOENT)) : backend.open(ino);
  std::string text(200, '\0');
  const auto read = container ? (*container)->read(std::as_writable_bytes(std::span(text)), 0)
                              : std::unexpected(container.error());
  return text.substr(0, read.value_or(0));
}

void stage_in(Backend& backend, Filesystem& filesystem, const std::string& path) {
  fs::Staging staging(filesystem);
  const auto ino = test::begin_file(staging);
  (void)(*backend.open(*ino))->write(std::as_bytes(std::span(input)), 0);
  (void)test::publish_file(staging, backend,
                           {.ino = *ino,
                            .path = path,
                            .attributes = {.mode = 0644},
                            .origin = {.device = 1, .inode = *ino, .size = input.size()}});
}

void write_to(Filesystem& filesystem, const std::string& path, const std::string& text) {
  const auto ino = inode_at(filesystem, path);
  if (!filesystem.open({}, ino, O_WRONLY)) {
    return;
  }
  (void)filesystem.write({}, ino, std::as_bytes(std::span(text)), 0);
  test::release(filesystem, ino, O_WRONLY);
}

// A way to rename a staged file, and the names promised afterwards.
struct Move {
  std::string name;
  std::function<Status(Filesystem&)> run;
  std::map<std::string, std::string> promised;
};

std::vector<Move> moves() {
  const auto rename = [](const std::string& from, const std::string& to, unsigned flags = 0) {
    return [=](Filesystem& filesystem) {
      return filesystem.rename({}, {fs::root_ino, from}, {fs::root_ino, to}, flags);
    };
  };
  return {
      {"rename over a file", rename("a", "y"), {{"y", input}}},
      {"rename to a new name", rename("a", "b"), {{"b", input}, {"y", before}}},
      {"exchange", rename("y", "a", RENAME_EXCHANGE), {{"a", before}, {"y", input}}},
      {"rename of its directory", rename("d", "e"), {{"e/a", input}, {"y", before}}},
      {"link",
       [](Filesystem& filesystem) -> Status {
         auto linked = filesystem.link({}, inode_at(filesystem, "a"), fs::root_ino, "b");
         if (!linked) {
           return std::unexpected(linked.error());
         }
         (void)filesystem.forget(linked->ino, 1);
         return {};
       },
       {{"b", input}, {"y", before}}},
      {"fsync alone",
       [](Filesystem& filesystem) { return filesystem.fsync(inode_at(filesystem, "a"), false); },
       {{"a", input}, {"y", before}}},
      {"fdatasync alone",
       [](Filesystem& filesystem) { return filesystem.fsync(inode_at(filesystem, "a"), true); },
       {{"a", input}, {"y", before}}}};
}

// Runs one life that ends before event `n`, or in order. Returns true if the life was over before
// that event.
bool one_life(const Move& move, Durability durability, std::uint64_t seed, std::uint64_t n) {
  test::SimWorld world(durability, seed);
  test::SimBackend backend(world);
  bool y_is_old = false, moved = false;
  {
    std::unique_ptr<Filesystem> filesystem = open_on(backend, world, false);
    REQUIRE(filesystem);
    try {
      (void)filesystem->forget(filesystem->make_node({}, fs::root_ino, "y", S_IFREG | 0600, 0)->ino,
                               1);
      write_to(*filesystem, "y", before);
      REQUIRE(filesystem->fsync(inode_at(*filesystem, "y"), false));
      REQUIRE(fs::Staging(*filesystem).make_directory("d", {.mode = 0750}));
      stage_in(backend, *filesystem, "a");
      stage_in(backend, *filesystem, "d/a");
      y_is_old = true;
      world.end_before(n == 0 ? 0 : world.events() + n);
      const Status done = move.run(*filesystem);
      const Status synced = filesystem->fsync_metadata();
      moved = done && synced;
      REQUIRE(moved);
    } catch (const test::PowerLoss&) {
    }
  }
  world.crash();
  auto filesystem = open_on(backend, world, true);
  REQUIRE(filesystem);
  if (moved) {
    for (const auto& [path, text] : move.promised) {
      CHECK(content_at(backend, *filesystem, path) == text);
    }
  } else if (const auto y = content_at(backend, *filesystem, "y"); y_is_old && y != before) {
    CHECK(y == input);
  }
  return moved;
}

}  // namespace

TEST_CASE(
    "a clean file that is not settled keeps its new name over power loss, once that is synced",
    "[crash]") {
  for (const auto durability : {Durability::page, Durability::cache_line}) {
    for (const auto& move : moves()) {
      for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        for (std::uint64_t n = 1;; ++n) {
          INFO(move.name << ", seed " << seed << ", end before event " << n
                         << (durability == Durability::page ? ", page cache"
                                                            : ", persistent memory"));
          if (one_life(move, durability, seed, n)) {
            break;
          }
        }
      }
    }
  }
}

namespace {

// Returns the content after power loss of a file that was written and unloaded during a sync of all
// files. `again`: after one more sync.
std::string left_of_changed(bool again, Filesystem::Rules rules, const std::string& changed) {
  test::SimWorld world(Durability::page, 1);
  test::SimBackend real(world);
  test::FailingBackend backend(real);
  auto filesystem = open_on(backend, world, false, false, rules);
  REQUIRE(filesystem);
  stage_in(backend, *filesystem, "a");
  backend.after_sync_all([&] {
    write_to(*filesystem, "a", changed);
    REQUIRE(fs::Staging(*filesystem).mark_saved("a", {.device = 2, .inode = 7}, false));
  });
  REQUIRE(filesystem->settle());
  backend.after_sync_all({});
  if (again) {
    REQUIRE(filesystem->settle());
  }
  REQUIRE(filesystem->fsync_metadata());
  filesystem.reset();
  world.crash();
  filesystem = open_on(backend, world, true);
  REQUIRE(filesystem);
  return content_at(backend, *filesystem, "a");
}

}  // namespace

TEST_CASE("what is written and unloaded while all is synced is not booked as being on the medium",
          "[crash]") {
  const std::string changed = "written while the medium was at work";
  CHECK(left_of_changed(false, {}, changed).empty());
  CHECK(left_of_changed(true, {}, changed) == changed);
  // Without the check for changes during the sync, R1 would be broken.
  const auto left = left_of_changed(false, {.book_unchanged = false}, changed);
  CHECK((!left.empty() && left != changed));
}

TEST_CASE("what a failed sync was about is never booked as being on the medium", "[crash]") {
  const bool secures = GENERATE(false, true);
  for (const bool restarted : {false, true}) {
    test::SimWorld world(Durability::page, 1);
    test::SimBackend backend(world);
    auto filesystem = open_on(backend, world, false);
    REQUIRE(filesystem);
    stage_in(backend, *filesystem, "a");
    // for this many results there is one sync of all files, which covers clean files too
    const std::vector many(64, inode_at(*filesystem, "a"));
    world.fail_call(1);
    const Status synced = secures ? filesystem->secure(many) : filesystem->settle();
    CHECK_FALSE(synced);
    CHECK(world.failed_call() == "all data sync");
    world.fail_call(0);
    if (restarted) {
      filesystem.reset();
    }
    if (restarted) {
      filesystem = open_on(backend, world, false);
    }
    REQUIRE(filesystem);
    CHECK(filesystem->settle());
    CHECK(content_at(backend, *filesystem, "a") == input);
    stage_in(backend, *filesystem, "later");
    REQUIRE(filesystem->settle());
    filesystem.reset();
    world.crash();
    filesystem = open_on(backend, world, true);
    REQUIRE(filesystem);
    CHECK(inode_at(*filesystem, "a") == 0);
    CHECK(content_at(backend, *filesystem, "later") == input);
  }
}

namespace {

// A file system with a directory "kept"; the sync of its record fails.
void lose_a_record(test::SimBackend& backend, test::SimWorld& world) {
  auto filesystem = open_on(backend, world, false);
  REQUIRE(filesystem);
  REQUIRE(filesystem->make_node({}, fs::root_ino, "kept", S_IFDIR | 0700, 0));
  world.fail_call(1);
  CHECK_FALSE(filesystem->fsync_metadata());
  CHECK(world.failed_call() == "journal sync");
  world.fail_call(0);
  CHECK(filesystem->failed());
  // Like a kernel: after a failed write it calls the data clean, and the next sync succeeds.
  for (auto& [name, file] : world.files) {
    file->dirty.clear();
  }
}

}  // namespace

TEST_CASE("after a failed sync of the journal the next one to open it writes all anew", "[crash]") {
  for (const bool takeover : {false, true}) {
    test::SimWorld world(Durability::page, 1);
    test::SimBackend backend(world);
    lose_a_record(backend, world);
    {
      auto filesystem = open_on(backend, world, false, takeover);
      REQUIRE(filesystem);
      CHECK_FALSE(filesystem->failed());
      CHECK(inode_at(*filesystem, "kept") != 0);
      REQUIRE(filesystem->make_node({}, fs::root_ino, "new", S_IFDIR | 0700, 0));
      REQUIRE(filesystem->fsync_metadata());
    }
    world.crash();
    auto filesystem = open_on(backend, world, true);
    REQUIRE(filesystem);
    CHECK(inode_at(*filesystem, "kept") != 0);
    CHECK(inode_at(*filesystem, "new") != 0);
  }
}

TEST_CASE("a journal of format 3 is whole after any call fails that makes it one of today's",
          "[crash]") {
  for (const int code : {EIO, ENOSPC}) {
    unsigned refused = 0;
    bool complete = false;
    for (std::uint64_t n = 1; !complete; ++n) {
      INFO("call " << n << ", error " << code);
      test::SimWorld world(Durability::page, n);
      test::SimBackend backend(world);
      {
        const auto filesystem = open_on(backend, world, false);
        REQUIRE(filesystem->make_node({}, fs::root_ino, "kept", S_IFDIR | 0700, 0));
        REQUIRE(filesystem->fsync_metadata());
      }
      test::make_format_3(world);
      world.fail_call(n, code);
      refused += open_on(backend, world, n % 2 == 0) == nullptr ? 1 : 0;
      complete = world.failed_call().empty();
      world.fail_call(0);
      world.crash();
      const auto filesystem = open_on(backend, world, true);
      REQUIRE(filesystem);
      CHECK(inode_at(*filesystem, "kept") != 0);
      REQUIRE(filesystem->make_node({}, fs::root_ino, "new", S_IFDIR | 0700, 0));
      CHECK(test::check_journal(world).empty());
    }
    CHECK(refused > 5);
  }
}

namespace {

// Opens the store while the n-th call fails. Returns the text if the start cannot convert the
// journal; "" if the failure has another effect.
std::string refusal_of_conversion(Backend& backend, test::SimWorld& world, std::uint64_t n,
                                  int code) {
  world.fail_call(n, code);
  const auto opened = Filesystem::open(
      backend, {.medium = std::make_shared<test::SimMedium>(world), .after_power_loss = false});
  world.fail_call(0);
  const bool is_refused = !opened && opened.error().code == code &&
                          opened.error().what.contains("must be written anew");
  return is_refused ? opened.error().what : "";
}

}  // namespace

TEST_CASE("a start without room to write a journal of format 3 anew says what it needs",
          "[crash]") {
  unsigned told = 0;
  for (std::uint64_t n = 1; n < 40; ++n) {
    test::SimWorld world(Durability::page, n);
    test::SimBackend backend(world);
    {
      const auto filesystem = open_on(backend, world, false);
      REQUIRE(filesystem->make_node({}, fs::root_ino, "kept", S_IFDIR | 0700, 0));
      REQUIRE(filesystem->fsync_metadata());
    }
    test::make_format_3(world);
    const std::string text = refusal_of_conversion(backend, world, n, ENOSPC);
    told += text.empty() ? 0 : 1;
    CHECK((text.empty() ||
           text == "the journal has format 3 and must be written anew, which needs 4 MiB: free "
                   "space or raise the capacity and start again, or export with efs salvage"));
  }
  CHECK(told > 0);
}

TEST_CASE("the room that a start asks for is that of the journal that it writes", "[crash]") {
  for (const int names : {1, 5500}) {
    std::string told;
    for (std::uint64_t n = 1; told.empty(); ++n) {
      REQUIRE(n < 100);
      test::SimWorld world(Durability::page, n);
      test::SimBackend backend(world);
      {
        const auto filesystem = open_on(backend, world, false);
        const std::string stem(200, 'n');
        for (int i = 0; i < names; ++i) {
          REQUIRE(filesystem->make_symlink({}, fs::root_ino, stem + std::to_string(i), "t"));
        }
        REQUIRE(filesystem->fsync_metadata());
      }
      test::make_format_3(world);
      told = refusal_of_conversion(backend, world, n, ENOSPC);
      if (told.empty()) {
        continue;
      }
      REQUIRE(open_on(backend, world, false));
      INFO(names << " names: " << told);
      const auto written = world.files.at("journal")->size >> 20U;
      CHECK(told.contains("needs " + std::to_string(written) + " MiB:"));
    }
  }
}

TEST_CASE("a start that cannot convert a journal names the shortage and the way out", "[crash]") {
  const std::map<int, std::string> expected{
      {EDQUOT, "4 MiB, and the quota is used up: free space or raise the quota and"},
      {EMFILE, "an open file, and this process may open no more: raise RLIMIT_NOFILE and"},
      {ENFILE, "an open file, and the machine has no more: raise fs.file-max and"},
      {ENOMEM, "memory: free memory and"}};
  for (const auto& [code, text] : expected) {
    std::string told;
    for (std::uint64_t n = 1; told.empty(); ++n) {
      REQUIRE(n < 100);
      test::SimWorld world(Durability::page, n);
      test::SimBackend backend(world);
      REQUIRE(open_on(backend, world, false)->fsync_metadata());
      test::make_format_3(world);
      told = refusal_of_conversion(backend, world, n, code);
    }
    CHECK(told == "the journal has format 3 and must be written anew, which needs " + text +
                      " start again, or export with efs salvage");
  }
}

TEST_CASE("a successor that cannot write the journal anew changes nothing more", "[crash]") {
  for (const bool takeover : {true, false}) {
    test::SimWorld world(Durability::page, 1);
    test::SimBackend backend(world);
    lose_a_record(backend, world);
    std::unique_ptr<Filesystem> filesystem;
    for (std::uint64_t n = 1; world.failed_call() != "journal create"; ++n) {
      filesystem.reset();
      world.fail_call(n);
      filesystem = open_on(backend, world, false, takeover);
    }
    world.fail_call(0);
    REQUIRE((filesystem != nullptr) == takeover);
    if (!takeover) {
      continue;
    }
    CHECK(filesystem->failed());
    CHECK(inode_at(*filesystem, "kept") != 0);
    CHECK(filesystem->make_node({}, fs::root_ino, "new", S_IFDIR | 0700, 0).error().code == EROFS);
    CHECK_FALSE(filesystem->fsync_metadata());
    filesystem->tend();
  }
}

}  // namespace efs::unsettled_test
