// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/job_record.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "stage/export/missed_names.hpp"
#include "stage/export/receipt_reader.hpp"
#include "stage/pfs/partial_name.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

namespace {

JobRecord full_record() {
  JobRecord record;
  record.job_file = "/home/me/job.yaml";
  record.root_dir = "/pfs";
  record.takeovers = 1;
  record.phases = {{.name = "run", .begin = 5, .end = 9, .bytes = 3}};
  record.transfers = {{.kind = "load", .state = "done", .begin = 6, .end = 7, .bytes = 8}};
  record.unlisted_transfers = 4;
  record.slowest_inputs = {{.path = "a", .bytes = 1, .seconds = 2.5}};
  record.counters = JobCounters{.opens = 3, .passthrough_opens = 2, .daemon_reason = "why"};
  record.space = JobSpace{.capacity = 100, .samples = {{.time = 5, .used = 50}}};
  record.unopened = UnopenedInputs{.files = 1,
                                   .bytes = 2,
                                   .of_files = 3,
                                   .of_bytes = 4,
                                   .largest = {{.path = "x\xff", .bytes = 2}},
                                   .resources = {{.path = "", .line = 3, .files = 1, .bytes = 2}}};
  record.missed =
      MissedInputs{.files = {{.path = "m", .bytes = 1}}, .named = 1, .not_kept = 2, .unchecked = 3};
  return record;
}

}  // namespace

TEST_CASE("job record: JSON and back", "[stage][receipt]") {
  const auto json = to_json(full_record());
  const auto record = job_record_of(json);
  REQUIRE(record);
  CHECK(to_json(*record) == json);
  CHECK(record->space->samples[0].used == 50);
  CHECK(record->unopened->largest[0].path == "x\xff");
  CHECK(record->missed->named == 1);
  CHECK(record->missed->files.empty());
  auto later = json;
  later["something_new"] = 1;
  CHECK(job_record_of(later));
  const auto bare = job_record_of(to_json(JobRecord{}));
  REQUIRE(bare);
  CHECK_FALSE(bare->counters);
  CHECK_FALSE(bare->missed);
}

TEST_CASE("job record: what is none is none", "[stage][receipt]") {
  CHECK_FALSE(job_record_of(nlohmann::json::array()));
  CHECK_FALSE(job_record_of({{"version", 2}}));
  auto json = to_json(full_record());
  json["phases"][0]["begin_ns"] = "soon";
  CHECK_FALSE(job_record_of(json));
  json = to_json(full_record());
  json["space"].erase("samples");
  CHECK_FALSE(job_record_of(json));
}

TEST_CASE("job record: missed names are in a file of their own", "[stage][receipt]") {
  Scene scene;
  Receipt receipt;
  receipt.job = "job";
  receipt.ended = 77;
  CHECK(missed_names_text(receipt).empty());
  receipt.record = full_record();
  const std::string text = missed_names_text(receipt);
  CHECK(begins_missed_names(text));
  const std::string path = scene.top + "/efs-receipt-job.json";
  std::ofstream(scene.top + "/" + missed_names_name("job")) << text;

  receipt.record->missed->files.clear();
  add_missed_names(receipt, path);
  REQUIRE(receipt.record->missed->files.size() == 1);
  CHECK(receipt.record->missed->files[0].path == "m");
  receipt.record->missed->files.clear();
  receipt.ended = 78;  // another stop's
  add_missed_names(receipt, path);
  CHECK(receipt.record->missed->files.empty());
  receipt.ended = 77;
  std::ofstream(scene.top + "/" + missed_names_name("job")) << text.substr(0, text.size() / 2);
  add_missed_names(receipt, path);
  CHECK(receipt.record->missed->files.empty());
}

TEST_CASE("receipt: written and read again", "[stage][receipt]") {
  Scene scene;
  Receipt receipt;
  receipt.job = "job\xff";
  receipt.results_dir = "/out";
  receipt.started = 1'700'000'000'123'456'789;
  receipt.ended = 951'868'799'000'000'007;
  receipt.retries = 3;
  receipt.staged_in = {.files = 1,
                       .bytes = 2,
                       .files_reused = 0,
                       .bytes_reused = 0,
                       .files_away = 4,
                       .skipped = {{.path = "s", .reason = "r", .vanished = true}}};
  receipt.record = full_record();
  ReceiptEntry entry;
  entry.path = "good\xff";
  entry.action = Action::staged_out;
  entry.bytes = 10;
  entry.checksum = 0x1234;
  entry.replaced = true;
  receipt.entries = {entry};
  settle(receipt);
  const std::string path = scene.top + "/receipt.json";
  REQUIRE(write_receipt(receipt, path, posix_pfs()));
  const auto read = read_receipt(path);
  REQUIRE(read);
  CHECK(to_json(*read) == to_json(receipt));
  CHECK(read->started == receipt.started);
  CHECK(read->ended == receipt.ended);
  CHECK(read->record->root_dir == "/pfs");
  std::ofstream(path) << "{}";
  CHECK(read_receipt(path).error().code == EPROTO);
  CHECK(read_receipt(scene.top + "/none").error().code == ENOENT);
}

TEST_CASE("receipt: a text beside the results", "[stage][receipt]") {
  Scene scene;
  const std::string path = scene.top + "/page.html", other = scene.top + "/other";
  std::ofstream(other) << "precious";
  stdfs::create_symlink(other, path);
  REQUIRE(write_beside_results("text", path, 0600, posix_pfs()));
  CHECK(stdfs::is_regular_file(stdfs::symlink_status(path)));
  CHECK(content_of(path) == "text");
  CHECK(content_of(other) == "precious");
  CHECK(stdfs::status(path).permissions() ==
        (stdfs::perms::owner_read | stdfs::perms::owner_write));
  CHECK(partials_below(scene.top) == 0);
}

TEST_CASE("slowest files: the slowest of all threads stay", "[stage]") {
  SlowestFiles slowest(3);
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < 1000; ++i) {
          slowest.add(std::to_string(thread), 1, thread * 1000 + i);
        }
      });
    }
  }
  const auto files = slowest.take();
  REQUIRE(files.size() == 3);
  CHECK(files[0].seconds == 3999);
  CHECK(files[2].seconds == 3997);
}
