// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/backing.hpp"

#include <catch2/catch_test_macros.hpp>
#include <set>

#include "backends/fsdax.hpp"
#include "support/failing_new.hpp"
#include "support/registrar.hpp"
#include "support/short_of_memory.hpp"
#include "support/temp.hpp"

using namespace efs;
using namespace efs::fuse;
using efs::test::Registrar;

namespace {

struct BackingScene {
  test::TempDirectory directory{"/dev/shm"};
  std::unique_ptr<Backend> backend = [this] {
    FsdaxOptions options;
    options.directory = directory.open();
    return std::move(*make_fsdax(std::move(options)));
  }();
  Registrar registrar;
  static constexpr std::size_t idle = 256;
  std::size_t limit = idle, asked_with = 0;
  BackingTable table{&registrar, [this](std::size_t kept) {
                       asked_with = kept;
                       return limit;
                     }};

  fs::ContainerPool::Ready container(std::uint64_t ino) {
    return {.ino = ino, .container = *backend->create(ino)};
  }

  int acquire(std::uint64_t ino, bool wanted = true) {
    return table.acquire(ino, wanted, backend->open(ino)->get())->id;
  }
};

}  // namespace

TEST_CASE("containers are registered ahead in batches, and an open then asks nobody") {
  BackingScene scene;
  std::vector<fs::ContainerPool::Ready> made;
  for (std::uint64_t ino = 2; ino < 2 + 40; ++ino) {
    made.push_back(scene.container(ino));
  }
  scene.table.prepare(made);
  CHECK(scene.registrar.questions == 2);
  CHECK(scene.registrar.known.size() == 40);
  std::set<int> ids;
  for (const auto& one : made) {
    ids.insert(scene.acquire(one.ino));
  }
  CHECK(ids == scene.registrar.known);
  CHECK(scene.registrar.questions == 2);
  CHECK(scene.acquire(2) == scene.acquire(2));
}

namespace {

constexpr std::uint64_t row = 2 * BackingRegistrar::most_at_once;  // first of a batch

// A scene with a file for each number of a batch and of the next batch.
struct RowScene : BackingScene {
  std::vector<fs::ContainerPool::Ready> files;

  RowScene() {
    for (std::uint64_t ino = row; ino < row + 2 * BackingRegistrar::most_at_once; ++ino) {
      files.push_back(container(ino));
    }
  }

  fs::ContainerPool::Ready& file(std::uint64_t ino) { return files.at(ino - row); }

  std::vector<fs::ContainerPool::Ready> rest_of(std::uint64_t ino) {
    std::vector<fs::ContainerPool::Ready> rest;
    for (const auto one : table.rest_of_batch(ino)) {
      rest.push_back(file(one));
    }
    return rest;
  }

  bool brings_row(std::uint64_t ino, BackingTable& of) {
    return of.acquire(ino, true, file(ino).container.get())->row;
  }

  bool brings_row(std::uint64_t ino) { return brings_row(ino, table); }
};

}  // namespace

TEST_CASE(
    "the second file of a row that is opened brings the others along, and their opens then ask "
    "nobody") {
  RowScene scene;
  CHECK_FALSE(scene.brings_row(row));
  CHECK_FALSE(scene.brings_row(row + 32));  // the first number of the next batch
  CHECK_FALSE(scene.brings_row(row));       // the same file again
  CHECK(scene.brings_row(row + 31));
  const auto rest = scene.rest_of(row + 31);
  CHECK(rest.size() == 30);
  CHECK(rest.front().ino == row + 1);
  CHECK(rest.back().ino == row + 30);
  CHECK(scene.brings_row(row + 7));  // meanwhile
  const int own = scene.acquire(row + 7);
  CHECK(scene.registrar.questions == 4);
  CHECK(scene.table.register_batch(rest) == 29);
  CHECK(scene.registrar.questions == 5);
  CHECK(scene.registrar.known.size() == 33);
  CHECK(scene.acquire(row + 7) == own);
  std::set<int> ids;
  for (std::uint64_t ino = row; ino < row + 32; ++ino) {
    ids.insert(scene.acquire(ino));
  }
  CHECK(ids.size() == 32);
  CHECK(scene.registrar.questions == 5);
  CHECK(scene.table.rest_of_batch(row).empty());
  CHECK(scene.table.register_batch({}) == 0);
  CHECK(scene.table.register_batch(rest) == 0);
  CHECK(scene.registrar.questions == 5);
}

TEST_CASE(
    "a neighbour that could not be registered is registered by its open, one that has gone is let "
    "go") {
  RowScene scene;
  scene.acquire(row), scene.acquire(row + 1);
  scene.registrar.fail_next = 1;
  scene.table.register_batch(scene.rest_of(row));
  CHECK(scene.registrar.known.size() == 31);
  CHECK(scene.acquire(row + 2) != 0);
  CHECK(scene.registrar.known.size() == 32);
  scene.table.drop(row + 3, BackingTable::most_held);
  CHECK(scene.registrar.known.size() == 31);
  scene.table.let_go(row + 4);
  CHECK(scene.registrar.known.size() == 30);
}

TEST_CASE("files on the daemon's path bring nobody along, and are not registered by others") {
  RowScene scene;
  scene.acquire(row);
  CHECK_FALSE(scene.table.acquire(row + 1, false, nullptr)->row);
  scene.registrar.fail_next = 1;
  CHECK_FALSE(scene.brings_row(row + 2));
  CHECK(scene.rest_of(row).size() == 29);
  scene.table.register_batch(std::vector{scene.file(row + 1), scene.file(row + 3)});
  CHECK(scene.acquire(row + 1, true) == 0);
  CHECK(scene.table.keeps_to_daemon(row + 1));
}

TEST_CASE("a batch takes the place of idle ids, but not of open files") {
  RowScene scene;
  BackingTable small(&scene.registrar, test::at_most(40));
  for (std::uint64_t ino = row + 32; ino < row + 32 + 7; ++ino) {
    (void)scene.brings_row(ino, small);
  }
  CHECK_FALSE(scene.brings_row(row, small));
  CHECK_FALSE(scene.brings_row(row + 1, small));  // 9 are open: there is room for 31
  CHECK(small.rest_of_batch(row).empty());
  small.release(row + 32);
  CHECK(small.rest_of_batch(row).size() == 30);
  CHECK(scene.brings_row(row + 2, small) == false);  // 9 are open again
  small.release(row + 33);
  CHECK(scene.brings_row(row, small) == false);  // has its id
  CHECK(small.rest_of_batch(row).size() == 29);
}

TEST_CASE("in a full table a file is registered if a neighbour of it was opened lately") {
  FullTablePolicy policy;
  CHECK_FALSE(policy.has_neighbour(row));
  policy.opened(row), policy.opened(row - 1), policy.opened(row + 32);
  CHECK_FALSE(policy.has_neighbour(row));  // itself, and files of other batches
  CHECK(policy.has_neighbour(row + 31));
  unsigned allowed = 0;
  for (unsigned i = 0; i < 4 * FullTablePolicy::registers_each; ++i) {
    CHECK_FALSE(policy.allows_daemon(row + 1));
    allowed += policy.allows_daemon(row) ? 1 : 0;
  }
  CHECK(allowed == 4 * (FullTablePolicy::registers_each - 1));
  for (std::uint64_t other = 1; other <= 16; ++other) {
    policy.opened(row + other * 64);
  }
  CHECK(policy.allows_daemon(row + 1));  // that was long ago
}

namespace {

// All ids are those of idle files with other numbers.
struct FullScene : RowScene {
  BackingTable full{&registrar, test::at_most(40)};
  int asked = 0;

  FullScene() {
    for (std::uint64_t ino = 10'000; ino < 10'000 + 40 * 64; ino += 64) {
      const std::vector made{container(ino)};
      full.prepare(made);
    }
    REQUIRE(registrar.known.size() == 40);
    asked = registrar.questions;
  }
};

}  // namespace

TEST_CASE("a full table offers small files the daemon's path, one with room does not") {
  FullScene scene;
  CHECK_FALSE(scene.table.acquire(row, true, nullptr)->small_without);
  const auto offered = scene.full.acquire(row, true, nullptr);
  CHECK((offered->needs_container && offered->small_without));
  int refused = 0;
  for (unsigned i = 0; i < 2 * FullTablePolicy::registers_each; ++i) {
    refused += scene.full.acquire(row, true, nullptr)->small_without ? 0 : 1;
  }
  CHECK(refused == 2);
  // of these files other opens decide
  CHECK_FALSE(scene.full.acquire(10'000, true, nullptr)->small_without);
  CHECK_FALSE(scene.full.acquire(row, false, nullptr)->small_without);
  CHECK_FALSE(scene.full.acquire(row, true, nullptr)->small_without);
}

TEST_CASE("in a full table opens in order register batches, others do not") {
  FullScene scene;
  const auto open = [&](std::uint64_t ino) {
    const auto offered = scene.full.acquire(ino, true, nullptr);
    if (offered->small_without) {
      return *scene.full.acquire_unregistered(ino);
    }
    return *scene.full.acquire(ino, true, scene.file(ino).container.get());
  };
  CHECK(open(row + 3).unregistered);
  scene.full.release(row + 3);
  CHECK(open(row + 3).unregistered);  // the same file again
  scene.full.release(row + 3);
  CHECK(open(row + 40).unregistered);
  const auto second = open(row + 4);
  CHECK((second.id != 0 && second.row));
  CHECK(scene.full.rest_of_batch(row + 4).size() == 31);
}

TEST_CASE("an unregistered open asks nobody, and keeps its inode on the daemon's path") {
  FullScene scene;
  const auto first = scene.full.acquire_unregistered(row);
  CHECK((first->unregistered && first->id == 0));
  CHECK(scene.full.keeps_to_daemon(row));
  const auto writer = scene.full.acquire(row, true, nullptr);
  CHECK((writer->id == 0 && !writer->needs_container && !writer->unregistered));
  CHECK(scene.full.acquire_unregistered(row)->unregistered);
  scene.full.release(row), scene.full.release(row);
  CHECK(scene.full.acquire(row, true, scene.file(row).container.get())->id == 0);
  scene.full.release(row), scene.full.release(row);
  CHECK_FALSE(scene.full.keeps_to_daemon(row));
  CHECK(scene.registrar.questions == scene.asked);
  // another open has registered it meanwhile
  const int id = scene.full.acquire(row, true, scene.file(row).container.get())->id;
  const auto second = scene.full.acquire_unregistered(row);
  CHECK((id != 0 && second->id == id && !second->unregistered));
  scene.full.release(row);
  CHECK(scene.full.passes_through(row));
  CHECK(scene.full.acquire_unregistered(row + 1)->unregistered);
  scene.full.drop(row + 1, 0);
  CHECK_FALSE(scene.full.keeps_to_daemon(row + 1));
}

TEST_CASE("the limit of idle ids follows the machine") {
  BackingScene scene;
  std::uint64_t ino = 2;
  const auto prepare = [&](int count) {
    for (int i = 0; i < count; ++i, ++ino) {
      const std::vector made{scene.container(ino)};
      scene.table.prepare(made);
    }
    scene.table.run();
  };
  prepare(1500);
  CHECK(scene.registrar.known.size() == BackingScene::idle);
  CHECK(scene.asked_with == BackingScene::idle + 1);
  scene.limit = 100;
  prepare(1200);
  CHECK(scene.registrar.known.size() == 100);
}

TEST_CASE("a container is asked for only by who is to be registered") {
  RowScene scene;
  CHECK(scene.table.acquire(row, true, nullptr)->needs_container);
  CHECK(scene.table.acquire(row, true, nullptr)->needs_container);  // nothing was counted
  CHECK(scene.acquire(row) == 1);
  const auto again = scene.table.acquire(row, true, nullptr);
  CHECK_FALSE(again->needs_container);
  CHECK(again->id == 1);
  CHECK_FALSE(scene.table.acquire(row + 1, false, nullptr)->needs_container);
  CHECK(scene.table.keeps_to_daemon(row + 1));
  // If two opens ask at once, both pass a container and one registers it.
  CHECK(scene.acquire(row + 2) == scene.acquire(row + 2));
  CHECK(scene.registrar.questions == 2);
  BackingTable without(nullptr, test::at_most(40));
  CHECK(without.acquire(row, true, nullptr)->needs_container);
  CHECK(without.acquire(row, true, scene.file(row).container.get())->id == 0);
  CHECK_FALSE(without.acquire(row, false, nullptr)->needs_container);
}

TEST_CASE("how many ids are kept") {
  for (const std::size_t kept : {std::size_t{0}, std::size_t{100'000}, BackingTable::most_idle}) {
    CHECK(ids_to_keep(kept) >= BackingTable::fewest_idle);
    CHECK(ids_to_keep(kept) <= BackingTable::most_idle);
  }
  CHECK(ids_to_keep(BackingTable::most_idle) == BackingTable::most_idle);
  CHECK(ids_to_keep_of(5000, 0, 0) == BackingTable::idle_if_unknown);
  CHECK(ids_to_keep_of(5000, 1'000'000, 100'000) < 5000);
  CHECK(ids_to_keep_of(0, 1'000'000, 100'000) == BackingTable::fewest_idle);
}

TEST_CASE("all instances of a machine together keep within a quarter of its open files") {
  constexpr std::size_t instances = 8, file_max = 40'000, others = 1'000;
  BackingScene scene;
  const auto container = scene.container(2).container;
  std::vector<std::unique_ptr<Registrar>> registrars(instances);
  const auto open = [&] {
    std::size_t sum = others;
    for (const auto& one : registrars) {
      sum += one->known.size();
    }
    return sum;
  };
  std::vector<std::unique_ptr<BackingTable>> tables(instances);
  for (std::size_t i = 0; i < instances; ++i) {
    registrars[i] = std::make_unique<Registrar>();
  }
  for (auto& table : tables) {
    table = std::make_unique<BackingTable>(
        registrars[&table - tables.data()].get(),
        [&](std::size_t kept) { return ids_to_keep_of(kept, open(), file_max); });
  }
  constexpr std::size_t overrun = instances * (BackingTable::renewed_after + 32);
  std::size_t most = 0;
  for (std::uint64_t ino = 2; ino < 4000; ++ino) {
    for (auto& table : tables) {
      REQUIRE(table->acquire(ino, true, container.get())->id != 0);
      table->release(ino);
    }
    most = std::max(most, open());
  }
  CHECK(most <= file_max / 4 + overrun);
  CHECK(open() <= file_max / 4 + overrun);
  CHECK(open() > file_max / 5);  // and they use it
}

TEST_CASE("what could not be registered ahead is registered by its open") {
  BackingScene scene;
  scene.registrar.fail_next = 1;
  const std::vector made{scene.container(2), scene.container(3)};
  scene.table.prepare(made);
  CHECK(scene.acquire(3) == 1);
  CHECK(scene.registrar.questions == 1);
  CHECK(scene.acquire(2) == 2);
  CHECK(scene.registrar.questions == 2);
  scene.registrar.fail_next = 1;
  (void)scene.container(4);
  CHECK(scene.acquire(4) == 0);  // the daemon's path
  scene.table.release(4);
}

TEST_CASE("an inode with privilege bits gives its id back and takes the daemon's path") {
  BackingScene scene;
  const std::vector made{scene.container(2)};
  scene.table.prepare(made);
  CHECK(scene.acquire(2, false) == 0);
  CHECK(scene.acquire(2, true) == 0);  // one mode while it is open
  CHECK(scene.table.due());
  scene.table.run();
  CHECK(scene.registrar.known.empty());
}

TEST_CASE(
    "ids are closed in batches: when one is full, when it is quiet, or when they hold much space") {
  BackingScene scene;
  const auto open_and_drop = [&](std::uint64_t ino, std::uint64_t bytes) {
    (void)scene.container(ino);
    scene.acquire(ino);
    scene.table.release(ino);
    scene.table.drop(ino, bytes);
  };
  std::uint64_t ino = 2;
  for (; ino < 2 + 31; ++ino) {
    open_and_drop(ino, 0);
  }
  CHECK(scene.registrar.closings == 0);
  open_and_drop(ino++, 0);
  CHECK(scene.registrar.closings == 1);
  CHECK(scene.registrar.known.empty());
  CHECK_FALSE(scene.table.due());

  open_and_drop(ino++, BackingTable::most_held / 2);
  CHECK(scene.registrar.closings == 1);
  open_and_drop(ino++, BackingTable::most_held / 2);
  CHECK(scene.registrar.closings == 2);
  CHECK(scene.registrar.known.empty());

  open_and_drop(ino++, 0);
  REQUIRE(scene.table.due());
  scene.table.run();
  CHECK(scene.registrar.known.empty());
  CHECK_FALSE(scene.table.due());
}

TEST_CASE("idle ids are bounded, also those of files that were made and never opened") {
  BackingScene scene;
  std::uint64_t ino = 2;
  for (; ino < 2 + 2 * BackingScene::idle; ++ino) {
    const std::vector made{scene.container(ino)};
    scene.table.prepare(made);
  }
  scene.table.run();
  CHECK(scene.registrar.known.size() == BackingScene::idle);
  // An open registers a file again if its id was closed early.
  const int before = scene.registrar.questions;
  CHECK(scene.acquire(2) > 0);
  CHECK(scene.registrar.questions == before + 1);
  for (std::uint64_t one = 2; one < ino; ++one) {
    scene.table.drop(one, 0);
  }
  scene.table.run();
  CHECK(scene.registrar.known.empty());
}

TEST_CASE("an inode stays on the daemon's path until all its opens are closed") {
  BackingScene scene;
  (void)scene.container(2);
  CHECK(scene.acquire(2, false) == 0);
  CHECK(scene.acquire(2, true) == 0);
  scene.table.release(2);
  CHECK(scene.table.keeps_to_daemon(2));
  CHECK(scene.acquire(2, true) == 0);
  scene.table.release(2), scene.table.release(2);
  CHECK_FALSE(scene.table.keeps_to_daemon(2));
  CHECK(scene.acquire(2, true) != 0);
}

TEST_CASE("a successor keeps every inode on the path and id that its predecessor gave it") {
  BackingScene scene;
  for (std::uint64_t ino = 2; ino < 5; ++ino) {
    (void)scene.container(ino);
  }
  scene.registrar.known = {7, 8};
  scene.registrar.last = 100;
  const std::vector<InheritedBacking> inherited{{.ino = 2, .id = 7}, {.ino = 9, .id = 8}};
  scene.table.inherit(inherited, {{2, {.through = 1}}, {3, {.by_daemon = 2}}},
                      [](std::uint64_t ino) { return ino != 9; });
  CHECK(scene.acquire(2) == 7);
  CHECK(scene.acquire(3) == 0);  // passthrough would fail
  CHECK(scene.acquire(4) == 101);
  for (int i = 0; i < 3; ++i) {
    scene.table.release(2);
  }
  CHECK(scene.acquire(2) == 7);
  scene.table.run();
  // closes the id of the file that was never created
  CHECK(scene.registrar.known == std::set<int>{7, 101});
  for (int i = 0; i < 3; ++i) {
    CHECK(scene.table.keeps_to_daemon(3));
    scene.table.release(3);
  }
  CHECK(scene.acquire(3) == 102);  // all are closed
  scene.table.drop(2, 0);
  scene.table.drop(3, 0);
  scene.table.run();
  CHECK(scene.registrar.known == std::set<int>{101});
}

namespace {

// Allocates only the answer, before it acts, as the supervisor's client does.
class FrugalRegistrar final : public BackingRegistrar {
 public:
  std::vector<Result<int>> open_backing(std::span<const Registration> files) override {
    std::vector<Result<int>> ids;
    ids.reserve(files.size());
    for (std::size_t i = 0; i < files.size(); ++i) {
      ids.emplace_back(++last);
    }
    for (std::size_t i = 0; i < files.size(); ++i) {
      ++known;
    }
    return ids;
  }

  void close_backing(std::span<const int> ids) override { known -= static_cast<int>(ids.size()); }

  int last = 0, known = 0;
};

}  // namespace

TEST_CASE(
    "every allocation of the table fails once: no id is lost, none is closed twice, and a release "
    "takes no memory") {
  bool met = true;
  for (std::uint64_t n = 1; met; ++n) {
    BackingScene scene;
    FrugalRegistrar registrar;
    BackingTable table(&registrar, test::at_most(4));
    std::vector<std::shared_ptr<Container>> containers;
    for (std::uint64_t ino = 2; ino < 12; ++ino) {
      containers.push_back(*scene.backend->create(ino));
    }
    std::vector<std::uint64_t> open;
    open.reserve(10);
    {
      const test::FailingNew failing(n);
      for (std::uint64_t ino = 2; ino < 12; ++ino) {
        if (const auto id = table.acquire(ino, ino % 3 != 0, containers[ino - 2].get())) {
          open.push_back(ino);
        }
      }
      met = failing.met();
    }
    CHECK(open.size() >= 9);
    for (const auto ino : open) {
      const test::FailingNew failing(1);
      table.release(ino);
      table.drop(ino, 0);
    }
    table.run();
    INFO("number " << n);
    CHECK(registrar.known == 0);
  }
}

TEST_CASE("of two ids of one inode a successor takes the later, and the daemon's path before any") {
  BackingScene scene;
  for (const int id : {3, 20, 21, 30, 40}) {
    scene.registrar.known.insert(id);
  }
  scene.registrar.last = 100;
  const std::vector<InheritedBacking> inherited{{.ino = 2, .id = 21},
                                                {.ino = 2, .id = 3},
                                                {.ino = 2, .id = 20},
                                                {.ino = 3, .id = 30},
                                                {.ino = 9, .id = 40}};
  scene.table.inherit(inherited, {{3, {.by_daemon = 1}}},
                      [](std::uint64_t ino) { return ino != 9; });
  CHECK(scene.registrar.known == std::set{21});
  CHECK(scene.table.acquire(2, true, nullptr)->id == 21);
  CHECK(scene.table.acquire(3, true, nullptr)->id == 0);
  CHECK(scene.table.keeps_to_daemon(3));
}

TEST_CASE("a successor keeps the ids of closed files within the limit, those used last") {
  BackingScene scene;
  BackingTable next(&scene.registrar, test::at_most(3));
  std::vector<InheritedBacking> inherited;
  for (int id = 1; id <= 10; ++id) {
    scene.registrar.known.insert(id);
    inherited.push_back({.ino = static_cast<std::uint64_t>(100 + id), .id = id});
  }
  next.inherit(inherited, {{101, {.through = 1}}, {102, {.through = 2}}},
               [](std::uint64_t) { return true; });
  next.run();
  CHECK(scene.registrar.known == std::set{1, 2, 8, 9, 10});
  next.release(101), next.release(102);
  CHECK(next.acquire(102, true, nullptr)->id == 2);
  next.run();
  CHECK(scene.registrar.known == std::set{1, 2, 9, 10});
}

TEST_CASE("a row: every allocation of memory fails once, and no id is lost", "[faults][memory]") {
  bool met = true;
  for (std::uint64_t n = 1; met; ++n) {
    RowScene scene;
    FrugalRegistrar registrar;
    BackingTable table(&registrar, test::at_most(64));
    REQUIRE_FALSE(scene.brings_row(row, table));
    REQUIRE(scene.brings_row(row + 1, table));
    {
      const test::FailingNew failing(n);
      try {
        const auto rest = table.rest_of_batch(row);
        REQUIRE(rest.size() == 30);
        table.register_batch(std::span(scene.files).first(32));
      } catch (const std::bad_alloc&) {  // the caller logs it
      }
      met = failing.met();
    }
    INFO("number " << n);
    if (!met) {
      CHECK(registrar.known == 32);
    }
    for (std::uint64_t ino = row; ino < row + 32; ++ino) {
      table.drop(ino, 0);
    }
    table.run();
    CHECK(registrar.known == 0);
  }
}

namespace {

// Handles ids below 16 without allocating.
class SmallRegistrar final : public BackingRegistrar {
 public:
  std::vector<Result<int>> open_backing(std::span<const Registration> files) override {
    return {files.size(), fail(EMFILE)};
  }

  void close_backing(std::span<const int> ids) override {
    for (const int id : ids) {
      known &= ~(1U << id);
    }
  }

  bool knows(int id) const { return (known >> id & 1U) != 0; }

  unsigned known = 0;
};

}  // namespace

TEST_CASE(
    "what a successor inherits: every allocation of memory fails once, and for good, and the next "
    "one inherits it",
    "[faults][memory]") {
  const auto is_there = [](std::uint64_t ino) {
    return ino < 8;
  };
  for (const auto shortage : {test::Shortage::once, test::Shortage::for_good}) {
    const auto allocations =
        test::each_allocation_fails(shortage, [&](const auto& short_of_memory) {
          SmallRegistrar registrar;
          registrar.known = 0b1111111100;  // an id has the number of its inode
          std::vector<InheritedBacking> inherited;
          for (int id = 2; id < 10; ++id) {
            inherited.push_back({.ino = static_cast<std::uint64_t>(id), .id = id});
          }
          short_of_memory([&] {
            try {
              BackingTable(&registrar, test::at_most(40))
                  .inherit(inherited, {{5, {.through = 1}}, {9, {.by_daemon = 1}}}, is_there);
            } catch (const std::bad_alloc&) {
            }
          });
          for (int id = 2; id < 8; ++id) {
            REQUIRE(registrar.knows(id));
          }
          std::erase_if(inherited,
                        [&](const InheritedBacking& one) { return !registrar.knows(one.id); });
          BackingTable next(&registrar, test::at_most(40));
          next.inherit(inherited, {}, is_there);
          REQUIRE(registrar.known == 0b11111100);
          for (std::uint64_t ino = 2; ino < 8; ++ino) {
            REQUIRE(next.acquire(ino, true, nullptr).value().id == static_cast<int>(ino));
          }
        });
    CHECK(allocations > 10);
  }
}
