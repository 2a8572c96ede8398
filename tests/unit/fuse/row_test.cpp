#include "fuse/row.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <string>

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
  std::unique_ptr<Backend> real = test::open_containers(directory.path());
  test::FailingBackend backend{*real};
  std::unique_ptr<fs::Filesystem> filesystem = std::move(*fs::Filesystem::open(backend, {.metadata_directory = metadata.get()}));
  test::Registrar registrar;
  BackingTable table{&registrar, 256};
  std::uint64_t first = 0;  // of a row, which is all there

  RowOfFiles() {
    for (std::uint64_t ino = 0; first == 0 || ino < first + 31;) {
      ino = filesystem->make_node({}, fs::root_ino, "behind " + std::to_string(ino), S_IFREG | 0644, 0)->ino;
      if (first == 0 && ino % 32 == 0) first = ino;
    }
  }
  int open(std::uint64_t ino) {
    auto opened = filesystem->open({}, ino, O_RDONLY);
    const auto acquired = table.acquire(ino, opened->passthrough, [&] { return filesystem->container(ino); });
    if (acquired->second) register_row(*filesystem, table, ino);
    return acquired->id;
  }
  // As the kernel's last FORGET of a file that was removed.
  void remove(std::uint64_t ino) {
    REQUIRE(filesystem->unlink({}, fs::root_ino, name_of(ino)));
    const auto left = filesystem->forget(ino, 1);
    REQUIRE(left.gone);
    table.drop(ino, left.bytes);
  }
  std::string name_of(std::uint64_t ino) {
    const auto items = filesystem->readdir(fs::root_ino, 0, 1000);
    for (const auto& item : *items)
      if (item.ino == ino) return item.name;
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
  for (std::uint64_t ino = scene.first; ino < scene.first + 32; ++ino) CHECK(scene.open(ino) != 0);
  CHECK(scene.registrar.questions == 3);
}

TEST_CASE("a file that is removed while its row is registered is let go") {
  RowOfFiles scene;
  const std::uint64_t victim = scene.first + 5;
  scene.open(scene.first);
  scene.backend.after_open([&](std::uint64_t id) {
    if (id == victim) scene.remove(victim);
  });
  scene.open(scene.first + 1);
  scene.table.run();
  CHECK(scene.registrar.known.size() == 31);
  CHECK_FALSE(scene.filesystem->exists(victim));
}

TEST_CASE("a file that cannot be opened stays out of its row") {
  RowOfFiles scene;
  REQUIRE(scene.real->remove(scene.first + 9));
  scene.open(scene.first);
  scene.open(scene.first + 1);
  CHECK(scene.registrar.known.size() == 31);
}
