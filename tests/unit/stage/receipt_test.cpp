#include "stage/receipt.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "scene.hpp"

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

}  // namespace

TEST_CASE("receipt: verdict, totals and exit code follow from the entries", "[stage][receipt]") {
  Receipt receipt;
  settle(receipt);
  CHECK(exit_code(receipt) == 0);
  receipt.entries = {entry("b", Action::staged_out), entry("a", Action::dropped), entry("c", Action::unchanged), entry("d", Action::skipped)};
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
  receipt.entries = {entry("good", Action::staged_out), entry("bad\xff", Action::failed)};
  receipt.entries[0].checksum = 0x1234;
  receipt.entries[1].reason = "because";
  settle(receipt);
  const std::string path = scene.top + "/receipt.json";
  REQUIRE(write_receipt(receipt, path));
  const auto json = nlohmann::json::parse(content_of(path));
  CHECK(json["format"] == "efs-receipt-1");
  CHECK(json["verdict"] == "partial");
  CHECK(json["started"] == "2023-11-14T22:13:20.000000000Z");
  CHECK(json["entries"][1]["checksum"] == "xxh3:0000000000001234");
  CHECK(json["entries"][0]["reason"] == "because");
  CHECK(partials_below(scene.top) == 0);
  stdfs::create_directory(scene.top + "/taken");
  CHECK(!write_receipt(receipt, scene.top + "/taken"));
  CHECK(!write_receipt(receipt, scene.top + "/nowhere/receipt.json"));
  CHECK(partials_below(scene.top) == 0);
}

TEST_CASE("receipt: the text names what is not back", "[stage][receipt]") {
  Receipt receipt;
  receipt.job = "job";
  for (int i = 0; i < 30; ++i) receipt.entries.push_back(entry("f" + std::to_string(i), Action::failed));
  receipt.entries.push_back(entry("c", Action::conflict));
  settle(receipt);
  const std::string text = describe(receipt);
  CHECK(text.find("failed: f0") != std::string::npos);
  CHECK(text.find("and 10 more failed") != std::string::npos);
  CHECK(text.find("conflict: c") != std::string::npos);
  CHECK(text.find("efs stop job") != std::string::npos);
}
