// SPDX-License-Identifier: BSD-3-Clause
// The list of container contents at the end of an instance: efs later detects truncated,
// overwritten and replaced containers.
#include "image/contents.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>

#include "image/check.hpp"
#include "image/salvage.hpp"
#include "support/dead_image.hpp"

using namespace efs;
using image::Severity;
using stage::Action;
using test::DeadImage;
namespace stdfs = std::filesystem;

namespace {

// An offline store as a stop with --keep leaves it.
struct LeftImage : DeadImage {
  LeftImage() {
    const auto meta = open_meta();
    const auto backend = test::open_containers(store());
    const auto filesystem =
        fs::Filesystem::open(*backend, {.metadata_directory = meta.get(), .instance = instance()});
    REQUIRE(filesystem);
    auto items = fs::Staging(**filesystem).walk();
    REQUIRE(items);
    for (auto& item : *items) {
      item.content.settled = item.path == "saved";  // as on a medium that survives
    }
    const auto noted = image::write_contents(meta.get(), *items);
    REQUIRE(noted);
    change_manifest([&](image::Manifest& manifest) {
      manifest.contents = *noted, manifest.left = image::ShutdownState::kept;
    });
  }

  void change_manifest(const std::function<void(image::Manifest&)>& change) const {
    const auto meta = open_meta();
    auto manifest = image::read_manifest(meta.get());
    REQUIRE(manifest);
    change(*manifest);
    REQUIRE(image::write_manifest(meta.get(), *manifest));
  }

  std::string list() const { return store() + "/meta/" + image::contents_name; }

  Result<std::map<std::uint64_t, std::string>> changed() const {
    const auto meta = open_meta();
    const auto backend = test::open_containers(store());
    return image::changed_contents(meta.get(), image::read_manifest(meta.get()).value(), *backend);
  }

  std::string damage() const {
    const auto report = image::check_image(store());
    REQUIRE(report);
    std::string text;
    for (const auto& finding : report->findings) {
      if (finding.severity == Severity::damage) {
        text += finding.object + ": " + finding.text + "\n";
      }
    }
    return text;
  }

  stage::Receipt brought_out(bool all = false) const {
    fill_results();
    auto image = image::open_image(store());
    REQUIRE(image);
    stage::Progress progress;
    return image::salvage(*image, {.to = all ? results() + "/all" : "", .all = all}, progress);
  }
};

void store_at(const std::string& path, off_t offset, const std::string& text) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  REQUIRE(::pwrite(fd.get(), text.data(), text.size(), offset) ==
          static_cast<ssize_t>(text.size()));
}

}  // namespace

TEST_CASE(
    "contents: an image that nobody touched since it was left is as it was, also its sparse, empty "
    "and linked files",
    "[image][contents]") {
  const LeftImage left;
  CHECK(left.changed()->empty());
  CHECK(left.damage().empty());
  CHECK(left.brought_out().verdict == stage::Verdict::complete);
  CHECK(left.brought_out(true).verdict == stage::Verdict::complete);
  // One line for each file with content of its own; the PFS identifies an unchanged input.
  const std::string text = test::text_of(left.list());
  for (const char* path : {"saved", "d/big", "d/sparse", "d/empty", "linked", "input/changed"}) {
    CHECK(("\n" + text).contains("\n" + std::to_string(left.ino(path)) + " "));
  }
  CHECK_FALSE(("\n" + text).contains("\n" + std::to_string(left.ino("input/clean")) + " "));
}

TEST_CASE(
    "contents: a file whose record has the times, because no program wrote to it, is unchanged",
    "[image][contents]") {
  const LeftImage left;
  const timespec mark{.tv_sec = 1000, .tv_nsec = fs::record_has_time};
  const std::array times{mark, mark};
  REQUIRE(::utimensat(AT_FDCWD, left.container("d/empty").c_str(), times.data(), 0) == 0);
  CHECK(left.changed()->empty());
  store_at(left.container("d/empty"), 0, "x");
  CHECK(left.changed()->size() == 1);
}

TEST_CASE(
    "contents: a container that was cut short, lengthened or written to since its instance was "
    "left is told, and not brought out",
    "[image][contents]") {
  const LeftImage left;
  std::string how;
  const std::string container = left.container("d/big");
  SECTION("cut short") {
    stdfs::resize_file(container, 5);
    how = "it has 5 bytes instead of 150000";
  }
  SECTION("longer") {
    stdfs::resize_file(container, 150'001);
    how = "it has 150001 bytes instead of 150000";
  }
  SECTION("written to") {
    store_at(container, 70'000, "x");
    how = "it was written to";
  }
  const auto changed = left.changed();
  REQUIRE(changed);
  CHECK(*changed == std::map<std::uint64_t, std::string>{{left.ino("d/big"), how}});
  CHECK(left.damage() == "d/big: container " + std::to_string(left.ino("d/big")) +
                             " is not what it was when the instance was left: " + how + "\n");
  CHECK(image::repair_image(left.store()).error().code == EUCLEAN);
  for (const bool all : {false, true}) {
    const auto receipt = left.brought_out(all);
    CHECK(receipt.verdict == stage::Verdict::partial);
    CHECK(test::told_of(receipt, "d/big").action == Action::failed);
    CHECK(test::told_of(receipt, "d/big").reason.contains(how));
    CHECK(test::told_of(receipt, "linked").action == Action::staged_out);
    CHECK_FALSE(stdfs::exists(left.results() + (all ? "/all" : "") + "/d/big"));
  }
  // The user can export the file anyway.
  stdfs::remove(left.list());
  CHECK(left.changed()->empty());
  CHECK(test::told_of(left.brought_out(), "d/big").action == Action::staged_out);
}

TEST_CASE("contents: a list that is damaged is told, and stops no salvage", "[image][contents]") {
  const LeftImage left;
  const std::string whole = test::text_of(left.list());
  REQUIRE(whole.size() > 100);
  std::string bad = whole;
  SECTION("a bit") {
    bad[40] ^= 1;
  }
  SECTION("cut short") {
    bad.resize(50);
  }
  SECTION("empty") {
    bad.clear();
  }
  SECTION("another one's, whole") {
    const LeftImage other;
    stdfs::resize_file(other.container("d/big"), 3);
    const auto backend = test::open_containers(other.store());
    const auto meta = other.open_meta();
    const auto filesystem = fs::Filesystem::open(
        *backend,
        {.metadata_directory = meta.get(), .read_only = true, .instance = other.instance()});
    REQUIRE(filesystem);
    REQUIRE(image::write_contents(meta.get(), *fs::Staging(**filesystem).walk()));
    bad = test::text_of(other.list());
    REQUIRE(bad != whole);
  }
  std::ofstream(left.list(), std::ios::binary | std::ios::trunc) << bad;
  const auto changed = left.changed();
  REQUIRE_FALSE(changed);
  CHECK(changed.error().code == EUCLEAN);
  CHECK(left.damage().contains("contents: meta/contents"));
  const auto receipt = left.brought_out();
  CHECK(receipt.verdict == stage::Verdict::complete);
  CHECK(receipt.note.contains(
      "meta/contents, the list of the containers when the instance was left, is damaged"));
}

TEST_CASE(
    "contents: the list counts until the next instance begins, and after a restart for what was on "
    "the medium",
    "[image][contents]") {
  const LeftImage left;
  stdfs::resize_file(left.container("d/big"), 5);
  stdfs::resize_file(left.container("saved"), 5);
  REQUIRE(left.changed()->size() == 2);
  SECTION("after a salvage it counts") {
    left.change_manifest(
        [](image::Manifest& manifest) { manifest.left = image::ShutdownState::salvaged; });
    CHECK(left.changed()->size() == 2);
  }
  SECTION("in use") {
    left.change_manifest(
        [](image::Manifest& manifest) { manifest.left = image::ShutdownState::in_use; });
    CHECK(left.changed()->empty());
  }
  SECTION("after a restart") {
    left.change_manifest([](image::Manifest& manifest) { manifest.boot_id = "another boot"; });
    CHECK(*left.changed() == std::map<std::uint64_t, std::string>{
                                 {left.ino("saved"), "it has 5 bytes instead of 26"}});
  }
}
