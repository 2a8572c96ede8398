// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/registration_batch.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <string>
#include <utility>

#include "support/containers.hpp"
#include "support/failing_backend.hpp"
#include "support/registrar.hpp"
#include "support/temp.hpp"

using namespace efs;
using namespace efs::fuse;

namespace {

struct RowOfFiles {
  test::TempDirectory directory{"/dev/shm"};
  UniqueFd metadata = directory.open();
  std::unique_ptr<Backend> real;
  std::unique_ptr<test::FailingBackend> backend;
  std::unique_ptr<fs::Filesystem> filesystem;
  test::Registrar registrar;
  BackingTable table{&registrar, test::at_most(256)};
  std::unique_ptr<BatchRegistrar> rows;
  std::uint64_t first = 0;  // the first number of a complete batch

  RowOfFiles() {
    start();
    for (std::uint64_t ino = 0; first == 0 || ino < first + 31;) {
      ino = filesystem
                ->make_node({}, fs::root_ino, "behind " + std::to_string(ino), S_IFREG | 0644, 0)
                ->ino;
      if (first == 0 && ino % 32 == 0) {
        first = ino;
      }
    }
    start();  // no container is open any more
  }

  void start() {
    filesystem.reset();
    real = test::open_containers(directory.path());
    backend = std::make_unique<test::FailingBackend>(*real);
    filesystem = std::move(*fs::Filesystem::open(*backend, {.metadata_directory = metadata.get()}));
    rows = std::make_unique<BatchRegistrar>(*filesystem, table);
  }

  int open(std::uint64_t ino) {
    const bool wanted = filesystem->open({}, ino, O_RDONLY)->passthrough;
    const auto acquired = table.acquire(ino, wanted, filesystem->container(ino)->get());
    if (acquired->row) {
      rows->run(ino);
    }
    return acquired->id;
  }

  // Acts like the kernel's last FORGET of a removed file.
  void remove(std::uint64_t ino) {
    REQUIRE(filesystem->lookup(fs::root_ino, name_of(ino)));
    REQUIRE(filesystem->unlink({}, fs::root_ino, name_of(ino)));
    REQUIRE(filesystem->forget(ino, 1).gone);
    table.drop(ino, 0);
  }

  std::string name_of(std::uint64_t ino) {
    const auto items = filesystem->readdir(fs::root_ino, 0, 1000);
    for (const auto& item : *items) {
      if (item.ino == ino) {
        return item.name;
      }
    }
    return "";
  }
};

}  // namespace

TEST_CASE("two opens of a row register all of it, and the kernel serves it") {
  RowOfFiles scene;
  scene.open(scene.first);
  CHECK(scene.registrar.questions == 1);
  scene.open(scene.first + 1);
  CHECK(scene.registrar.questions == 3);
  CHECK(scene.registrar.known.size() == 32);
  for (std::uint64_t ino = scene.first; ino < scene.first + 32; ++ino) {
    CHECK(scene.open(ino) != 0);
  }
  CHECK(scene.registrar.questions == 3);
}

TEST_CASE("a file that is removed while its row is registered is let go") {
  RowOfFiles scene;
  const std::uint64_t victim = scene.first + 5;
  scene.open(scene.first);
  scene.backend->after_open([&](std::uint64_t id) {
    if (id == victim) {
      scene.remove(victim);
    }
  });
  scene.open(scene.first + 1);
  scene.table.run();
  CHECK(scene.registrar.known.size() == 31);
  CHECK_FALSE(scene.filesystem->exists(victim));
}

TEST_CASE("one row at a time: who comes meanwhile opens nothing and asks nobody") {
  RowOfFiles scene;
  scene.open(scene.first);
  bool met = false;
  scene.backend->after_open([&](std::uint64_t id) {
    // the file's own open precedes the batch
    if (id == scene.first + 1 || std::exchange(met, true)) {
      return;
    }
    CHECK(scene.registrar.questions == 2);
    scene.rows->run(scene.first);  // as another thread would
    CHECK(scene.registrar.questions == 2);
  });
  scene.open(scene.first + 1);
  CHECK(met);
  CHECK(scene.registrar.questions == 3);
  CHECK(scene.registrar.known.size() == 32);
}

TEST_CASE("where descriptors end a row is left at what there is, and the next open tries again") {
  RowOfFiles scene;
  scene.open(scene.first);
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlimit before = limit;
  int opened = 0;
  scene.backend->after_open([&](std::uint64_t) {
    if (++opened != 4) {
      return;
    }
    limit.rlim_cur = 0;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  });
  scene.open(scene.first + 1);
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK(opened == 5);  // the file's own, three of the batch, and one that failed
  CHECK(scene.registrar.known.size() == 5);
  scene.backend->after_open({});
  scene.open(scene.first + 31);
  CHECK(scene.registrar.known.size() == 32);
}

TEST_CASE(
    "for a row containers are open for reading only: nobody who asks for writers meets them") {
  RowOfFiles scene;
  const auto files = scene.filesystem->servable({scene.first, scene.first + 1});
  REQUIRE(files.size() == 2);
  for (const auto& file : files) {
    CHECK((::fcntl(*file.container->descriptor(), F_GETFL) & O_ACCMODE) == O_RDONLY);
    CHECK_FALSE(scene.real->is_written(file.ino));
  }
}

TEST_CASE("a file that cannot be opened stays out of its row") {
  RowOfFiles scene;
  REQUIRE(scene.real->remove(scene.first + 9));
  scene.open(scene.first);
  scene.open(scene.first + 1);
  CHECK(scene.registrar.known.size() == 31);
}
