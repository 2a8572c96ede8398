// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/unloaded.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "stage/live/drop.hpp"
#include "support/temp.hpp"

using namespace efs;
using daemon::Unloaded;
using stage::Action;
using stage::Receipt;
using stage::ReceiptEntry;

namespace {

ReceiptEntry entry(std::string path, Action action, std::string reason = {}) {
  ReceiptEntry entry;
  entry.path = std::move(path);
  entry.action = action;
  entry.bytes = 7;
  entry.reason = std::move(reason);
  return entry;
}

Receipt receipt_of(std::vector<ReceiptEntry> entries) {
  Receipt receipt;
  receipt.job = "job";
  receipt.entries = std::move(entries);
  stage::settle(receipt);
  return receipt;
}

const ReceiptEntry* find(const Receipt& receipt, const std::string& path) {
  const auto found = std::ranges::find(receipt.entries, path, &ReceiptEntry::path);
  return found == receipt.entries.end() ? nullptr : &*found;
}

}  // namespace

TEST_CASE("unloaded: the receipt of the stop tells what unloads brought out, whoever did it",
          "[unloaded]") {
  const test::TempDirectory place("/dev/shm");
  const std::string book = place.path() + "/unloaded", odd = "odd \xff\n\"name\"";
  Receipt first = receipt_of({entry("same", Action::staged_out),
                              entry("again", Action::staged_out, "the first time"),
                              entry("gone", Action::staged_out), entry("failed", Action::failed),
                              entry(odd, Action::kept)});
  for (auto& one : first.entries) {
    if (one.path == "same") {
      one.checksum = 0xfedcba9876543210, one.unverified = true,
      one.mtime = 1'234'567'890'123'456'789;
    }
  }
  Unloaded before(book);
  before.inherit(false);
  before.remember(first);
  Unloaded after(book);
  bool takes_over = true;
  SECTION("a successor of the worker") {
    after.inherit(true);
  }
  SECTION("a new instance knows of nothing") {
    after.inherit(takes_over = false);
  }
  after.remember(receipt_of({entry("again", Action::staged_out, "the second time")}));
  Receipt last =
      receipt_of({entry("same", Action::unchanged), entry("again", Action::unchanged),
                  entry("other", Action::unchanged), entry("failed", Action::staged_out)});
  for (auto& one : last.entries) {
    if (one.path == "same") {
      one.mtime = 1'234'567'890'123'456'789;
    }
  }
  after.add_to(last, [](const std::string& path) { return path != "gone"; }, {});
  CHECK(find(last, "again")->reason == "unloaded while the job ran: the second time");
  CHECK(find(last, "other")->reason.empty());
  CHECK(find(last, "failed")->reason.empty());
  if (!takes_over) {
    CHECK(find(last, "same")->reason.empty());
    CHECK(find(last, "gone") == nullptr);
    return;
  }
  CHECK(find(last, "same")->reason == "unloaded while the job ran");
  CHECK(find(last, "same")->checksum == 0xfedcba9876543210);
  CHECK(find(last, "same")->unverified);
  REQUIRE(find(last, "gone") != nullptr);
  CHECK(find(last, "gone")->reason.contains("the job removed or renamed it since"));
  CHECK(last.note.contains("gone"));
  REQUIRE(find(last, odd) != nullptr);
  CHECK(find(last, odd)->action == Action::kept);
  CHECK(last.totals.staged_out == 2);
}

TEST_CASE("unloaded: that a result replaced a file stays told", "[unloaded]") {
  const test::TempDirectory place("/dev/shm");
  const std::string book = place.path() + "/unloaded";
  const auto replacing = [](std::string path) {
    auto one = entry(std::move(path), Action::staged_out);
    one.replaced = true;
    return one;
  };
  Unloaded before(book);
  before.inherit(false);
  before.remember(receipt_of({replacing("clean"), replacing("again"), replacing("twice")}));
  before.remember(receipt_of({entry("twice", Action::staged_out)}));
  Unloaded after(book);
  bool is_successor = true;
  SECTION("by this process") {
    is_successor = false;
  }
  SECTION("by its predecessor") {
    after.inherit(true);
    after.remember(receipt_of({entry("twice", Action::staged_out)}));
  }
  Receipt last = receipt_of({entry("clean", Action::unchanged), entry("twice", Action::unchanged),
                             entry("again", Action::staged_out)});
  (is_successor ? after : before).add_to(last, [](const std::string&) { return true; }, {});
  CHECK(last.totals.replaced == 3);
}

TEST_CASE(
    "unloaded: of another version than was unloaded, which a stop has brought out since, nothing "
    "is told that is not so",
    "[unloaded]") {
  const test::TempDirectory place("/dev/shm");
  Unloaded unloaded(place.path() + "/unloaded");
  unloaded.inherit(false);
  Receipt first =
      receipt_of({entry("newer", Action::staged_out), entry("larger", Action::staged_out),
                  entry("named", Action::staged_out), entry("dropped", Action::staged_out)});
  for (auto& one : first.entries) {
    one.checksum = 1, one.mtime = 5;
  }
  first.entries[2].placed_as = "other";
  unloaded.remember(first);
  Receipt last = receipt_of({entry("newer", Action::unchanged), entry("larger", Action::unchanged),
                             entry("named", Action::unchanged), entry("dropped", Action::dropped)});
  for (auto& one : last.entries) {
    one.mtime = one.path == "newer" || one.path == "dropped" ? 6 : 5;
  }
  last.entries[1].bytes = 50'000;
  unloaded.add_to(last, [](const std::string&) { return true; }, {});
  for (const char* path : {"newer", "larger"}) {
    CHECK(!find(last, path)->checksum);
    CHECK(find(last, path)->reason.empty());
  }
  CHECK(find(last, "named")->checksum == 1);
  CHECK(find(last, "named")->placed_as == "other");
  CHECK(find(last, "dropped")->checksum == 1);
}

TEST_CASE("unloaded: a book that cannot be read or written is no failure of an unload",
          "[unloaded]") {
  const test::TempDirectory place("/dev/shm");
  const std::string book = place.path() + "/unloaded";
  std::ofstream(book) << "{\"path\": 1}\nno line of ours\n{\"path\": \"cut\", \"act";
  Unloaded damaged(book), nowhere(place.path() + "/absent/unloaded");
  for (auto* one : {&damaged, &nowhere}) {
    one->inherit(true);
    one->remember(receipt_of({entry("a", Action::staged_out)}));
    Receipt last = receipt_of({});
    one->add_to(last, [](const std::string&) { return true; }, {});
    REQUIRE(last.entries.size() == 1);
    CHECK(last.entries.front().path == "a");
  }
}

TEST_CASE("unloaded: what a receipt says of a file is read as it was written", "[unloaded]") {
  ReceiptEntry one = entry("a/b \xfe", Action::kept, "why");
  one.checksum = 1;
  one.mtime = -5;
  one.seconds = 0.25;
  one.placed_as = "a/c";
  one.evidence = "as-found";
  one.unverified = true;
  const auto again = stage::entry_of(stage::to_json(receipt_of({one}))["entries"][0]);
  REQUIRE(again);
  CHECK(again->path == one.path);
  CHECK(again->action == one.action);
  CHECK(again->checksum == one.checksum);
  CHECK(again->mtime == one.mtime);
  CHECK(again->seconds == one.seconds);
  CHECK(again->placed_as == one.placed_as);
  CHECK(again->reason == one.reason);
  CHECK(again->evidence == one.evidence);
  CHECK(again->unverified);
  CHECK(!stage::entry_of(nlohmann::json("no object")));
}

TEST_CASE("unloaded: the book does not grow without end", "[unloaded]") {
  const test::TempDirectory place("/dev/shm");
  const std::string book = place.path() + "/unloaded";
  Unloaded first(book);
  first.inherit(false);
  first.remember(receipt_of({entry("once", Action::staged_out)}));
  Unloaded before(book);
  before.inherit(true);
  const auto often = receipt_of({entry("a", Action::staged_out), entry("b", Action::staged_out)});
  for (std::size_t i = 0; i < Unloaded::most_lines; ++i) {
    before.remember(often);
  }
  std::ifstream lines(book);
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line);) {
    ++count;
  }
  CHECK(count < Unloaded::most_lines * 3 / 2);
  Unloaded after(book);
  after.inherit(true);
  Receipt last = receipt_of({});
  after.add_to(last, [](const std::string&) { return true; }, {});
  CHECK(last.entries.size() == 3);
  CHECK(find(last, "once") != nullptr);
}

TEST_CASE("unloaded: a drop is told with the export before it, whoever did it", "[unloaded]") {
  const test::TempDirectory place("/dev/shm");
  const std::string book = place.path() + "/unloaded";
  auto exported = entry("a", Action::staged_out);
  exported.checksum = 7;
  auto later = entry("b", Action::staged_out);
  later.checksum = 8;
  const auto dropped = [](const char* path) {
    return entry(path, Action::kept, stage::dropped_by_keep);
  };
  {
    Unloaded before(book);
    before.inherit(false);
    before.remember(receipt_of({exported, later}));
    before.remember_dropped({dropped("a")});
  }
  Unloaded after(book);
  after.inherit(true);
  after.remember_dropped({dropped("b"), dropped("c")});
  for (int i = 0; i < 2; ++i) {
    Receipt receipt = receipt_of({});
    after.add_to(receipt, [](const std::string&) { return false; }, {});
    REQUIRE(receipt.entries.size() == 3);
    for (const auto* path : {"a", "b", "c"}) {
      INFO(path);
      CHECK(find(receipt, path)->reason ==
            "unloaded while the job ran: removed from the buffer by keep");
    }
    CHECK(find(receipt, "a")->action == Action::staged_out);
    CHECK(find(receipt, "a")->checksum == 7);
    CHECK(find(receipt, "b")->checksum == 8);
    CHECK(receipt.note.empty());
  }
  after.remember(receipt_of({entry("a", Action::staged_out)}));  // made again
  Receipt receipt = receipt_of({});
  after.add_to(receipt, [](const std::string&) { return true; }, {});
  CHECK(find(receipt, "a")->reason == "unloaded while the job ran");
}

TEST_CASE("unloaded: a drop that a death cut off is told as such", "[unloaded][keep]") {
  const test::TempDirectory place("/dev/shm");
  const std::string book = place.path() + "/unloaded";
  {
    Unloaded before(book);
    before.inherit(false);
    before.remember(receipt_of({entry("a", Action::staged_out), entry("b", Action::staged_out)}));
  }
  Unloaded after(book);
  after.inherit(true);
  after.remember(receipt_of({entry("c", Action::staged_out)}));
  Receipt receipt = receipt_of({});
  after.add_to(receipt, [](const std::string&) { return false; }, {"a", "c", "x"});
  REQUIRE(receipt.entries.size() == 3);
  CHECK(find(receipt, "a")->reason == "unloaded while the job ran; removed from the buffer");
  CHECK(find(receipt, "b")->reason.contains("the job removed or renamed it"));
  CHECK(find(receipt, "c")->reason.contains("the job removed or renamed it"));  // made again
  CHECK_FALSE(receipt.note.contains("a,"));
  CHECK(receipt.note.ends_with(": b, c"));
}
