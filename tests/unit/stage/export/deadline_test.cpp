// SPDX-License-Identifier: BSD-3-Clause
// A stage-out whose deadline passes while it only computes, or before it has come to most of the
// results. The clock is the test's: time is up when it says so.
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

namespace {

void time_is_up(Progress& progress) {
  progress.time_is_up = true;
  progress.cancel = true;
}

/// Has `count` empty results, of which there are no containers.
class ManyResults final : public RestingSource {
 public:
  explicit ManyResults(std::size_t count, std::function<void()> listed = {})
      : count_(count), listed_(std::move(listed)) {}

  Result<fs::OpenContainer> open_container(std::uint64_t) override {
    return fail(EIO, "no result is to be opened");
  }

  Result<std::vector<fs::WalkItem>> walk() override {
    std::vector<fs::WalkItem> items(count_);
    for (std::size_t i = 0; i < count_; ++i) {
      items[i].path = "f" + std::to_string(i);
      items[i].ino = i + 10;
      items[i].attributes.st_mode = S_IFREG | 0644;
      items[i].attributes.st_nlink = 1;
      items[i].attributes.st_size = 3;
      items[i].pfs.dirty = true;
    }
    if (listed_) {
      listed_();
    }
    return items;
  }

 private:
  const std::size_t count_;
  const std::function<void()> listed_;
};

}  // namespace

TEST_CASE(
    "deadline: where it passes while many files are listed, the receipt says so, and no PFS is "
    "asked",
    "[stage][out][deadline]") {
  Scene scene;
  Progress progress;
  bool is_listed_in_time = false;
  std::unique_ptr<ExportSource> buffer;
  SECTION("behind the walk") {
    buffer = std::make_unique<ManyResults>(fs::many_names, [&] { time_is_up(progress); });
  }
  SECTION("few are listed all the same") {
    buffer = std::make_unique<ManyResults>(100, [&] { time_is_up(progress); });
    is_listed_in_time = true;
  }
  std::atomic<int> calls{0};
  FaultPfs pfs([&](auto, const auto&, const auto&) {
    ++calls;
    return 0;
  });
  const Receipt receipt = stage_out(scene.config, *buffer, pfs, scene.options, progress);
  CHECK(receipt.verdict == Verdict::failed);
  CHECK(receipt.entries.size() == (is_listed_in_time ? 100 : 0));
  CHECK(receipt.reason.starts_with("the deadline passed while the files were listed") ==
        !is_listed_in_time);
  CHECK((calls == 0) == !is_listed_in_time);
}

TEST_CASE("deadline: results that it left are counted, and named up to a number",
          "[stage][out][deadline]") {
  Scene scene;
  scene.options.most_not_tried = 10;
  Progress progress;
  ManyResults buffer(64);
  bool is_listing = true;
  FaultPfs pfs([&](auto, const auto&, const auto&) {
    is_listing = is_listing && progress.listing;
    time_is_up(progress);
    return 0;
  });
  const Receipt receipt = stage_out(scene.config, buffer, pfs, scene.options, progress);
  CHECK(!is_listing);  // a call that hangs is the PFS's
  CHECK(receipt.entries.size() == 10);
  CHECK(receipt.totals.not_saved == 64);
  CHECK(receipt.totals.bytes_left == 3 * 64);
  CHECK(receipt.verdict == Verdict::failed);
  CHECK(to_json(receipt).at("unlisted") == 54);
  CHECK(describe(receipt, 4).contains("... and 60 more not-saved"));
  CHECK(describe(receipt).contains("... and 59 more not-saved (the receipt names a part of them)"));
}
