// SPDX-License-Identifier: BSD-3-Clause
// Damaged journals are rejected with a text, or recovered up to the damage. efs never crashes and
// never recovers a state that did not exist.
#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "backends/fsdax.hpp"
#include "fs/filesystem.hpp"
#include "fs/namespace.hpp"
#include "fs/staging.hpp"
#include "image/check.hpp"
#include "store/format.hpp"
#include "support/journal_file.hpp"
#include "support/namespace_shape.hpp"
#include "support/temp.hpp"

using namespace efs;
using fs::Filesystem;
using test::check_shape;

namespace {

struct Store {
  test::TempDirectory directory{"/dev/shm"};
  std::string meta = directory.path() + "/meta", data = directory.path() + "/data";

  Store() {
    ::mkdir(meta.c_str(), 0700);
    ::mkdir(data.c_str(), 0700);
  }

  std::string journal() const { return meta + "/journal"; }
};

std::unique_ptr<Backend> backend_of(const Store& store, bool read_only = false) {
  FsdaxOptions options;
  options.directory.reset(::open(store.data.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  options.read_only = read_only;
  return std::move(*make_fsdax(std::move(options)));
}

std::string names_of(Filesystem& filesystem) {
  auto items = fs::Staging(filesystem).walk();
  REQUIRE(items);
  std::string text;
  for (const auto& item : *items) {
    text += item.path + " " + std::to_string(item.ino) + " " +
            std::to_string(item.attributes.st_nlink) + "\n";
  }
  return text;
}

std::string container_text(std::uint64_t ino) {
  return "content of " + std::to_string(ino) + "\n";
}

// A store with some history; every state that its names were in.
std::set<std::string> write_history(const Store& store,
                                    std::uint64_t smallest_compaction = 8U << 20U) {
  auto backend = backend_of(store);
  UniqueFd meta(::open(store.meta.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  auto filesystem = std::move(*Filesystem::open(
      *backend, {.metadata_directory = meta.get(), .smallest_compaction = smallest_compaction}));
  std::set<std::string> states{names_of(*filesystem)};
  const auto make = [&](std::uint64_t parent, const std::string& name, mode_t mode) {
    auto made = filesystem->make_node({}, parent, name, mode, 0);
    REQUIRE(made);
    const std::string content = container_text(made->ino);
    if (S_ISREG(mode)) {
      REQUIRE(filesystem->write({}, made->ino, std::as_bytes(std::span(content)), 0));
    }
    (void)filesystem->forget(made->ino, 1);
    states.insert(names_of(*filesystem));
    return made->ino;
  };
  const auto directory = make(fs::root_ino, "d", S_IFDIR | 0755);
  for (int i = 0; i < 40; ++i) {
    const auto ino =
        make(i % 2 == 0 ? directory : fs::root_ino, "file-" + std::to_string(i), S_IFREG | 0644);
    REQUIRE(filesystem->setxattr({}, ino, "user.x",
                                 std::string(static_cast<std::size_t>(i) * 10, 'x'), 0));
    if (i % 5 == 4) {
      REQUIRE(filesystem->unlink({}, directory, "file-" + std::to_string(i - i % 2)));
    }
    states.insert(names_of(*filesystem));
    if (i % 7 == 6) {
      (void)filesystem->rename({},
                               {i % 2 == 0 ? directory : fs::root_ino, "file-" + std::to_string(i)},
                               {fs::root_ino, "renamed"}, 0);
    }
    states.insert(names_of(*filesystem));
  }
  return states;
}

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;  // by blocks: it is mebibytes, and often
  text << in.rdbuf();
  return std::move(text).str();
}

// Where the records end: no use in damaging zeros.
std::size_t used_bytes(const std::string& journal) {
  // a block at a time: it is mebibytes of them, and often
  static const std::string zeros(4096, '\0');
  std::size_t end = journal.size();
  while (end >= zeros.size() &&
         std::memcmp(journal.data() + end - zeros.size(), zeros.data(), zeros.size()) == 0) {
    end -= zeros.size();
  }
  const auto last = end == 0 ? std::string::npos : journal.find_last_not_of('\0', end - 1);
  return last == std::string::npos ? 0 : last + 1;
}

std::string damage(std::string journal, std::mt19937_64& random, std::string& what) {
  const auto used = used_bytes(journal);
  // of two, when the first took nearly all
  if (used < 128) {
    return what += " and nothing more", journal;
  }
  // one in eight meets the header
  const auto at = [&] {
    return random() % (random() % 8 == 0 ? 64 : used);
  };
  switch (random() % 7) {
    case 0: {
      const auto where = at();
      journal[where] = static_cast<char>(journal[where] ^ (1 << random() % 8));
      return what = "bit flipped at " + std::to_string(where), journal;
    }
    case 1: {
      const auto size = random() % (used + 100);
      return what = "cut short to " + std::to_string(size), journal.substr(0, size);
    }
    case 2: {
      const auto from = at(), to = at(),
                 length =
                     std::min<std::size_t>(random() % 500 + 1, journal.size() - std::max(from, to));
      journal.replace(to, length, journal.substr(from, length));
      return what = "duplicated " + std::to_string(length) + " from " + std::to_string(from) +
                    " to " + std::to_string(to),
             journal;
    }
    case 3: {
      const auto one = at() / 64 * 64, two = at() / 64 * 64;
      for (std::size_t i = 0; std::max(one, two) + i < journal.size() && i < 64; ++i) {
        std::swap(journal[one + i], journal[two + i]);
      }
      return what = "lines swapped at " + std::to_string(one) + " and " + std::to_string(two),
             journal;
    }
    case 4: {
      const auto where = at(),
                 length = std::min<std::size_t>(random() % 3000, journal.size() - where);
      journal.replace(where, length, std::string(length, '\0'));
      return what = std::to_string(length) + " zeros at " + std::to_string(where), journal;
    }
    case 5: {
      const auto where = at();
      for (std::size_t i = where; i < std::min(where + 64, journal.size()); ++i) {
        journal[i] = static_cast<char>(random());
      }
      return what = "noise at " + std::to_string(where), journal;
    }
    default: return what = "two of them", damage(damage(journal, random, what), random, what);
  }
}

struct Met {
  int refused = 0, recovered = 0;

  // `rounds`, and some more where bad luck has had `enough` or fewer refused so far: of a journal
  // after power loss it is one in ten.
  bool goes_on(int round, int rounds, int enough) const {
    return round < rounds || (refused <= enough && round < 4 * rounds);
  }
};

// Damages the store's journal, `whole`, in many ways: each is refused with a text, or recovered for
// `found` to look at. A look changes nothing.
Met damage_each(const Store& store, const std::string& whole, std::mt19937_64& random, int rounds,
                int enough, const std::function<void(Filesystem&)>& found) {
  Met met;
  for (int i = 0; met.goes_on(i, rounds, enough); ++i) {
    std::string what;
    const std::string bad = damage(whole, random, what);
    INFO("round " << i << ": " << what);
    std::ofstream(store.journal(), std::ios::binary | std::ios::trunc) << bad;
    UniqueFd meta(::open(store.meta.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    auto backend = backend_of(store, true);
    auto looked = Filesystem::open(*backend, {.metadata_directory = meta.get(), .read_only = true});
    const auto checked = image::check_image(store.directory.path());
    REQUIRE(checked);
    if (looked) {
      ++met.recovered;
      found(**looked);
      CHECK(read_all(store.journal()) == bad);
    } else {
      ++met.refused;
      CHECK_FALSE(describe(looked.error()).empty());
      CHECK(checked->worst() == image::Severity::damage);
    }
  }
  return met;
}

}  // namespace

TEST_CASE("a damaged journal is refused, or recovered up to the damage", "[image][replay]") {
  const auto seed = test::seed();
  INFO("EFS_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  const Store store;
  const auto states = write_history(store);
  const std::string whole = read_all(store.journal());
  const Met met = damage_each(store, whole, random, 150, 5, [&](Filesystem& filesystem) {
    // A read-only open drops files without a container. The names must be those of an earlier
    // state.
    const bool known = states.contains(names_of(filesystem));
    CHECK((known || !filesystem.recovery().emptied.empty()));
    CHECK_FALSE(filesystem.make_node({}, fs::root_ino, "new", S_IFREG | 0644, 0));
  });
  CHECK(met.refused > 5);
  CHECK(met.recovered > 50);
  // The recovery after power loss is final, and work can continue. Without a power loss, valid
  // records after an invalid one are rejected.
  std::string flipped = whole;
  flipped[used_bytes(whole) / 2] = static_cast<char>(flipped[used_bytes(whole) / 2] ^ 1);
  std::ofstream(store.journal(), std::ios::binary | std::ios::trunc) << flipped;
  UniqueFd meta(::open(store.meta.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int life = 0; life < 3; ++life) {
    auto backend = backend_of(store);
    if (life == 0) {
      const auto refusal = Filesystem::open(*backend, {.metadata_directory = meta.get()});
      REQUIRE_FALSE(refusal);
      CHECK(refusal.error().code == EUCLEAN);
      std::ofstream(store.journal(), std::ios::binary | std::ios::trunc) << flipped;
    }
    auto filesystem = Filesystem::open(
        *backend, {.metadata_directory = meta.get(), .after_power_loss = life == 0});
    REQUIRE(filesystem);
    CHECK((*filesystem)->recovery().journal.torn == (life == 0));
    CHECK((*filesystem)
              ->make_node({}, fs::root_ino, "life-" + std::to_string(life), S_IFREG | 0644, 0));
    for (int before = 0; before <= life; ++before) {
      CHECK((*filesystem)->lookup(fs::root_ino, "life-" + std::to_string(before)));
    }
  }
}

// A snapshot has no history: if it ends early, its names are a subset of the original ones.
TEST_CASE("a damaged snapshot is refused, or recovered up to the damage", "[image][replay]") {
  const auto seed = test::seed();
  INFO("EFS_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  const Store store;
  std::set<std::string> lines;
  for (const auto& state : write_history(store, 12'000)) {
    std::istringstream text(state);
    for (std::string path, ino, links; text >> path >> ino >> links;) {
      lines.insert(path + " " + ino);
    }
  }
  const std::string whole = read_all(store.journal());
  REQUIRE(test::header_of(whole).first_sequence > 1);
  const Met met = damage_each(store, whole, random, 50, 0, [&](Filesystem& filesystem) {
    const auto items = fs::Staging(filesystem).walk();
    REQUIRE(items);
    for (const auto& item : *items) {
      CHECK(lines.contains(item.path + " " + std::to_string(item.ino)));
    }
  });
  CHECK(met.refused > 0);
  CHECK(met.recovered > 15);
}

namespace {

// The numbers of the files that a file system names, and the bytes of each.
std::map<std::uint64_t, std::string> contents(Filesystem& filesystem) {
  std::map<std::uint64_t, std::string> all;
  const auto items = fs::Staging(filesystem).walk();
  REQUIRE(items);
  for (const auto& item : *items) {
    if (!S_ISREG(item.attributes.st_mode)) {
      continue;
    }
    std::array<std::byte, 100> bytes{};
    const auto read = filesystem.read(item.ino, bytes, 0);
    REQUIRE(read);
    all[item.ino] = {reinterpret_cast<const char*>(bytes.data()), *read};
  }
  return all;
}

std::string container_of(const Store& store, std::uint64_t ino) {
  char name[32];
  std::snprintf(name, sizeof name, "/%02llx/%016llx", static_cast<unsigned long long>(ino % 256),
                static_cast<unsigned long long>(ino));
  return store.data + name;
}

std::set<std::uint64_t> containers_in(const Store& store) {
  std::set<std::uint64_t> all;
  REQUIRE(backend_of(store, true)->for_each([&](std::uint64_t id) { all.insert(id); }));
  return all;
}

// Damages the journal at random and continues with it. If it is rejected, nothing changes. If it is
// recovered, named files have their content, and except for possible effects of power loss all
// files of the undamaged journal exist.
void go_on_with_damaged(const Store& store, const std::set<std::string>& states,
                        bool after_power_loss, int rounds) {
  const auto seed = test::seed();
  INFO("EFS_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  const std::string whole = read_all(store.journal());
  UniqueFd meta(::open(store.meta.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  std::map<std::uint64_t, std::string> all;
  {
    auto backend = backend_of(store, true);
    all = contents(
        **Filesystem::open(*backend, {.metadata_directory = meta.get(), .read_only = true}));
  }
  REQUIRE(all.size() > 20);
  for (const auto& [ino, content] : all) {
    REQUIRE(content == container_text(ino));
  }
  const auto there = containers_in(store);
  Met met;
  const int enough = after_power_loss ? rounds / 20 : rounds / 2;
  for (int i = 0; met.goes_on(i, rounds, enough); ++i) {
    std::string what;
    const std::string bad = damage(whole, random, what);
    INFO("round " << i << ": " << what);
    std::ofstream(store.journal(), std::ios::binary | std::ios::trunc) << bad;
    {
      auto backend = backend_of(store);
      auto opened = Filesystem::open(*backend, {.metadata_directory = meta.get(),
                                                .smallest_compaction = 1U << 30U,
                                                .after_power_loss = after_power_loss});
      if (!opened) {
        ++met.refused;
        CHECK_FALSE(describe(opened.error()).empty());
        if (!after_power_loss) {
          CHECK(read_all(store.journal()) == bad);
        }
        CHECK(containers_in(store) == there);
        continue;
      }
      ++met.recovered;
      if (!states.empty()) {
        CHECK((states.contains(names_of(**opened)) || !(*opened)->recovery().emptied.empty()));
      }
      for (const auto& [ino, content] : contents(**opened)) {
        CHECK((content == container_text(ino) || (after_power_loss && content.empty())));
      }
      if (!after_power_loss) {
        CHECK(contents(**opened) == all);
      }
    }
    const auto now = containers_in(store);
    for (const auto& [ino, content] : all) {
      if (!after_power_loss) {
        CHECK(now.contains(ino));
      }
      // for the next round
      std::ofstream(container_of(store, ino), std::ios::binary | std::ios::trunc) << content;
    }
    for (const auto ino : now) {
      if (!all.contains(ino)) {
        std::filesystem::remove(container_of(store, ino));
      }
    }
    for (const auto ino : there) {
      if (!all.contains(ino)) {
        std::ofstream(container_of(store, ino), std::ios::binary | std::ios::app);
      }
    }
  }
  CHECK(met.refused > enough);
  if (after_power_loss) {
    CHECK(met.recovered > rounds / 10);  // of a snapshot most is refused
  }
}

}  // namespace

TEST_CASE("a damaged journal that is gone on with is refused, or no file that it names is lost",
          "[image][replay]") {
  for (const bool after_power_loss : {false, true}) {
    const Store store;
    const auto states = write_history(store);
    go_on_with_damaged(store, states, after_power_loss, 150);
  }
}

TEST_CASE("a damaged snapshot that is gone on with is refused, or no file that it names is lost",
          "[image][replay]") {
  for (const bool after_power_loss : {false, true}) {
    const Store store;
    (void)write_history(store, 12'000);
    REQUIRE(test::header_of(read_all(store.journal())).first_sequence > 1);
    go_on_with_damaged(store, {}, after_power_loss, 60);
  }
}

// All remaining records verify, and the containers of the missing records would look unknown.
TEST_CASE("a snapshot that is cut at any of its records is refused, and nothing is removed",
          "[image][replay]") {
  const Store store;
  (void)write_history(store, 12'000);
  const std::string whole = read_all(store.journal());
  const auto header = test::header_of(whole);
  REQUIRE(header.first_sequence > 1);
  const auto offsets = test::record_offsets(whole);
  const std::size_t in_snapshot = header.complete_to - header.first_sequence + 1;
  REQUIRE(in_snapshot > 40);
  REQUIRE(offsets.size() - 1 > in_snapshot);  // others follow
  UniqueFd meta(::open(store.meta.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto containers = [&] {
    std::size_t count = 0;
    CHECK(backend_of(store)->for_each([&](std::uint64_t) { ++count; }));
    return count;
  };
  const std::size_t there = containers();
  for (const bool shorter : {false, true}) {
    for (std::size_t left = 0; left < in_snapshot; ++left) {
      INFO(left << " records are left of " << in_snapshot
                << (shorter ? ", and the file ends there" : ""));
      const std::string cut = test::cut_at(whole, offsets[left], shorter);
      std::ofstream(store.journal(), std::ios::binary | std::ios::trunc) << cut;
      for (const bool after_power_loss : {false, true}) {
        auto backend = backend_of(store);
        const auto refused = Filesystem::open(
            *backend, {.metadata_directory = meta.get(), .after_power_loss = after_power_loss});
        REQUIRE_FALSE(refused);
        CHECK(refused.error().code == EUCLEAN);
        CHECK(read_all(store.journal()).substr(0, cut.size()) == cut);
      }
      CHECK(containers() == there);
      const auto checked = image::check_image(store.directory.path());
      REQUIRE(checked);
      CHECK(checked->worst() == image::Severity::damage);
      auto backend = backend_of(store, true);
      const auto looked =
          Filesystem::open(*backend, {.metadata_directory = meta.get(), .read_only = true});
      REQUIRE(looked);
      CHECK((*looked)->recovery().journal.incomplete);
      CHECK((*looked)->recovery().journal.records == left);
    }
  }
  std::ofstream(store.journal(), std::ios::binary | std::ios::trunc)
      << test::cut_at(whole, offsets[in_snapshot], false);
  auto backend = backend_of(store);
  // which takes what was appended
  CHECK(Filesystem::open(*backend, {.metadata_directory = meta.get(), .after_power_loss = true}));
}
