// SPDX-License-Identifier: BSD-3-Clause
// Salvage under faults: every call to the PFS fails once, and from one call on all of them do;
// reads and writes are short; and every allocation of memory fails.
#include "image/salvage.hpp"

#include <sys/xattr.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <set>
#include <utility>

#include "support/dead_image.hpp"
#include "support/short_of_memory.hpp"
#include "unit/stage/fault_pfs.hpp"

using namespace efs;
using stage::Action;
using stage::test::FaultPfs;
using test::DeadImage;
namespace stdfs = std::filesystem;

namespace {

std::size_t open_descriptors() {
  return static_cast<std::size_t>(
      std::distance(stdfs::directory_iterator("/proc/self/fd"), stdfs::directory_iterator{}));
}

stage::Receipt salvage(const DeadImage& dead, stage::PfsIo& pfs = stage::posix_pfs(),
                       unsigned retries = 0) {
  auto image = image::open_image(dead.store());
  REQUIRE(image);
  image->config.workers = 1;
  image->config.retries = retries;
  stage::Progress progress;
  return image::salvage(*image, {}, progress, pfs);
}

bool is_out(Action action) {
  return action == Action::staged_out || action == Action::kept || action == Action::removed;
}

/// The state of results-dir after a complete export, from the walk of the offline store: the whole
/// content, or "-> TARGET", or "directory".
using Outcome = std::map<std::string, std::string>;

Outcome what_is_at(const std::string& directory, const std::set<std::string>& paths) {
  Outcome found;
  for (const auto& path : paths) {
    const stdfs::path real = directory + "/" + path;
    const auto type = stdfs::symlink_status(real).type();
    if (type == stdfs::file_type::symlink) {
      found[path] = "-> " + stdfs::read_symlink(real).string();
    } else if (type == stdfs::file_type::directory) {
      found[path] = "directory";
    } else if (type == stdfs::file_type::regular) {
      found[path] = test::text_of(real.string());
    }
  }
  return found;
}

struct Expected {
  std::set<std::string> paths;  // that a salvage exports or removes
  Outcome whole;
};

Expected expected_of(const DeadImage& dead) {
  dead.fill_results();
  const auto receipt = salvage(dead);
  INFO(stage::describe(receipt));
  REQUIRE(receipt.verdict == stage::Verdict::complete);
  Expected expected;
  for (const auto& entry : receipt.entries) {
    if (is_out(entry.action)) {
      expected.paths.insert(entry.path);
    }
  }
  expected.whole = what_is_at(dead.results(), expected.paths);
  return expected;
}

std::set<std::string> partials_at(const std::string& directory) {
  std::set<std::string> found;
  for (const auto& entry : stdfs::recursive_directory_iterator(
           directory, stdfs::directory_options::skip_permission_denied)) {
    if (entry.path().string().ends_with(".efs-partial") &&
        test::text_of(entry.path()) != DeadImage::stale) {
      found.insert(entry.path().filename());
    }
  }
  return found;
}

std::string outcome_of(const Outcome& all, const std::string& path) {
  return all.contains(path) ? all.at(path) : "nothing";
}

/// Checks that no file is incomplete.
std::string check_files(const DeadImage& dead, const Expected& expected, const Outcome& before) {
  const Outcome now = what_is_at(dead.results(), expected.paths);
  for (const auto& path : expected.paths) {
    if (outcome_of(now, path) != outcome_of(expected.whole, path) &&
        outcome_of(now, path) != outcome_of(before, path)) {
      return path + " is neither what it was nor whole";
    }
  }
  return "";
}

// `failed`: the first failed call. If a claim could not be released after its name was given, only
// the log reports it.
std::string check(const DeadImage& dead, const Expected& expected, const stage::Receipt& receipt,
                  const Outcome& before, const std::string& failed = "") {
  if (std::string wrong = check_files(dead, expected, before); !wrong.empty()) {
    return wrong;
  }
  const Outcome now = what_is_at(dead.results(), expected.paths);
  std::map<std::string, const stage::ReceiptEntry*> entries;
  bool all_out = true;
  std::string reasons;
  for (const auto& entry : receipt.entries) {
    entries[entry.path] = &entry;
    reasons += entry.reason + "\n";
  }
  for (const auto& path : expected.paths) {
    if (!entries.contains(path)) {
      return path + " is not in the receipt";
    }
    const auto& entry = *entries.at(path);
    if (is_out(entry.action) && outcome_of(now, path) != outcome_of(expected.whole, path)) {
      return path + " is called out and is not";
    }
    if (!is_out(entry.action) && entry.reason.empty()) {
      return path + " is not out without a reason";
    }
    all_out = all_out && is_out(entry.action);
  }
  if (!all_out && (receipt.verdict == stage::Verdict::complete || stage::exit_code(receipt) == 0)) {
    return "a success without all results";
  }
  for (const auto& partial : partials_at(dead.results())) {
    if (reasons.find(partial) == std::string::npos && failed != "unlink " + partial) {
      return "nothing tells of " + partial;
    }
  }
  return "";
}

// Without the ledger, which records the names given in results-dir.
std::map<std::string, std::string> image_below(const DeadImage& dead) {
  auto all = test::everything_below(dead.store());
  all.erase("/meta");
  all.erase("/meta/placed");
  return all;
}

struct Faults {
  int code = EIO;
  bool for_good = false;
  std::size_t most = SIZE_MAX;  // bytes of a read or write
  bool in_place = false;
};

// One offline store serves all rounds while it stays unchanged; in place the inputs are part of it.
void every_call_fails(const Faults& faults) {
  std::optional<DeadImage> dead(std::in_place, DeadImage::Kind{.in_place = faults.in_place});
  Expected expected = expected_of(*dead);
  if (faults.in_place) {
    dead.emplace(DeadImage::Kind{.in_place = true});
  }
  const auto seed = test::seed();
  const test::Sample sample(seed);
  std::uint64_t failures = 0, calls = 0;
  for (std::uint64_t n = sample.first;; n += sample.step) {
    dead->fill_results();
    const auto image = image_below(*dead);
    const Outcome before = what_is_at(dead->results(), expected.paths);
    const auto descriptors = open_descriptors();
    std::string failed;
    FaultPfs pfs([&](std::uint64_t number, const std::string& call, const std::string& object) {
      if (number == n) {
        failed = call + " " + object;
      }
      return number == n || (faults.for_good && number > n) ? faults.code : 0;
    });
    pfs.most = faults.most;
    const auto receipt = salvage(*dead, pfs);
    INFO("EFS_SAMPLE=" << sample.step << " EFS_TEST_SEED=" << seed << ", call " << n << " ("
                       << failed << ") fails with " << faults.code
                       << (faults.for_good ? ", and all after it" : "") << ": "
                       << stage::describe(receipt));
    REQUIRE(check(*dead, expected, receipt, before, failed) == "");
    REQUIRE(open_descriptors() == descriptors);
    REQUIRE((image_below(*dead) == image));
    if (receipt.verdict != stage::Verdict::complete) {
      ++failures;
    }
    calls = std::max(calls, pfs.calls());
    const auto again = salvage(*dead);
    INFO("again: " << stage::describe(again));
    REQUIRE(again.verdict == stage::Verdict::complete);
    REQUIRE((what_is_at(dead->results(), expected.paths) == expected.whole));
    REQUIRE(partials_at(dead->results()).empty());
    if (pfs.calls() <= n) {
      REQUIRE(receipt.verdict == stage::Verdict::complete);
      break;
    }
    if (faults.in_place) {
      dead.emplace(DeadImage::Kind{.in_place = true});
    }
  }
  CHECK(calls > 30);
  if (sample.step == 1) {
    CHECK(failures > 30);  // which of them a sample meets is luck
  }
}

/// The image is opened while there is memory.
std::optional<stage::Receipt> salvage_short_of_memory(
    const DeadImage& dead,
    const std::function<void(const std::function<void()>&)>& short_of_memory) {
  auto image = image::open_image(dead.store());
  REQUIRE(image);
  image->config.workers = 1;
  stage::Progress progress;
  std::optional<stage::Receipt> receipt;
  short_of_memory([&] {
    try {
      receipt = image::salvage(*image, {}, progress);
    } catch (const std::bad_alloc&) {
    }  // the program's to tell
  });
  return receipt;
}

// As every_call_fails().
void every_allocation_fails() {
  const DeadImage dead;
  const Expected expected = expected_of(dead);
  const auto image = image_below(dead);
  const auto allocations =
      test::each_allocation_fails(test::Shortage::once, [&](const auto& short_of_memory) {
        dead.fill_results();
        const Outcome before = what_is_at(dead.results(), expected.paths);
        const auto descriptors = open_descriptors();
        const auto receipt = salvage_short_of_memory(dead, short_of_memory);
        INFO((receipt ? stage::describe(*receipt) : "no receipt"));
        const bool lists = receipt && receipt->reason.empty();  // else all was given up
        REQUIRE((lists ? check(dead, expected, *receipt, before)
                       : check_files(dead, expected, before)) == "");
        if (receipt && !lists) {
          REQUIRE(stage::exit_code(*receipt) != 0);
        }
        REQUIRE(open_descriptors() == descriptors);
        REQUIRE(partials_at(dead.results()).empty());
        const auto again = salvage(dead);
        INFO("again: " << stage::describe(again));
        REQUIRE(again.verdict == stage::Verdict::complete);
        REQUIRE((what_is_at(dead.results(), expected.paths) == expected.whole));
        REQUIRE(partials_at(dead.results()).empty());
      });
  CHECK((image_below(dead) == image));
  CHECK(allocations > 100);
}

/// False where it died: before the nth call.
bool salvage_killed_at(const DeadImage& dead, std::uint64_t n) {
  const auto code = stage::test::killed_at_call(
      n, [&](stage::PfsIo& pfs) { return stage::exit_code(salvage(dead, pfs)); });
  REQUIRE(code.value_or(0) == 0);
  return code.has_value();
}

/// Puts another user's files under all names that a killed salvage has given or removed.
std::set<std::string> take_names(const DeadImage& dead, const Expected& expected,
                                 const Outcome& before) {
  std::set<std::string> taken;
  const Outcome now = what_is_at(dead.results(), expected.paths);
  for (const auto& path : expected.paths) {
    const std::string there = outcome_of(now, path);
    if (there == "directory" || there == outcome_of(before, path)) {
      continue;
    }
    const std::string whole = dead.results() + "/" + path, theirs = dead.results() + "/.theirs";
    DeadImage::put(theirs, "THEIRS");
    stdfs::rename(theirs, whole);
    taken.insert(path);
  }
  return taken;
}

}  // namespace

TEST_CASE("salvage: what it brings out of an image with every kind of file", "[image][salvage]") {
  const DeadImage dead;
  const auto expected = expected_of(dead);
  CHECK(expected.paths == std::set<std::string>{"d", "d/also-linked", "d/big", "d/empty",
                                                "d/empty-directory", "d/link", "d/sparse",
                                                "input/changed", "linked", "replaced", "saved",
                                                "saved-and-there"});
  CHECK(expected.whole.at("d/sparse") == "start" + std::string(59'995, '\0'));
  CHECK(expected.whole.at("input/changed") == "as the job left it");
  CHECK(expected.whole.at("replaced") == "new");
  struct stat one{}, other{};
  REQUIRE(::stat((dead.results() + "/linked").c_str(), &one) == 0);
  REQUIRE(::stat((dead.results() + "/d/also-linked").c_str(), &other) == 0);
  CHECK(one.st_ino == other.st_ino);
  char value[32];
  CHECK(::getxattr((dead.results() + "/d/big").c_str(), "user.of", value, sizeof value) == 6);
}

TEST_CASE("salvage: every PFS call fails once", "[image][salvage][faults]") {
  for (const int code : {EIO, ENOSPC, EACCES}) {
    every_call_fails({.code = code});
  }
}

TEST_CASE("salvage: from one PFS call on all fail", "[image][salvage][faults]") {
  for (const int code : {EIO, ENOSPC, EACCES}) {
    every_call_fails({.code = code, .for_good = true});
  }
}

TEST_CASE("salvage: reads and writes are short, and every PFS call fails once",
          "[image][salvage][faults]") {
  every_call_fails({.most = 20'000});
}

TEST_CASE(
    "salvage in place, with inputs that the job removed: every PFS call fails, once and for good",
    "[image][salvage][faults]") {
  for (const int code : {EIO, ENOSPC}) {
    every_call_fails({.code = code, .in_place = true});
  }
  every_call_fails({.for_good = true, .in_place = true});
}

TEST_CASE(
    "salvage in place, killed at every PFS call: whose each name is, is known to the next one",
    "[image][salvage][faults][killed][placed]") {
  Expected expected;
  {
    const DeadImage whole(DeadImage::Kind{.in_place = true});
    expected = expected_of(whole);
  }
  const auto seed = test::seed();
  const test::Sample sample(seed);
  std::set<std::string> met;
  for (std::uint64_t n = sample.first;; n += sample.step) {
    INFO("EFS_SAMPLE=" << sample.step << " EFS_TEST_SEED=" << seed << ": killed before call " << n);
    bool is_over = false;
    for (const bool others : {false, true}) {
      const DeadImage dead(DeadImage::Kind{.in_place = true});
      const Outcome before = what_is_at(dead.results(), expected.paths);
      is_over = salvage_killed_at(dead, n);
      const auto theirs = others ? take_names(dead, expected, before) : std::set<std::string>();
      met.insert(theirs.begin(), theirs.end());
      const auto receipt = salvage(dead);
      INFO("then: " << stage::describe(receipt));
      Outcome wanted = expected.whole;
      for (const auto& path : theirs) {
        wanted[path] = "THEIRS";
      }
      if (theirs.empty()) {
        REQUIRE(receipt.verdict == stage::Verdict::complete);
      }
      for (const auto& path : theirs) {
        REQUIRE(outcome_of(what_is_at(dead.results(), expected.paths), path) == "THEIRS");
      }
      if (theirs.empty()) {
        REQUIRE((what_is_at(dead.results(), expected.paths) == wanted));
      }
      if (!theirs.empty()) {
        REQUIRE((receipt.verdict != stage::Verdict::complete || is_over));
      }
      REQUIRE(partials_at(dead.results()).empty());
    }
    if (is_over) {
      break;
    }
  }
  CHECK(met.size() == 9);
}

TEST_CASE("salvage: what passes is repeated, as the job file says", "[image][salvage]") {
  const DeadImage dead;
  dead.fill_results();
  bool failed = false;
  FaultPfs pfs([&](auto, const std::string& call, const auto&) {
    return call == "lstat" && !std::exchange(failed, true) ? EIO : 0;
  });
  const auto receipt = salvage(dead, pfs, 1);
  CHECK(failed);
  CHECK(receipt.verdict == stage::Verdict::complete);
  CHECK(receipt.retries == 1);
}

TEST_CASE("salvage: every allocation of memory fails once", "[image][salvage][faults][memory]") {
  every_allocation_fails();
}
