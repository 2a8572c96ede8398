// SPDX-License-Identifier: BSD-3-Clause
#include "fs/zero_pages.hpp"

#include <linux/falloc.h>

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "support/containers.hpp"
#include "support/temp.hpp"

namespace efs::zero_pages_test {
namespace {

using fs::Run;
using fs::ZeroPages;

constexpr auto page = ZeroPages::page, extent = ZeroPages::extent;

/// A container on a plain tmpfs, where stored zeros take space.
struct PagesScene {
  explicit PagesScene(std::uint64_t size = 2 * extent) { REQUIRE(container->truncate(size)); }

  void store(std::uint64_t offset, std::uint64_t bytes, std::byte value) const {
    REQUIRE(container->write(std::vector<std::byte>(bytes, value), offset) == bytes);
  }

  std::vector<Run> find(std::uint64_t at = 0) const {
    ZeroPages pages(*container);
    const auto found = pages.find(at);
    return {found.begin(), found.end()};
  }

  const test::TempDirectory directory{"/dev/shm"};
  const std::unique_ptr<Backend> backend = test::open_containers(directory.path());
  const std::shared_ptr<Container> container = std::move(*backend->create(7, CachePolicy::closed));
};

constexpr std::byte zero{0}, data{1};

}  // namespace

TEST_CASE("zero pages: the runs are the pages of zeros that take space", "[fs][zeros]") {
  const PagesScene scene;
  scene.store(0, extent, zero);
  SECTION("all of an extent") {
    CHECK(scene.find() == std::vector<Run>{{.offset = 0, .length = extent}});
  }
  SECTION("around data, which takes its whole page") {
    scene.store(5 * page + 17, 1, data);
    CHECK(scene.find() == std::vector<Run>{{.offset = 0, .length = 5 * page},
                                           {.offset = 6 * page, .length = extent - 6 * page}});
  }
  SECTION("without holes") {
    const std::uint64_t hole = extent / 2;
    REQUIRE(scene.container->allocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, hole));
    CHECK(scene.find() == std::vector<Run>{{.offset = hole, .length = extent - hole}});
  }
  SECTION("and not those of another extent") {
    scene.store(extent, extent, zero);
    CHECK(scene.find(extent) == std::vector<Run>{{.offset = extent, .length = extent}});
  }
}

TEST_CASE("zero pages: an extent with few zeros keeps its pages", "[fs][zeros]") {
  const PagesScene scene;
  scene.store(0, extent, data);
  scene.store(0, ZeroPages::worthwhile - page, zero);
  CHECK(scene.find().empty());
  scene.store(ZeroPages::worthwhile - page, page, zero);
  CHECK(scene.find() == std::vector<Run>{{.offset = 0, .length = ZeroPages::worthwhile}});
}

TEST_CASE("zero pages: samples find zeros that take space", "[fs][zeros]") {
  const PagesScene scene;
  CHECK_FALSE(ZeroPages::has_sample(*scene.container, 2 * extent));  // a hole takes none
  scene.store(extent, extent, data);
  CHECK_FALSE(ZeroPages::has_sample(*scene.container, 2 * extent));
  scene.store(extent, extent, zero);
  scene.store(extent, 1, data);
  CHECK(ZeroPages::has_sample(*scene.container, 2 * extent));
  CHECK_FALSE(ZeroPages::has_sample(*scene.container, 2 * extent - 1));  // a whole extent only
}

TEST_CASE("zero pages: the next extent has data, and is whole", "[fs][zeros]") {
  const PagesScene scene(4 * extent);
  const ZeroPages pages(*scene.container);
  CHECK_FALSE(pages.next_extent(0, 4 * extent));
  scene.store(2 * extent + 3 * page, page, zero);
  CHECK(pages.next_extent(0, 4 * extent) == 2 * extent);
  CHECK(pages.next_extent(2 * extent, 4 * extent) == 2 * extent);
  CHECK_FALSE(pages.next_extent(3 * extent, 4 * extent));
  CHECK_FALSE(pages.next_extent(0, 3 * extent - 1));
}

}  // namespace efs::zero_pages_test
