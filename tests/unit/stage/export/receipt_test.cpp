// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/receipt.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "support/short_of_memory.hpp"
#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

namespace {

ReceiptEntry entry(std::string path, Action action) {
  ReceiptEntry made;
  made.path = std::move(path);
  made.action = action;
  made.bytes = 10;
  return made;
}

Receipt small_receipt() {
  Receipt receipt;
  receipt.job = "job";
  receipt.entries = {entry("good", Action::staged_out)};
  settle(receipt);
  return receipt;
}

}  // namespace

TEST_CASE("receipt: verdict, totals and exit code follow from the entries", "[stage][receipt]") {
  Receipt receipt;
  settle(receipt);
  CHECK(exit_code(receipt) == 0);
  receipt.entries = {entry("b", Action::staged_out), entry("a", Action::dropped),
                     entry("c", Action::unchanged), entry("d", Action::skipped)};
  settle(receipt);
  CHECK(receipt.verdict == Verdict::complete);
  CHECK(receipt.entries[0].path == "a");
  receipt.entries.push_back(entry("e", Action::conflict));
  receipt.entries.push_back(entry("f", Action::not_saved));
  settle(receipt);
  CHECK(exit_code(receipt) == 3);
  CHECK(receipt.totals.bytes_left == 20);
  CHECK(receipt.totals.bytes_staged_out == 10);
  receipt.entries = {entry("e", Action::failed), entry("c", Action::unchanged)};
  settle(receipt);
  CHECK(exit_code(receipt) == 1);
}

TEST_CASE("receipt: JSON on disk, whole or not at all", "[stage][receipt]") {
  Scene scene;
  Receipt receipt;
  receipt.job = "job";
  receipt.started = 1'700'000'000'000'000'000;
  receipt.ended = 951'868'799'000'000'007;
  receipt.entries = {entry("good", Action::staged_out), entry("bad\xff", Action::failed)};
  receipt.entries[0].checksum = 0x1234;
  receipt.entries[1].reason = "because";
  settle(receipt);
  const std::string path = scene.top + "/receipt.json";
  REQUIRE(write_receipt(receipt, path, posix_pfs()));
  const auto json = nlohmann::json::parse(content_of(path));
  CHECK(json["format"] == "efs-receipt-1");
  CHECK(json["verdict"] == "partial");
  CHECK(json["started"] == "2023-11-14T22:13:20.000000000Z");
  CHECK(json["ended"] == "2000-02-29T23:59:59.000000007Z");
  CHECK(json["entries"][1]["checksum"] == "xxh3:0000000000001234");
  CHECK(json["entries"][0]["reason"] == "because");
  CHECK(partials_below(scene.top) == 0);
  stdfs::create_directory(scene.top + "/taken");
  CHECK(!write_receipt(receipt, scene.top + "/taken", posix_pfs()));
  CHECK(!write_receipt(receipt, scene.top + "/nowhere/receipt.json", posix_pfs()));
  CHECK(partials_below(scene.top) == 0);
}

TEST_CASE(
    "receipt: what lies under the name of its partial is neither waited for, nor written through, "
    "nor taken for its own",
    "[stage][receipt]") {
  Scene scene;
  const Receipt receipt = small_receipt();
  const std::string path = scene.top + "/receipt.json", partial = path + ".efs-partial",
                    precious = scene.top + "/precious";
  write_file(precious, "somebody's");
  SECTION("a pipe that nobody reads") {
    REQUIRE(::mkfifo(partial.c_str(), 0666) == 0);
  }
  SECTION("a link to a file") {
    stdfs::create_symlink(precious, partial);
  }
  SECTION("a link to a place where there is nothing") {
    stdfs::create_symlink(scene.top + "/made", partial);
  }
  SECTION("another name of a file") {
    stdfs::create_hard_link(precious, partial);
  }
  SECTION("a longer one of a stop that was killed") {
    write_file(partial, std::string(100'000, 'x'));
  }
  REQUIRE(write_receipt(receipt, path, posix_pfs()));
  CHECK(nlohmann::json::parse(content_of(path))["job"] == "job");
  CHECK(S_ISREG(stat_of(path).st_mode));
  CHECK(partials_below(scene.top) == 0);
  CHECK(content_of(precious) == "somebody's");
  CHECK(!stdfs::exists(scene.top + "/made"));
}

TEST_CASE("receipt: what cannot be removed from the name of its partial is told, and stays",
          "[stage][receipt]") {
  Scene scene;
  const std::string path = scene.top + "/receipt.json";
  write_file(path + ".efs-partial/inside", "somebody's");
  const Status written = write_receipt(small_receipt(), path, posix_pfs());
  REQUIRE(!written);
  CHECK(describe(written.error()).find("partial") != std::string::npos);
  CHECK(content_of(path + ".efs-partial/inside") == "somebody's");
  CHECK(!stdfs::exists(path));
}

TEST_CASE("receipt: a result that has the name of its partial stays", "[stage][receipt]") {
  Scene scene;
  Receipt receipt = small_receipt();
  receipt.entries.push_back(entry("receipt.json.efs-partial", Action::staged_out));
  const std::string path = scene.top + "/receipt.json";
  write_file(path + ".efs-partial", "the result");
  REQUIRE(write_receipt(receipt, path, posix_pfs()));
  CHECK(content_of(path + ".efs-partial") == "the result");
  CHECK(partials_below(scene.top) == 1);
  CHECK(nlohmann::json::parse(content_of(path))["job"] == "job");
}

TEST_CASE(
    "receipt: whichever call to the PFS fails, the old one stays or the new one is whole, and the "
    "error is told",
    "[stage][receipt][faults]") {
  std::set<std::string> failed;
  for (const int code : {EIO, ENOSPC, EACCES}) {
    for (std::uint64_t n = 0;; ++n) {
      Scene scene;
      const std::string path = scene.top + "/receipt.json", old = "the receipt of before";
      write_file(path, old);
      write_file(path + ".efs-partial", "of a stop that was killed");
      std::string call;
      FaultPfs pfs([&](std::uint64_t number, const std::string& name, const auto&) {
        if (number == n) {
          call = name;
        }
        return number == n ? code : 0;
      });
      pfs.most = 100;
      const Status written = write_receipt(small_receipt(), path, pfs);
      INFO("call " << n << " (" << call << ") fails with " << code);
      const std::string now = content_of(path);
      const bool is_new = now != old;
      if (is_new) {
        REQUIRE(nlohmann::json::parse(now)["format"] == "efs-receipt-1");
      }
      if (call.empty()) {
        REQUIRE(written);
        REQUIRE(is_new);
        REQUIRE(partials_below(scene.top) == 0);
        break;
      }
      REQUIRE(!written);
      CHECK(written.error().code == code);
      if (is_new) {
        CHECK(call == "fsync");  // of the directory: there, but perhaps not durable
      } else if (stdfs::exists(path + ".efs-partial")) {
        CHECK(content_of(path + ".efs-partial") == "of a stop that was killed");
      }
      failed.insert(call);
      REQUIRE(write_receipt(small_receipt(), path, posix_pfs()));
      REQUIRE(partials_below(scene.top) == 0);
    }
  }
  CHECK((failed ==
         std::set<std::string>{"open", "unlink", "write", "fsync", "fstat", "lstat", "rename"}));
}

TEST_CASE("receipt: the text names what is not back", "[stage][receipt]") {
  Receipt receipt;
  receipt.job = "job";
  for (int i = 0; i < 30; ++i) {
    receipt.entries.push_back(entry("f" + std::to_string(i), Action::failed));
  }
  receipt.entries.push_back(entry("c", Action::conflict));
  settle(receipt);
  const std::string text = describe(receipt);
  CHECK(text.find("failed: f0") != std::string::npos);
  CHECK(text.find("and 25 more failed") != std::string::npos);
  CHECK(text.find("failed: f5") == std::string::npos);
  CHECK(text.find("conflict: c") != std::string::npos);
  CHECK(text.find("efs stop job") != std::string::npos);
}

TEST_CASE(
    "receipt: the text names a cause to be removed where there is one, and no way out of what is "
    "lost",
    "[stage][receipt]") {
  Receipt receipt;
  receipt.job = "job";
  receipt.way_out = "bring them out: efs salvage";
  receipt.entries.push_back(entry("late", Action::not_saved));
  receipt.entries.back().code = ECANCELED;
  settle(receipt);
  CHECK(describe(receipt).find(
            "1 results (10 B) are still in the buffer; bring them out: efs salvage job\n") !=
        std::string::npos);
  receipt.entries.push_back(entry("other", Action::failed));
  settle(receipt);
  CHECK(describe(receipt).find("2 results (20 B) are still in the buffer; remove the cause, then "
                               "bring them out: efs salvage job\n") != std::string::npos);
  receipt.lost = 1;
  CHECK(describe(receipt).find("\n1 results") != std::string::npos);
  receipt.lost = 2;
  CHECK(describe(receipt).find("in the buffer") == std::string::npos);
}

TEST_CASE(
    "receipt: whichever allocation of memory fails, the old one stays or the new one is there "
    "whole",
    "[stage][receipt][memory]") {
  Receipt receipt = small_receipt();
  receipt.entries.push_back(entry("no text: \xff", Action::failed));
  settle(receipt);
  for (const auto shortage : {efs::test::Shortage::once, efs::test::Shortage::for_good}) {
    const auto allocations =
        efs::test::each_allocation_fails(shortage, [&](const auto& short_of_memory) {
          Scene scene;
          const std::string path = scene.top + "/a receipt with a longer name.json";
          write_file(path, "old");
          Status written = fail(ENOMEM);
          short_of_memory([&] { written = write_receipt(receipt, path, posix_pfs()); });
          const std::string there = content_of(path);
          if (there != "old") {
            REQUIRE(nlohmann::json::parse(there)["job"] == "job");
          }
          if (written) {
            REQUIRE(there != "old");
          }
          REQUIRE(partials_below(scene.top) == 0);
          REQUIRE(write_receipt(receipt, path, posix_pfs()));
        });
    CHECK(allocations > 20);
  }
}
