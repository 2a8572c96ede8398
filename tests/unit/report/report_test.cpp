// SPDX-License-Identifier: BSD-3-Clause
#include "report/report.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "report/picture.hpp"
#include "stage/export/unmatched.hpp"

using namespace efs;
using namespace efs::report;
using stage::Action;
using stage::Receipt;

namespace {

constexpr std::uint64_t GiB = 1U << 30U;
constexpr Nanoseconds second = 1'000'000'000;
const std::string hostile = "<script>alert(1)</script>\"'&\n\x1b]\xff";

stage::ReceiptEntry entry(std::string path, Action action, std::uint64_t bytes,
                          std::string reason = {}) {
  stage::ReceiptEntry made;
  made.path = std::move(path);
  made.action = action;
  made.bytes = bytes;
  made.seconds = 0.5;
  made.reason = std::move(reason);
  return made;
}

/// A receipt as efs wrote it before it kept records.
Receipt old_receipt() {
  Receipt receipt;
  receipt.job = "job";
  receipt.results_dir = "/pfs/out";
  receipt.started = 1'700'000'000 * second;
  receipt.ended = receipt.started + 2 * second;
  receipt.entries = {entry("a", Action::staged_out, 10), entry("b", Action::failed, 20, "no room"),
                     entry("new/c", Action::dropped, 30, stage::no_rule_matches),
                     entry("in", Action::unchanged, 40)};
  stage::settle(receipt);
  return receipt;
}

Receipt full_receipt() {
  Receipt receipt = old_receipt();
  receipt.staged_in = {.files = 4,
                       .bytes = 4 * GiB,
                       .files_reused = 1,
                       .bytes_reused = GiB,
                       .files_away = 0,
                       .skipped = {}};
  stage::JobRecord record;
  record.takeovers = 2;
  record.phases = {{.name = "wait-in", .begin = 0, .end = 3 * second, .bytes = 0},
                   {.name = "stage-in", .begin = 3 * second, .end = 5 * second, .bytes = 3 * GiB},
                   {.name = "run", .begin = 5 * second, .end = 95 * second, .bytes = 0},
                   {.name = "stage-out", .begin = 95 * second, .end = 100 * second, .bytes = 10}};
  record.transfers = {
      {.kind = "load", .state = "done", .begin = 20 * second, .end = 21 * second, .bytes = GiB}};
  record.slowest_inputs = {{.path = "in/slow", .bytes = GiB, .seconds = 1.5}};
  record.counters = stage::JobCounters{.opens = 10, .passthrough_opens = 7};
  record.space = stage::JobSpace{
      .capacity = 10 * GiB,
      .samples = {{.time = 5 * second, .used = 4 * GiB}, {.time = 90 * second, .used = 5 * GiB}}};
  record.unopened =
      stage::UnopenedInputs{.files = 2,
                            .bytes = GiB,
                            .of_files = 4,
                            .of_bytes = 4 * GiB,
                            .largest = {{.path = "in/unread", .bytes = GiB}},
                            .resources = {{.path = "in", .line = 7, .files = 2, .bytes = GiB}}};
  record.missed = stage::MissedInputs{
      .files = {{.path = "in/forgotten", .bytes = 7}}, .not_kept = 5, .unchecked = 0};
  receipt.record = record;
  return receipt;
}

const Table* table_of(const Report& report, const std::string& title) {
  for (const auto& table : report.tables) {
    if (table.title == title) {
      return &table;
    }
  }
  return nullptr;
}

std::string fact(const Report& report, const std::string& label) {
  for (const auto& one : report.summary) {
    if (one.label == label) {
      return one.text;
    }
  }
  return "(no such fact)";
}

bool advises(const Report& report, const std::string& line) {
  for (const auto& advice : report.advice) {
    for (const auto& one : advice.lines) {
      if (one == line) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

TEST_CASE("report: a receipt without a record gives a report without its sections", "[report]") {
  const Report report = make_report(old_receipt());
  CHECK(report.verdict == "partial");
  CHECK(report.summary.size() <= 10);
  CHECK(fact(report, "results") == "1 name, 10 B");
  CHECK(fact(report, "failed").starts_with("1 (20 B)"));
  CHECK(fact(report, "takeovers") == "(no such fact)");
  REQUIRE(report.bars.size() == 1);
  CHECK(report.bars[0].seconds == 2);
  CHECK(table_of(report, "Inputs that no program opened") == nullptr);
  CHECK(table_of(report, "Opens by path") == nullptr);
  CHECK(report.space.empty());
  REQUIRE(table_of(report, "Results that no rule named") != nullptr);
  CHECK(advises(report, "  - path: new"));
  CHECK(space_picture(report).empty());
  CHECK(to_html(report).find("Buffer use") == std::string::npos);
}

TEST_CASE("report: the record of the job", "[report]") {
  const Report report = make_report(full_receipt());
  CHECK(report.summary.size() == 10);
  CHECK(fact(report, "cache") == "1 hit (1 GiB), 3 misses (3 GiB)");
  CHECK(fact(report, "waits") == "3.00 s for turns at the PFS");
  CHECK(fact(report, "takeovers").starts_with("2"));
  REQUIRE(report.bars.size() == 5);
  CHECK(report.bars[4].beside);
  CHECK(report.bars[4].begin == 20);
  const Table* times = table_of(report, "Where the time went");
  REQUIRE(times != nullptr);
  CHECK(times->note ==
        "Of 1m40s, staging took 7.00 s (7.0%) and programs had the mount for 1m30s (90.0%). "
        "Everything else took 3.00 s.");
  CHECK(times->rows[1] ==
        std::vector<std::string>{"2.00", "2.0%", "3 GiB", "1.5 GiB/s", "stage-in"});
  const Table* unopened = table_of(report, "Inputs that no program opened");
  REQUIRE(unopened != nullptr);
  CHECK(unopened->note.starts_with("1 GiB of 4 GiB (2 of 4 files) were staged for nothing"));
  const Table* missed = table_of(report, "Names looked up in vain although root-dir has them");
  REQUIRE(missed != nullptr);
  CHECK(missed->note.find("5 more lookups") != std::string::npos);
  CHECK(advises(report, "  - path: in/forgotten"));
  CHECK(advises(report, "  - path: in  # line 7: 2 files, 1 GiB not opened"));
  const Table* slowest = table_of(report, "Slowest files");
  REQUIRE(slowest != nullptr);
  CHECK(slowest->rows[0].back() == "in/slow");
  const Table* opens = table_of(report, "Opens by path");
  REQUIRE(opens != nullptr);
  CHECK(opens->rows[0][0] == "7");
  CHECK(opens->rows[1][0] == "3");
}

TEST_CASE("report: each conflict gets its own advice", "[report]") {
  Receipt receipt = old_receipt();
  receipt.entries.push_back(entry("c", Action::conflict, 1, "the job file says existing: fail; x"));
  stage::settle(receipt);
  CHECK(advises(make_report(receipt), "  existing: keep-both"));
  CHECK_FALSE(advises(make_report(receipt), "  on-conflict: keep-both"));
  receipt.entries.push_back(entry("d", Action::conflict, 1, "it changed on the PFS"));
  stage::settle(receipt);
  CHECK(advises(make_report(receipt), "  on-conflict: keep-both"));
}

TEST_CASE("report: an unloaded result is one", "[report]") {
  Receipt receipt = old_receipt();
  receipt.entries.push_back(entry("u", Action::unchanged, 99, std::string(stage::unloaded_early)));
  stage::settle(receipt);
  const Report report = make_report(receipt);
  CHECK(fact(report, "results") == "1 name, 10 B; 1 unloaded while the job ran");
  const Table* largest = table_of(report, "Largest files");
  REQUIRE(largest != nullptr);
  CHECK(largest->rows[0][3] == "unloaded");
}

TEST_CASE("report: what is not known is said", "[report]") {
  Receipt receipt = full_receipt();
  auto& record = *receipt.record;
  const auto note = [&](const char* title) {
    const Report report = make_report(receipt);
    const Table* table = table_of(report, title);
    return table == nullptr ? "" : table->note;
  };
  const char* const missed = "Names looked up in vain although root-dir has them";
  record.missed = stage::MissedInputs{};
  CHECK(note(missed).empty());
  record.missed->unchecked = 3;
  CHECK(note(missed).starts_with("root-dir did not answer in time whether it has 3 of"));
  record.missed->named = 4;
  CHECK(note(missed).starts_with("Programs asked for 4 such names."));
  record.unopened.reset();
  record.continued = true;
  CHECK(note("Inputs that no program opened").starts_with("Not known: "));
  CHECK(begins_page(to_html(make_report(receipt))));
}

TEST_CASE("report: names cannot break out of the page, the text or a line of advice", "[report]") {
  Receipt receipt = full_receipt();
  receipt.job = hostile;
  receipt.results_dir = "/pfs/" + hostile;
  receipt.reason = hostile;
  receipt.entries.push_back(entry(hostile, Action::failed, 50, hostile));
  receipt.entries.push_back(entry(hostile + "2", Action::dropped, 60, stage::no_rule_matches));
  receipt.record->unopened->largest[0].path = hostile;
  receipt.record->missed->files[0].path = hostile;
  receipt.record->slowest_inputs[0].path = hostile;
  receipt.record->counters->daemon_reason = hostile;
  receipt.record->phases[2].name = hostile;
  stage::settle(receipt);
  const Report report = make_report(receipt);
  const std::string page = to_html(report), text = to_text(report);
  CHECK(page.find("<script") == std::string::npos);
  CHECK(page.find("&lt;script&gt;") != std::string::npos);
  CHECK(page.find('\x1b') == std::string::npos);
  CHECK(page.find('\xff') == std::string::npos);
  CHECK(page.find("default-src 'none'") < page.find("&lt;script"));
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find('\xff') == std::string::npos);
  CHECK(text.find("\n]") == std::string::npos);
  for (const auto& advice : report.advice) {
    for (const auto& line : advice.lines) {
      CHECK(line.find('\n') == std::string::npos);
    }
  }
  CHECK_NOTHROW(to_json(report).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

TEST_CASE("report: an attribute cannot be left", "[report]") {
  CHECK(as_html("a\"b'c<d>&") == "a&quot;b&#39;c&lt;d&gt;&amp;");
  CHECK(as_html("tab\tnewline\n") == "tab\\011newline\\012");
}

TEST_CASE("report: times that cannot be are drawn within the picture", "[report]") {
  Receipt receipt = full_receipt();
  receipt.record->phases[0].end = -5 * second;
  receipt.record->space->capacity = 0;
  receipt.record->space->samples[0].time = -1;
  const Report report = make_report(receipt);
  CHECK(report.bars[0].seconds == 0);
  CHECK(space_picture(report).empty());
  CHECK_FALSE(to_text(report).empty());
}
