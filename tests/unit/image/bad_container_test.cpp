// SPDX-License-Identifier: BSD-3-Clause
// Containers that were exchanged, truncated, copied or removed. efs reports their names if it can
// detect them.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <filesystem>
#include <fstream>
#include <random>

#include "backends/fsdax.hpp"
#include "image/check.hpp"
#include "image/salvage.hpp"
#include "stage/export/selection.hpp"
#include "stage/resume/resume.hpp"
#include "support/dead_image_looks.hpp"

using namespace efs;
using image::Severity;
using stage::Action;
using test::brought_out;
using test::damage_in;
using test::DeadImage;
using test::findings;
using test::Started;
using test::write_over;
namespace stdfs = std::filesystem;

namespace {

// The inputs that a start would import again.
std::vector<std::string> outdated_at_start(const DeadImage& dead) {
  Started started(dead);
  REQUIRE(started.filesystem);
  fs::Staging staging(**started.filesystem);
  const auto items = staging.walk();
  REQUIRE(items);
  stage::Plan plan;
  for (const auto& item : *items) {
    if (item.pfs.origin && S_ISREG(item.attributes.st_mode)) {
      stage::PlanEntry entry;
      entry.path = item.path;
      entry.type = stage::EntryType::file;
      entry.origin = *item.pfs.origin;
      plan.entries.push_back(entry);
    }
  }
  return stage::subtract(plan, *items).outdated;
}

void exchange_files(const std::string& one, const std::string& another) {
  stdfs::rename(one, one + "-aside");
  stdfs::rename(another, one);
  stdfs::rename(one + "-aside", another);
}

}  // namespace

TEST_CASE("an image that nobody touched has no damage", "[image][containers]") {
  const DeadImage dead;
  CHECK(damage_in(dead) == "");
  CHECK(outdated_at_start(dead).empty());
}

TEST_CASE(
    "a container that is missing is told by check-image and salvage, and a start goes on without "
    "making it empty",
    "[image][containers]") {
  const DeadImage dead;
  stdfs::remove(dead.container("d/big"));
  CHECK(damage_in(dead).contains("d/big: its container " + std::to_string(dead.ino("d/big")) +
                                 " is missing"));
  const auto receipt = brought_out(dead);
  CHECK(receipt.verdict != stage::Verdict::complete);
  CHECK(test::told_of(receipt, "d/big").action == Action::failed);
  CHECK(test::told_of(receipt, "d/big").reason.contains("was removed from the store"));
  CHECK_FALSE(stdfs::exists(dead.results() + "/d/big"));
  CHECK(test::told_of(receipt, "linked").action == Action::staged_out);
  const Started started(dead);
  REQUIRE(started.filesystem);
  CHECK((*started.filesystem)->recovery().lost == std::vector<std::string>{"d/big"});
  CHECK((*started.filesystem)->container(dead.ino("d/big")).error().code == EIO);
}

TEST_CASE(
    "a container that is missing: of an input the file comes again, what was brought out keeps its "
    "name",
    "[image][containers]") {
  const DeadImage dead;
  stdfs::remove(dead.container("input/clean"));
  {
    const Started started(dead);
    REQUIRE(started.filesystem);
    CHECK((*started.filesystem)->recovery().dropped == std::vector<std::string>{"input/clean"});
  }
  stdfs::remove(dead.container("saved"));
  CHECK(damage_in(dead).contains("saved: its container"));
  {
    const Started started(dead);
    REQUIRE(started.filesystem);
    CHECK((*started.filesystem)->recovery().lost == std::vector<std::string>{"saved"});
  }
  const Started after(dead, true);
  REQUIRE(after.filesystem);
  CHECK((*after.filesystem)->recovery().dropped == std::vector<std::string>{"saved"});
}

TEST_CASE(
    "a container that is missing: an input that has another name now keeps that, and a salvage "
    "names each",
    "[image][containers]") {
  const DeadImage dead;
  const bool moved = GENERATE(false, true);
  if (moved) {
    const Started started(dead);
    REQUIRE(started.filesystem);
    const auto input = (*started.filesystem)->lookup(fs::root_ino, "input");
    REQUIRE((*started.filesystem)->rename({}, {input->ino, "clean"}, {fs::root_ino, "moved"}, 0));
  }
  const std::string name = moved ? "moved" : "input/clean";
  stdfs::remove(dead.container("input/clean"));
  CHECK(damage_in(dead).contains(name + ": its container"));
  const auto receipt = brought_out(dead);
  CHECK(test::told_of(receipt, name).action == (moved ? Action::failed : Action::skipped));
  CHECK(test::told_of(receipt, name).reason.contains("was removed from the store"));
  CHECK((receipt.verdict == stage::Verdict::complete) == !moved);
  CHECK(std::ranges::count(receipt.entries, name, &stage::ReceiptEntry::path) == 1);
  const Started started(dead);
  REQUIRE(started.filesystem);
  CHECK((*started.filesystem)->recovery().lost ==
        (moved ? std::vector<std::string>{"moved"} : std::vector<std::string>()));
}

// For any container: a start reports a file that cannot be imported again, and leaves all others
// unchanged.
TEST_CASE(
    "containers that are removed, exchanged for something else or put elsewhere at random are "
    "missed by a start, which leaves the others alone",
    "[image][containers]") {
  const auto seed = test::seed();
  INFO("EFS_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  const std::vector<std::string> files{"input/changed",   "input/clean", "saved",
                                       "saved-and-there", "d/big",       "d/sparse",
                                       "d/empty",         "linked",      "replaced"};
  for (int round = 0; round < 40; ++round) {
    const DeadImage dead({.snapshot = random() % 2 == 0});
    const std::string victim = files[random() % files.size()], container = dead.container(victim);
    std::map<std::string, std::string> before;
    for (const auto& file : files) {
      before[file] = test::text_of(dead.container(file));
    }
    const auto how = random() % 6;
    INFO("round " << round << ": " << victim << ", " << how);
    stdfs::rename(container, dead.store() + "/aside");
    switch (how) {
      case 0: break;
      case 1: stdfs::create_directory(container); break;
      case 2:
        stdfs::create_symlink(dead.container(victim == "d/big" ? "linked" : "d/big"), container);
        break;
      case 3: REQUIRE(::mkfifo(container.c_str(), 0600) == 0); break;
      case 4: stdfs::rename(dead.store() + "/aside", container + "~"); break;
      default:
        stdfs::rename(dead.store() + "/aside",
                      dead.store() + "/data/" + (container.contains("/data/00/") ? "01/" : "00/") +
                          stdfs::path(container).filename().string());
    }
    const Started started(dead);
    REQUIRE(started.filesystem);
    CHECK(std::ranges::count((*started.filesystem)->recovery().lost, victim) ==
          (victim == "input/clean" ? 0 : 1));
    for (const auto& [file, content] : before) {
      if (file != victim) {
        CHECK((test::text_of(dead.container(file)) == content &&
               stdfs::is_regular_file(stdfs::symlink_status(dead.container(file)))));
      }
    }
    CHECK(damage_in(dead).contains(victim == "linked"
                                       ? "linked: its container"
                                       : victim + ": its container") == (victim != "input/clean"));
  }
}

TEST_CASE("after power loss what lost its container is empty, and known as such while it is",
          "[image][containers]") {
  const DeadImage dead;
  stdfs::remove(dead.container("d/big"));
  stdfs::remove(dead.container("linked"));
  Started started(dead, true);
  REQUIRE(started.filesystem);
  CHECK((*started.filesystem)->recovery().emptied ==
        std::vector<std::string>{"d/also-linked", "d/big", "linked"});
  fs::Staging staging(**started.filesystem);
  CHECK(staging.lost_its_content(*staging.find("d/big")));
  CHECK_FALSE(staging.lost_its_content(*staging.find("d/empty")));
  const auto ino = dead.ino("d/big");
  REQUIRE((*started.filesystem)->write({}, ino, std::as_bytes(std::span("anew", 4)), 0));
  CHECK_FALSE(staging.lost_its_content(*staging.find("d/big")));
}

TEST_CASE(
    "a file that power loss emptied is a failed result, also for later starts and a salvage, until "
    "a program changes it",
    "[image][containers]") {
  const DeadImage dead;
  stdfs::remove(dead.container("d/big"));
  {
    REQUIRE(Started(dead, true).filesystem);
  }
  {
    Started started(dead);  // as after a stop --keep, or a takeover
    REQUIRE(started.filesystem);
    auto& filesystem = **started.filesystem;
    REQUIRE(filesystem.recovery().emptied.empty());
    fs::Staging staging(filesystem);
    const auto items = staging.walk();
    REQUIRE(items);
    const auto selection = stage::select_outgoing({.results_dir = "/results"}, *items);
    const auto lost = std::ranges::find(selection.settled, "d/big", &stage::ReceiptEntry::path);
    REQUIRE(lost != selection.settled.end());
    CHECK(lost->action == Action::failed);
    CHECK(lost->unreadable);
    CHECK(std::ranges::count(selection.settled, Action::failed, &stage::ReceiptEntry::action) == 1);
    const auto outgoing = [&](const std::string& path) {
      return std::ranges::any_of(selection.outgoing,
                                 [&](const auto* item) { return item->path == path; });
    };
    CHECK(outgoing("d/empty"));
    CHECK_FALSE(outgoing("d/big"));
  }
  const auto receipt = brought_out(dead);
  CHECK(receipt.verdict == stage::Verdict::partial);
  CHECK(test::told_of(receipt, "d/big").action == Action::failed);
  CHECK(test::told_of(receipt, "d/big").reason.contains("power loss"));
  CHECK_FALSE(stdfs::exists(dead.results() + "/d/big"));
  {
    Started started(dead);
    REQUIRE(started.filesystem);
    // a program makes it empty on purpose
    fs::AttributeChange change;
    change.size = 0;
    REQUIRE((*started.filesystem)->setattr({}, dead.ino("d/big"), change));
    CHECK_FALSE(fs::Staging(**started.filesystem)
                    .lost_its_content(*fs::Staging(**started.filesystem).find("d/big")));
  }
  CHECK(brought_out(dead).verdict == stage::Verdict::complete);
  CHECK(stdfs::exists(dead.results() + "/d/big"));
}

TEST_CASE("a start that dies while it makes files empty does not leave them as results",
          "[image][containers]") {
  const DeadImage dead;
  const std::string list = dead.store() + "/meta/emptied";
  stdfs::remove(dead.container("d/big"));
  {
    REQUIRE(Started(dead, true).filesystem);
  }
  // The first start made the list and the container, and died before it set the mark.
  const std::string whole = test::text_of(list);
  const std::string mark = whole.substr(whole.find(' ') + 1);
  std::ofstream(list) << "0 " << mark << whole;
  stdfs::last_write_time(dead.container("d/big"), stdfs::file_time_type::clock::now());

  CHECK(test::told_of(brought_out(dead), "d/big").action == Action::failed);
  for (int start = 0; start < 2; ++start) {
    Started started(dead);
    REQUIRE(started.filesystem);
    fs::Staging staging(**started.filesystem);
    CHECK(staging.lost_its_content(*staging.find("d/big")));
    CHECK_FALSE(staging.lost_its_content(*staging.find("d/empty")));
    CHECK((*started.filesystem)->recovery().emptied_before);
  }
  CHECK(test::text_of(list) == whole);
}

TEST_CASE("a start that cannot list what power loss emptied makes nothing empty",
          "[image][containers]") {
  const DeadImage dead;
  stdfs::remove(dead.container("d/big"));
  stdfs::create_directories(dead.store() + "/meta/emptied.new/in-the-way");
  const Started failed(dead, true);
  REQUIRE_FALSE(failed.filesystem);
  CHECK(failed.filesystem.error().what.contains("cannot be written"));
  CHECK_FALSE(stdfs::exists(dead.container("d/big")));
}

TEST_CASE("a start that cannot read what power loss emptied says so", "[image][containers]") {
  const DeadImage dead;
  stdfs::create_directory(dead.store() + "/meta/emptied");
  const Started failed(dead);
  REQUIRE_FALSE(failed.filesystem);
  CHECK(failed.filesystem.error().what.contains("cannot be read"));
}

TEST_CASE("a container under another number is no file's, and its original stays",
          "[image][containers]") {
  const DeadImage dead;
  const std::string another = dead.store() + "/data/c8/00000000000000c8";
  stdfs::copy_file(dead.container("d/big"), another);
  CHECK(damage_in(dead) == "");
  CHECK(findings(dead, Severity::leftover).contains("container 200: no record names it"));
  CHECK(brought_out(dead).verdict == stage::Verdict::complete);
  stdfs::remove(another);
  stdfs::create_hard_link(dead.container("d/big"), another);
  CHECK(damage_in(dead).contains("would share their content"));
}

TEST_CASE(
    "a clean file whose container was exchanged, cut short or taken from another instance is "
    "found, and staged in anew",
    "[image][containers]") {
  const DeadImage dead;
  SECTION("exchanged with another file's") {
    exchange_files(dead.container("input/clean"), dead.container("linked"));
  }
  SECTION("cut short") {
    stdfs::resize_file(dead.container("input/clean"), 5);
  }
  SECTION("one of the same size, of another instance") {
    const std::string container = dead.container("input/clean");
    write_over(container + "-aside", std::string(stdfs::file_size(container), 'f'));
    stdfs::rename(container + "-aside", container);
  }
  const std::string told = damage_in(dead),
                    container = "input/clean: container " + std::to_string(dead.ino("input/clean"));
  CHECK((told.contains(container + " is not what was staged in") ||
         told.contains(container + " is labelled as another one's")));
  const test::TempDirectory elsewhere("/dev/shm");
  const auto receipt = brought_out(dead, {.to = elsewhere.path() + "/to", .all = true});
  CHECK(receipt.verdict == stage::Verdict::partial);
  CHECK(test::told_of(receipt, "input/clean").action == Action::failed);
  const std::string& reason = test::told_of(receipt, "input/clean").reason;
  CHECK((reason.contains("not what was staged in") ||
         reason.contains("is labelled as another one's") || reason.contains("has lost its label")));
  CHECK(outdated_at_start(dead) == std::vector<std::string>{"input/clean"});
}

TEST_CASE(
    "after power loss a clean file that was not on the medium yet, and is not what was staged in, "
    "is no damage: a start brings it again",
    "[image][containers]") {
  const DeadImage dead({.on_disk = true});
  if (test::open_containers(dead.store())->durability() == Durability::volatile_memory) {
    SKIP("the directory for temporary files is in memory");
  }
  stdfs::resize_file(dead.container("input/clean"), 5);
  const std::string told = "input/clean: container " + std::to_string(dead.ino("input/clean")) +
                           " is not what was staged in: it has 5 bytes";
  CHECK(damage_in(dead).contains(told));
  dead.write_manifest("another boot");
  CHECK(damage_in(dead) == "");
  CHECK(findings(dead, Severity::leftover).contains(told));
  CHECK(brought_out(dead).verdict == stage::Verdict::complete);
  REQUIRE(image::repair_image(dead.store()));
  CHECK_FALSE(findings(dead, Severity::leftover).contains("input/clean"));
  const Started started(dead, true);
  REQUIRE(started.filesystem);
  CHECK_FALSE(fs::Staging(**started.filesystem).find("input/clean"));
}

// Checks the file system, not the store. tmpfs keeps labels since Linux 6.6. If the file system
// does, a store without labels is a failure.
bool keeps_labels(const DeadImage& dead) {
  return ::setxattr(dead.store().c_str(), "user.probe", "1", 1, 0) == 0;
}

// Checks that no read-only open, salvage or program gets the content of another file under this
// name, and that no action on this file changes the other one.
void is_refused(const DeadImage& dead, const std::string& path, const std::string& why) {
  INFO(path);
  const std::string told = "container " + std::to_string(dead.ino(path)) + " " + why;
  CHECK(damage_in(dead).contains(path + ": " + told));
  const auto receipt = brought_out(dead);
  CHECK(receipt.verdict == stage::Verdict::partial);
  CHECK(test::told_of(receipt, path).action == Action::failed);
  CHECK(test::told_of(receipt, path).reason.contains(told));
  CHECK_FALSE(stdfs::exists(dead.results() + "/" + path));
  CHECK(test::told_of(receipt, "d/sparse").action == Action::staged_out);
  const std::string content = test::text_of(dead.container(path));
  Started started(dead);
  REQUIRE(started.filesystem);
  for (const int flags : {O_WRONLY, O_RDWR | O_TRUNC}) {
    CHECK((*started.filesystem)->open({}, dead.ino(path), flags).error().code == EUCLEAN);
  }
  std::array<std::byte, 8> bytes{};
  CHECK((*started.filesystem)->read(dead.ino(path), bytes, 0).error().code == EUCLEAN);
  CHECK(started.backend->remove(dead.ino(path)).has_value() != why.contains("another one's"));
  if (why.contains("another one's")) {
    CHECK(test::text_of(dead.container(path)) == content);
  }
}

TEST_CASE(
    "containers that were exchanged, or taken from another instance, are told, given to nobody and "
    "not removed",
    "[image][containers]") {
  const DeadImage dead;
  if (!keeps_labels(dead)) {
    SKIP("this kernel keeps no extended attributes on tmpfs");
  }
  const std::string another = "is labelled as another one's";
  SECTION("of two new files") {
    exchange_files(dead.container("linked"), dead.container("d/big"));
    CHECK(damage_in(dead).contains("container " + std::to_string(dead.ino("linked")) +
                                   " is labelled"));
    is_refused(dead, "d/big", another);
  }
  SECTION("and back") {
    exchange_files(dead.container("linked"), dead.container("d/big"));
    exchange_files(dead.container("linked"), dead.container("d/big"));
    CHECK(damage_in(dead) == "");
  }
  SECTION("of an input that the job changed and a new file") {
    exchange_files(dead.container("input/changed"), dead.container("d/big"));
    CHECK(damage_in(dead).contains("input/changed: container"));
    is_refused(dead, "d/big", another);
  }
  SECTION("of an input that nobody changed and a new file") {
    exchange_files(dead.container("input/clean"), dead.container("d/big"));
    CHECK(damage_in(dead).contains("input/clean: container"));
    is_refused(dead, "d/big", another);
  }
  SECTION("of another instance") {
    const DeadImage other;
    REQUIRE(other.ino("d/big") == dead.ino("d/big"));
    stdfs::copy_file(other.container("d/big"), dead.container("d/big") + "-aside");
    std::array<char, 96> label{};
    const auto length =
        ::getxattr(other.container("d/big").c_str(), label_name, label.data(), label.size());
    REQUIRE(length > 0);
    REQUIRE(::setxattr((dead.container("d/big") + "-aside").c_str(), label_name, label.data(),
                       static_cast<std::size_t>(length), 0) == 0);
    stdfs::rename(dead.container("d/big") + "-aside", dead.container("d/big"));
    is_refused(dead, "d/big", another);
  }
  SECTION("a file that somebody has put there") {
    stdfs::copy_file(dead.container("d/sparse"), dead.container("d/big") + "-aside");
    stdfs::rename(dead.container("d/big") + "-aside", dead.container("d/big"));
    is_refused(dead, "d/big", "has lost its label");
  }
  SECTION("a label that is none") {
    const std::string label(200, 'x');
    REQUIRE(::setxattr(dead.container("d/big").c_str(), label_name, label.data(), label.size(),
                       0) == 0);
    is_refused(dead, "d/big", another);
  }
}

// The state that ext4 and XFS can leave after a crash: the name is one transaction, the label the
// next.
TEST_CASE(
    "after power loss an empty container without a label is that of an empty file; without one it "
    "is refused",
    "[image][containers]") {
  const DeadImage dead;
  if (!keeps_labels(dead)) {
    SKIP("this kernel keeps no extended attributes on tmpfs");
  }
  write_over(dead.container("d/big") + "-aside", "");
  stdfs::rename(dead.container("d/big") + "-aside", dead.container("d/big"));
  const auto ino = dead.ino("d/big");
  {
    Started started(dead);
    REQUIRE(started.filesystem);
    CHECK((*started.filesystem)->container(ino).error().code == EUCLEAN);
    CHECK(started.backend->ownership(ino) == Ownership::unfinished);
  }
  CHECK(
      damage_in(dead).contains("d/big: container " + std::to_string(ino) + " has lost its label"));
  dead.write_manifest("another boot");
  CHECK_FALSE(damage_in(dead).contains("d/big"));
  CHECK(findings(dead, Severity::leftover)
            .contains("d/big: container " + std::to_string(ino) + " is empty: power loss"));
  const auto receipt = brought_out(dead);
  CHECK(receipt.verdict == stage::Verdict::partial);
  CHECK(test::told_of(receipt, "d/big").reason.contains("power loss"));
  // after it nothing would say so
  CHECK(image::repair_image(dead.store()).error().code == EUCLEAN);
  CHECK(test::told_of(brought_out(dead), "d/big").reason.contains("power loss"));
  Started started(dead, true);
  REQUIRE(started.filesystem);
  CHECK((*started.filesystem)->recovery().emptied == std::vector<std::string>{"d/big"});
  CHECK((*started.filesystem)->open({}, ino, O_RDWR));
  CHECK(started.backend->ownership(ino) == Ownership::own);
  CHECK(damage_in(dead) == "");
}

TEST_CASE("a container with a name outside of the store and without a seal is told",
          "[image][containers]") {
  const DeadImage dead;
  stdfs::create_hard_link(dead.container("d/big"), dead.store() + "/elsewhere");
  CHECK(damage_in(dead) == "");
  CHECK(findings(dead, Severity::note)
            .contains("container " + std::to_string(dead.ino("d/big")) +
                      ": has 1 names outside of the store and no seal"));
}

TEST_CASE(
    "a container under a number that no record knows, which belongs to another file by its label, "
    "is damage, and no repair removes it",
    "[image][containers]") {
  const DeadImage dead;
  if (!keeps_labels(dead)) {
    SKIP("this kernel keeps no extended attributes on tmpfs");
  }
  // has lost its name, and its inode with it
  const std::string lost = dead.container("open-without-a-name");
  stdfs::rename(dead.container("d/big"), lost);
  stdfs::copy_file(dead.container("input/clean"), dead.container("d/big"));
  CHECK(damage_in(dead).contains("is labelled as another one's"));
  auto backend = test::open_containers(dead.store());
  CHECK_FALSE(backend->remove(dead.ino("open-without-a-name")));
  CHECK(test::text_of(lost) == std::string(150'000, 'b'));
}

TEST_CASE(
    "containers of a store whose labels were lost as a whole, and inputs that the cache shares, "
    "are not told apart from others",
    "[image][containers]") {
  const DeadImage dead;
  SECTION("no labels") {
    ::removexattr((dead.store() + "/data").c_str(), label_name);
  }
  SECTION("as shared with the cache") {
    for (const char* path : {"linked", "d/big"}) {
      ::removexattr(dead.container(path).c_str(), label_name);
      ::chmod(dead.container(path).c_str(), 0700);
    }
  }
  exchange_files(dead.container("linked"), dead.container("d/big"));
  CHECK(damage_in(dead) == "");
  const auto receipt = brought_out(dead);
  CHECK(test::told_of(receipt, "linked").evidence == "as-found");
}
