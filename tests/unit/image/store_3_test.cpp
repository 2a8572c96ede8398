// SPDX-License-Identifier: BSD-3-Clause
// A store that an efs of journal format 3 left (tests/fixtures/store-3.tar.gz), and stores that a
// newer efs left.
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/boot.hpp"
#include "image/check.hpp"
#include "image/orphans.hpp"
#include "image/salvage.hpp"
#include "support/dead_image.hpp"
#include "support/dead_image_looks.hpp"
#include "support/journal_file.hpp"

namespace efs::store_3_test {

using test::everything_below;
using test::text_of;

namespace {

class Store3 {
 public:
  Store3() {
    const std::string unpack =
        "tar -C '" + top_.path() + "' -xzf '" EFS_SOURCE_DIR "/tests/fixtures/store-3.tar.gz'";
    REQUIRE(std::system(unpack.c_str()) == 0);
    for (const char* manifest :
         {"/r/store-3/instance.json", "/r/store-3/store/meta/instance.json"}) {
      std::string text = text_of(top_.path() + manifest);
      put_in(text, "@TOP@", top_.path());
      put_in(text, "@BOOT@", boot_id());
      test::write_over(top_.path() + manifest, text);
    }
  }

  std::string path() const { return top_.path() + "/r/store-3/store"; }

  std::string journal() const { return path() + "/meta/journal"; }

  std::string results() const { return top_.path() + "/out"; }

  // The lines of a file of the fixture.
  std::vector<std::string> lines(const std::string& name) const {
    std::ifstream file(top_.path() + "/" + name);
    std::vector<std::string> all;
    for (std::string line; std::getline(file, line);) {
      all.push_back(line);
    }
    return all;
  }

  UniqueFd meta() const {
    return UniqueFd(::open((path() + "/meta").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }

 private:
  static void put_in(std::string& text, const std::string& from, const std::string& to) {
    for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
      text.replace(at, from.size(), to);
    }
  }

  test::TempDirectory top_{"/dev/shm"};
};

char type_of(mode_t mode) {
  return S_ISDIR(mode) ? 'd' : S_ISLNK(mode) ? 'l' : S_ISFIFO(mode) ? 'p' : 'f';
}

// As find -printf '%P|%y|%m|%U:%G|%n|%s|%T@|%l' prints it.
std::string line_of(fs::Filesystem& filesystem, const std::string& path, std::uint64_t ino) {
  const struct stat st = filesystem.getattr(ino)->attributes;
  std::array<char, 200> text{};
  std::snprintf(text.data(), text.size(), "|%c|%o|%u:%u|%lu|%ld|%ld.%09ld0|", type_of(st.st_mode),
                st.st_mode & 07777U, st.st_uid, st.st_gid, st.st_nlink, st.st_size,
                st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
  return path + text.data() + (S_ISLNK(st.st_mode) ? *filesystem.readlink(ino) : "");
}

std::vector<std::string> listing_of(fs::Filesystem& filesystem) {
  std::vector<std::string> lines;
  const auto items = fs::Staging(filesystem).walk();
  REQUIRE(items);
  for (const auto& item : *items) {
    if (!item.path.empty() && !item.path.starts_with("more/parts")) {
      lines.push_back(line_of(filesystem, item.path, item.ino));
    }
  }
  std::ranges::sort(lines);
  return lines;
}

void check_attributes(fs::Filesystem& filesystem) {
  fs::Staging staging(filesystem);
  const auto ino = [&](const char* path) {
    return staging.find(path)->ino;
  };
  CHECK(filesystem.getxattr(ino("d"), "user.of") == "a directory");
  CHECK(filesystem.getxattr(ino("input/clean"), "user.of") == "an input");
  CHECK(filesystem.getxattr(ino("d/inherits"), "user.again") == "");
  CHECK(filesystem.getxattr(ino("d/inherits"), "user.of").error().code == ENODATA);
  CHECK(filesystem.getxattr(ino("d"), "system.posix_acl_default")->size() == 52);
  CHECK(filesystem.getxattr(ino("input/changed"), "system.posix_acl_access")->size() == 44);
  CHECK(ino("d/one") == ino("d/deep/three"));
  CHECK(staging.find("d/empty")->keep == fs::Keep::temporary);
  CHECK(staging.find("exported")->pfs.saved);
  CHECK(staging.find("input/clean")->pfs.origin);
  const auto gone = staging.gone();
  REQUIRE(gone.size() == 1);
  CHECK(gone.front().path == "input/removed");
}

struct Opened {
  explicit Opened(const Store3& store, bool after_power_loss = false)
      : meta(store.meta()),
        backend(test::open_containers(store.path())),
        filesystem(fs::Filesystem::open(
            *backend, {.metadata_directory = meta.get(), .after_power_loss = after_power_loss})) {}

  UniqueFd meta;
  std::unique_ptr<Backend> backend;
  Result<std::unique_ptr<fs::Filesystem>> filesystem;
};

// The store is one that no efs of today may open. Nothing changes it.
void check_refused(const test::DeadImage& dead, const std::string& text) {
  test::DeadImage::put(dead.store() + "/meta/lock", "");  // a repair would make it
  const auto before = everything_below(dead.store());
  for (const bool after_power_loss : {false, true}) {
    const test::Started started(dead, after_power_loss);
    REQUIRE_FALSE(started.filesystem);
    CHECK(started.filesystem.error().code == EPROTONOSUPPORT);
    CHECK(started.filesystem.error().what.contains(text));
  }
  const auto checked = image::check_image(dead.store());
  REQUIRE_FALSE(checked);
  const auto repaired = image::repair_image(dead.store());
  REQUIRE_FALSE(repaired);
  const auto opened = image::open_image(dead.store());
  REQUIRE_FALSE(opened);
  const auto held = image::hold_store(dead.store(), image::Hold::to_look);
  REQUIRE(held);
  const auto lost = image::find_orphans(*held);  // they would be all contents
  REQUIRE_FALSE(lost);
  for (const auto& error : {checked.error(), repaired.error(), opened.error(), lost.error()}) {
    CHECK(error.code == EPROTONOSUPPORT);
    CHECK(error.what.contains(text));
    CHECK(error.what.contains("Open the store with the efs that wrote it, or a newer one"));
    CHECK_FALSE(error.what.contains("salvage"));
  }
  CHECK(everything_below(dead.store()) == before);
}

// Appends a record of this payload.
void append(const test::DeadImage& dead, std::span<const std::byte> payload) {
  const UniqueFd meta = dead.open_meta();
  auto journal = store::Journal::open(store::directory_medium(meta.get()), "journal",
                                      [](const store::Record&) -> Status { return {}; });
  REQUIRE(journal);
  REQUIRE(journal->append(0, payload, 0));
}

}  // namespace

TEST_CASE("a start on a store of format 3 has all its files, and makes it format 4",
          "[image][replay]") {
  const Store3 store;
  CHECK(test::header_of(text_of(store.journal())).version == 3);
  const auto expected = store.lines("listing");
  REQUIRE(expected.size() > 40);
  {
    const Opened opened(store);
    REQUIRE(opened.filesystem);
    auto& filesystem = **opened.filesystem;
    CHECK(filesystem.recovery().lost.empty());
    CHECK(listing_of(filesystem) == expected);
    check_attributes(filesystem);
    CHECK(test::header_of(text_of(store.journal())).version == 4);
    REQUIRE(filesystem.make_node({}, fs::root_ino, "new", S_IFDIR | 0700, 0));
    REQUIRE(filesystem.rmdir({}, fs::root_ino, "new"));
  }
  const Opened again(store);
  REQUIRE(again.filesystem);
  const auto listing = listing_of(**again.filesystem);
  CHECK(listing == expected);
  check_attributes(**again.filesystem);
  CHECK(fs::Staging(**again.filesystem).find("more/parts")->pfs.parts == "0+4096");
}

TEST_CASE("a start after power loss converts a store of format 3, too", "[image][replay]") {
  const Store3 store;
  const Opened opened(store, true);
  REQUIRE(opened.filesystem);
  CHECK(test::header_of(text_of(store.journal())).version == 4);
  CHECK(fs::Staging(**opened.filesystem).find("d/deep/three"));
}

TEST_CASE("a store of format 3 is checked and salvaged as it is", "[image][salvage]") {
  const Store3 store;
  const auto before = everything_below(store.path());
  const auto report = image::check_image(store.path());
  REQUIRE(report);
  std::string findings;
  for (const auto& finding : report->findings) {
    findings +=
        std::string(name_of(finding.severity)) + " " + finding.object + ": " + finding.text + "\n";
  }
  INFO(findings);
  CHECK(report->worst() == image::Severity::leftover);  // the file that was open without a name
  CHECK(
      findings.contains("note journal: it has format 3; a start or --repair makes it format 4\n"));
  CHECK(findings.find("leftover") == findings.rfind("leftover"));
  auto opened = image::open_image(store.path());
  REQUIRE(opened);
  stage::Progress progress;
  const auto receipt = image::salvage(*opened, {}, progress);
  CHECK(stage::exit_code(receipt) == 0);
  CHECK(text_of(store.results() + "/input/changed") == "as the job left it\n");
  CHECK(text_of(store.results() + "/d/deep/three") == "with three names\n");
  CHECK(text_of(store.results() + "/d/after") == "renamed\n");
  CHECK(text_of(store.results() + "/replaced") == "new\n");
  CHECK_FALSE(std::filesystem::exists(store.results() + "/input/clean"));
  CHECK(everything_below(store.path()) == before);
}

TEST_CASE("a repair of a store of format 3 makes it format 4", "[image]") {
  const Store3 store;
  REQUIRE(image::repair_image(store.path()));
  CHECK(test::header_of(text_of(store.journal())).version == 4);
  const auto report = image::check_image(store.path());
  REQUIRE(report);
  CHECK(report->worst() == image::Severity::note);
  const Opened opened(store);
  REQUIRE(opened.filesystem);
  CHECK(listing_of(**opened.filesystem) == store.lines("listing"));
}

TEST_CASE("the records of a snapshot and of operations are the same in both formats", "[image]") {
  for (const bool snapshot : {false, true}) {
    const test::DeadImage dead({.snapshot = snapshot});
    const std::string now = text_of(dead.journal());
    const std::string old = test::in_format_3(now);
    CHECK(test::record_offsets(old).size() == test::record_offsets(now).size());
    test::write_over(dead.journal(), old);
    CHECK(test::damage_in(dead).empty());
    {
      const test::Started started(dead);
      REQUIRE(started.filesystem);
      CHECK(fs::Staging(**started.filesystem).find("d/also-linked"));
    }
    CHECK(test::header_of(text_of(dead.journal())).version == 4);
    CHECK(test::damage_in(dead).empty());
  }
}

TEST_CASE("a store that a newer efs wrote is refused, and is left as it is", "[image][replay]") {
  {
    const test::DeadImage dead;
    std::string journal = text_of(dead.journal());
    auto header = test::header_of(journal);
    header.version = 5;
    test::seal(header);
    std::memcpy(journal.data(), &header, sizeof header);
    test::write_over(dead.journal(), journal);
    check_refused(dead,
                  "written by another version of efs (format 5, and this efs reads 3 to 4). "
                  "Nothing was changed. ");
  }
  for (const unsigned type : {0U, 99U}) {
    const test::DeadImage dead;
    append(dead, std::vector{std::byte(type), std::byte{9}, std::byte{1}});
    const auto last = test::record_offsets(text_of(dead.journal())).size() - 1;
    check_refused(dead, "record " + std::to_string(last) + ": a record of type " +
                            std::to_string(type) +
                            " needs level 9 of the format, and this efs has level 8. Nothing was "
                            "removed. ");
  }
  const test::DeadImage dead;
  std::vector<std::byte> content;
  fs::encode(fs::SetContent{.ino = dead.ino("d/big"), .size = 10}, content);
  append(dead, content);
  check_refused(dead, "a record of type 15 needs level 9 of the format");
}

TEST_CASE("records and fields of a newer efs that an older one may skip are skipped",
          "[image][replay]") {
  const test::DeadImage dead;
  append(dead, std::vector{std::byte{99}, std::byte{4}, std::byte{1}});
  std::vector<std::byte> longer;
  fs::encode(fs::SetXattr{.ino = dead.ino("d"), .time = 1, .name = "user.new", .value = "v"},
             longer);
  longer.insert(longer.end(), 12, std::byte{7});
  append(dead, longer);
  CHECK(test::damage_in(dead).empty());
  CHECK(test::findings(dead, image::Severity::note)
            .contains("journal: it has records of a newer efs that this one skips, 1 in number"));
  const test::Started started(dead);
  REQUIRE(started.filesystem);
  CHECK((*started.filesystem)->recovery().journal.skipped == 1);
  CHECK((*started.filesystem)->getxattr(dead.ino("d"), "user.new") == "v");
}

}  // namespace efs::store_3_test
