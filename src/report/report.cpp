// SPDX-License-Identifier: BSD-3-Clause
#include "report/report.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "report/advice.hpp"
#include "stage/export/unmatched.hpp"

namespace efs::report {
namespace {

using stage::Action;
using stage::JobFile;
using stage::Receipt;
using stage::ReceiptEntry;

double seconds_of(Nanoseconds time) {
  return static_cast<double>(time) * 1e-9;
}

std::string date_of(Nanoseconds time) {
  const time_t moment = to_timespec(time).tv_sec;
  struct tm parts{};
  ::gmtime_r(&moment, &parts);
  std::array<char, 40> text{};
  (void)std::strftime(text.data(), text.size(), "%F %T UTC", &parts);
  return text.data();
}

std::string files_text(std::uint64_t files, std::uint64_t bytes) {
  return std::to_string(files) + (files == 1 ? " file, " : " files, ") + format_bytes(bytes);
}

/// The entries of a receipt may be directories and links.
std::string names_text(std::uint64_t names, std::uint64_t bytes) {
  return std::to_string(names) + (names == 1 ? " name, " : " names, ") + format_bytes(bytes);
}

std::uint64_t bytes_of(const Receipt& receipt, const std::function<bool(const ReceiptEntry&)>& is) {
  std::uint64_t bytes = 0;
  for (const auto& entry : receipt.entries) {
    bytes += is(entry) ? entry.bytes : 0;
  }
  return bytes;
}

std::uint64_t bytes_of(const Receipt& receipt, Action action) {
  return bytes_of(receipt, [&](const ReceiptEntry& entry) { return entry.action == action; });
}

/// Seconds of all phases with one of these names.
double seconds_in(const Receipt& receipt, std::initializer_list<std::string_view> names) {
  double seconds = 0;
  if (receipt.record) {
    for (const auto& phase : receipt.record->phases) {
      if (std::ranges::find(names, phase.name) != names.end()) {
        seconds += seconds_of(phase.end - phase.begin);
      }
    }
  }
  return seconds;
}

std::string inputs_text(const Receipt& receipt) {
  if (!receipt.staged_in) {
    return "not known";
  }
  const auto& in = *receipt.staged_in;
  std::string text = files_text(in.files, in.bytes);
  if (!in.skipped.empty()) {
    text += "; " + std::to_string(in.skipped.size()) + " skipped";
  }
  if (in.files_away > 0) {
    text += "; " + std::to_string(in.files_away) + " stayed removed";
  }
  return text;
}

std::string cache_text(const stage::StagedIn& in) {
  if (in.files_reused == 0) {
    return "no input came from a cache";
  }
  const auto misses = in.files - std::min(in.files, in.files_reused);
  return std::to_string(in.files_reused) + (in.files_reused == 1 ? " hit (" : " hits (") +
         format_bytes(in.bytes_reused) + "), " + std::to_string(misses) +
         (misses == 1 ? " miss (" : " misses (") +
         format_bytes(in.bytes - std::min(in.bytes, in.bytes_reused)) + ")";
}

std::string failed_text(const Receipt& receipt) {
  const auto& totals = receipt.totals;
  const auto left = totals.failed + totals.conflict + totals.not_saved;
  if (left == 0) {
    return "none";
  }
  return std::to_string(left) + " (" + format_bytes(totals.bytes_left) +
         "): " + std::to_string(totals.failed) + " failed, " + std::to_string(totals.conflict) +
         " in conflict, " + std::to_string(totals.not_saved) + " not tried";
}

bool was_unloaded(const ReceiptEntry& entry) {
  return entry.action == Action::unchanged && entry.reason.contains(stage::unloaded_early);
}

std::string results_text(const Receipt& receipt) {
  const auto& totals = receipt.totals;
  std::string text = names_text(totals.staged_out, totals.bytes_staged_out);
  if (totals.kept > 0) {
    text += "; " + std::to_string(totals.kept) + " exported before";
  }
  if (const auto early = std::ranges::count_if(receipt.entries, was_unloaded); early > 0) {
    text += "; " + std::to_string(early) + " unloaded while the job ran";
  }
  return text;
}

std::vector<Fact> summary_of(const Receipt& receipt) {
  const auto& totals = receipt.totals;
  std::vector<Fact> facts;
  const auto add = [&](const char* label, std::string text) {
    facts.push_back({.label = label, .text = std::move(text)});
  };
  add("outcome", std::string(stage::name_of(receipt.verdict)) +
                     (receipt.reason.empty() ? "" : ": " + receipt.reason));
  add("inputs", inputs_text(receipt));
  if (receipt.staged_in) {
    add("cache", cache_text(*receipt.staged_in));
  }
  add("results", results_text(receipt));
  add("replaced", totals.replaced == 0 ? "none"
                                       : std::to_string(totals.replaced) +
                                             (totals.replaced == 1 ? " file of the same name"
                                                                   : " files of the same names"));
  add("dropped", totals.dropped == 0
                     ? "none"
                     : names_text(totals.dropped, bytes_of(receipt, Action::dropped)));
  add("failed", failed_text(receipt));
  if (receipt.record) {
    const double waited = seconds_in(receipt, {"wait-in", "wait-out"});
    add("waits", waited < 0.01 ? "none" : time_text(waited) + " for turns at the PFS");
  }
  add("retries", receipt.retries == 0
                     ? "none"
                     : std::to_string(receipt.retries) + (receipt.retries == 1
                                                              ? " call to the PFS was repeated"
                                                              : " calls to the PFS were repeated"));
  if (receipt.record) {
    add("takeovers", receipt.record->takeovers == 0
                         ? "none"
                         : std::to_string(receipt.record->takeovers) +
                               " (the daemon died and was replaced; its log says why)");
  }
  return facts;
}

std::vector<Bar> bars_of(const Receipt& receipt) {
  std::vector<Bar> bars;
  if (!receipt.record || receipt.record->phases.empty()) {
    bars.push_back({.name = "stage-out",
                    .begin = 0,
                    .seconds = seconds_of(receipt.ended - receipt.started),
                    .bytes = receipt.totals.bytes_staged_out});
    return bars;
  }
  const Nanoseconds begin = receipt.record->phases.front().begin;
  const auto add = [&](const std::string& name, const auto& span, bool beside) {
    bars.push_back({.name = name,
                    .begin = seconds_of(span.begin - begin),
                    .seconds = seconds_of(std::max<Nanoseconds>(0, span.end - span.begin)),
                    .bytes = span.bytes,
                    .beside = beside});
  };
  for (const auto& phase : receipt.record->phases) {
    add(phase.name, phase, false);
  }
  for (const auto& transfer : receipt.record->transfers) {
    add(transfer.kind, transfer, true);
  }
  return bars;
}

std::string or_dash(std::string text) {
  return text.empty() ? "-" : text;
}

std::string share_text(double part, double whole) {
  std::array<char, 16> text{};
  (void)std::snprintf(text.data(), text.size(), "%.1f%%", whole > 0 ? 100 * part / whole : 0.0);
  return text.data();
}

/// Where the time went, compared to the two copies that no job can avoid.
Table times_of(const Receipt& receipt, const std::vector<Bar>& bars) {
  Table table{.title = "Where the time went",
              .note = "",
              .heads = {"seconds", "share", "bytes", "rate", "phase"},
              .rows = {}};
  double whole = 0;
  for (const auto& bar : bars) {
    whole += bar.beside ? 0 : bar.seconds;
  }
  for (const auto& bar : bars) {
    std::array<char, 32> seconds{};
    (void)std::snprintf(seconds.data(), seconds.size(), "%.2f", bar.seconds);
    table.rows.push_back({seconds.data(), bar.beside ? "-" : share_text(bar.seconds, whole),
                          bar.bytes > 0 ? format_bytes(bar.bytes) : "-",
                          or_dash(rate_text(bar.bytes, bar.seconds)),
                          bar.name + (bar.beside ? " (while programs ran)" : "")});
  }
  if (!receipt.record) {
    table.note = "The receipt has only the time of the stage-out.";
    return table;
  }
  const double staging = seconds_in(receipt, {"stage-in", "stage-out"});
  const double run = seconds_in(receipt, {"run"});
  table.note = "Of " + time_text(whole) + ", staging took " + time_text(staging) + " (" +
               share_text(staging, whole) + ") and programs had the mount for " + time_text(run) +
               " (" + share_text(run, whole) + "). Everything else took " +
               time_text(std::max(0.0, whole - staging - run)) + ".";
  if (receipt.record->unlisted_transfers > 0) {
    table.note += " " + std::to_string(receipt.record->unlisted_transfers) +
                  " more loads and unloads are not listed.";
  }
  return table;
}

template <typename Less>
std::vector<const ReceiptEntry*> first_entries(const Receipt& receipt,
                                               const std::function<bool(const ReceiptEntry&)>& is,
                                               Less is_before) {
  std::vector<const ReceiptEntry*> found;
  for (const auto& entry : receipt.entries) {
    if (is(entry)) {
      found.push_back(&entry);
    }
  }
  const auto rows = static_cast<std::ptrdiff_t>(std::min(most_rows, found.size()));
  std::ranges::partial_sort(found, found.begin() + rows, is_before);
  found.resize(static_cast<std::size_t>(rows));
  return found;
}

bool is_larger(const ReceiptEntry* a, const ReceiptEntry* b) {
  return a->bytes != b->bytes ? a->bytes > b->bytes : a->path < b->path;
}

std::string seconds_text(double seconds) {
  std::array<char, 32> text{};
  (void)std::snprintf(text.data(), text.size(), "%.3f s", seconds);
  return seconds > 0 ? text.data() : "-";
}

std::vector<std::string> row_of(const ReceiptEntry& entry) {
  return {format_bytes(entry.bytes), seconds_text(entry.seconds),
          or_dash(rate_text(entry.bytes, entry.seconds)),
          was_unloaded(entry) ? "unloaded" : stage::name_of(entry.action), entry.path};
}

std::vector<std::string> row_of(const JobFile& file) {
  return {format_bytes(file.bytes), seconds_text(file.seconds),
          or_dash(rate_text(file.bytes, file.seconds)), "staged-in", file.path};
}

void add_files(const Receipt& receipt, std::vector<Table>& tables) {
  const std::vector<std::string> heads{"size", "time", "rate", "outcome", "file"};
  Table largest{.title = "Largest files", .note = "", .heads = heads, .rows = {}};
  const auto is_file = [](const ReceiptEntry& entry) {
    return entry.bytes > 0;
  };
  for (const auto* entry : first_entries(receipt, is_file, is_larger)) {
    largest.rows.push_back(row_of(*entry));
  }
  Table slowest{.title = "Slowest files", .note = "", .heads = heads, .rows = {}};
  const auto is_timed = [](const ReceiptEntry& entry) {
    return entry.seconds > 0;
  };
  const auto is_slower = [](const ReceiptEntry* a, const ReceiptEntry* b) {
    return a->seconds != b->seconds ? a->seconds > b->seconds : a->path < b->path;
  };
  std::vector<std::pair<double, std::vector<std::string>>> timed;
  for (const auto* entry : first_entries(receipt, is_timed, is_slower)) {
    timed.emplace_back(entry->seconds, row_of(*entry));
  }
  for (const auto& file :
       receipt.record ? receipt.record->slowest_inputs : std::vector<JobFile>{}) {
    timed.emplace_back(file.seconds, row_of(file));
  }
  std::ranges::stable_sort(timed, std::greater{}, &decltype(timed)::value_type::first);
  timed.resize(std::min(most_rows, timed.size()));
  for (auto& [seconds, row] : timed) {
    slowest.rows.push_back(std::move(row));
  }
  for (auto* table : {&largest, &slowest}) {
    if (!table->rows.empty()) {
      tables.push_back(std::move(*table));
    }
  }
}

void add_failed(const Receipt& receipt, std::vector<Table>& tables) {
  Table table{.title = "Results that were not exported",
              .note = "They are still in the buffer.",
              .heads = {"size", "outcome", "reason", "file"},
              .rows = {}};
  const auto is_left = [](const ReceiptEntry& entry) {
    return entry.action == Action::failed || entry.action == Action::conflict ||
           entry.action == Action::not_saved;
  };
  for (const auto* entry : first_entries(receipt, is_left, is_larger)) {
    table.rows.push_back(
        {format_bytes(entry->bytes), stage::name_of(entry->action), entry->reason, entry->path});
  }
  if (!table.rows.empty()) {
    tables.push_back(std::move(table));
  }
}

void add_unmatched(const Receipt& receipt, std::vector<Table>& tables) {
  const auto is_unmatched = [](const ReceiptEntry& entry) {
    return entry.action == Action::dropped && entry.reason == stage::no_rule_matches;
  };
  const auto files =
      static_cast<std::uint64_t>(std::ranges::count_if(receipt.entries, is_unmatched));
  if (files == 0) {
    return;
  }
  Table table{.title = "Results that no rule named",
              .note = files_text(files, bytes_of(receipt, is_unmatched)) +
                      " matched no output rule. The largest:",
              .heads = {"size", "file"},
              .rows = {}};
  for (const auto* entry : first_entries(receipt, is_unmatched, is_larger)) {
    table.rows.push_back({format_bytes(entry->bytes), entry->path});
  }
  tables.push_back(std::move(table));
}

void add_unopened(const stage::JobRecord& record, std::vector<Table>& tables) {
  const char* const title = "Inputs that no program opened";
  if (record.continued) {
    tables.push_back({.title = title,
                      .note = "Not known: the job continued with the buffer of an earlier run, "
                              "whose opens are not recorded.",
                      .heads = {},
                      .rows = {}});
  }
  if (!record.unopened || record.unopened->files == 0) {
    return;
  }
  const auto& unopened = *record.unopened;
  Table table{.title = title,
              .note = format_bytes(unopened.bytes) + " of " + format_bytes(unopened.of_bytes) +
                      " (" + std::to_string(unopened.files) + " of " +
                      std::to_string(unopened.of_files) +
                      " files) were staged for nothing. The largest:",
              .heads = {"size", "file"},
              .rows = {}};
  for (const auto& file : unopened.largest) {
    table.rows.push_back({format_bytes(file.bytes), file.path});
  }
  tables.push_back(std::move(table));
}

void add_missed(const stage::JobRecord& record, std::vector<Table>& tables) {
  if (!record.missed) {
    return;
  }
  const auto& missed = *record.missed;
  Table table{.title = "Names looked up in vain although root-dir has them",
              .note = "",
              .heads = {"size", "name"},
              .rows = {}};
  if (!missed.files.empty()) {
    table.note = "Programs asked for these names; the job file does not name them.";
  } else if (missed.named > 0) {
    table.note = "Programs asked for " + std::to_string(missed.named) +
                 " such names. The page beside the receipt, which only the job's user can read, "
                 "has them.";
  }
  for (const auto& file : missed.files) {
    table.rows.push_back({file.bytes > 0 ? format_bytes(file.bytes) : "-", file.path});
  }
  if (missed.not_kept > 0) {
    table.note += " " + std::to_string(missed.not_kept) +
                  " more lookups were not recorded: the set of names is bounded.";
  }
  if (missed.unchecked > 0) {
    table.note += " root-dir did not answer in time whether it has " +
                  std::to_string(missed.unchecked) + " of the names that programs looked up.";
  }
  if (!table.note.empty()) {
    table.note.erase(0, table.note.find_first_not_of(' '));
    tables.push_back(std::move(table));
  }
}

void add_opens(const stage::JobRecord& record, std::vector<Table>& tables) {
  if (!record.counters) {
    return;
  }
  const auto& c = *record.counters;
  Table table{.title = "Opens by path",
              .note = "Reads and writes of passthrough opens are the kernel's and are not counted.",
              .heads = {"opens", "read", "written", "path"},
              .rows = {}};
  table.rows.push_back({std::to_string(c.passthrough_opens), "-", "-", "passthrough"});
  table.rows.push_back({std::to_string(c.opens - std::min(c.opens, c.passthrough_opens)),
                        format_bytes(c.read_bytes), format_bytes(c.written_bytes),
                        "daemon" + (c.daemon_reason.empty() ? "" : " (" + c.daemon_reason + ")")});
  tables.push_back(std::move(table));
}

void add_record(const stage::JobRecord& record, Report& report) {
  if (record.space) {
    report.capacity = record.space->capacity;
    const Nanoseconds begin = record.phases.empty() ? Nanoseconds{0} : record.phases.front().begin;
    for (const auto& sample : record.space->samples) {
      report.space.push_back({.seconds = seconds_of(sample.time - begin), .used = sample.used});
    }
  }
  if (record.counters) {
    report.passthrough_opens = record.counters->passthrough_opens;
    report.daemon_opens =
        record.counters->opens - std::min(record.counters->opens, report.passthrough_opens);
  }
  add_unopened(record, report.tables);
  add_missed(record, report.tables);
  add_opens(record, report.tables);
}

}  // namespace

std::string time_text(double seconds) {
  std::array<char, 32> text{};
  if (seconds > 0 && seconds < 0.1) {
    (void)std::snprintf(text.data(), text.size(), seconds < 1e-3 ? "< 1 ms" : "%.0f ms",
                        1e3 * seconds);
  } else {
    (void)std::snprintf(text.data(), text.size(), "%.2f s", seconds);
  }
  return seconds < 10 ? text.data() : format_seconds(seconds);
}

std::string rate_text(std::uint64_t bytes, double seconds) {
  constexpr std::uint64_t least = 64U << 10U;
  return bytes < least || seconds <= 0
             ? ""
             : format_bytes(static_cast<std::uint64_t>(static_cast<double>(bytes) / seconds)) +
                   "/s";
}

Report make_report(const Receipt& receipt) {
  Report report;
  report.job = receipt.job;
  report.results_dir = receipt.results_dir;
  report.verdict = stage::name_of(receipt.verdict);
  report.when = date_of(receipt.ended);
  report.summary = summary_of(receipt);
  report.bars = bars_of(receipt);
  report.tables.push_back(times_of(receipt, report.bars));
  add_failed(receipt, report.tables);
  add_unmatched(receipt, report.tables);
  if (receipt.record) {
    add_record(*receipt.record, report);
  }
  add_files(receipt, report.tables);
  report.advice = advice_for(receipt);
  return report;
}

nlohmann::json to_json(const Report& report) {
  using Json = nlohmann::json;
  Json json{{"job", report.job},         {"results_dir", report.results_dir},
            {"verdict", report.verdict}, {"summary", Json::object()},
            {"phases", Json::array()},   {"tables", Json::array()},
            {"advice", Json::array()}};
  for (const auto& fact : report.summary) {
    json["summary"][fact.label] = fact.text;
  }
  for (const auto& bar : report.bars) {
    json["phases"].push_back({{"name", bar.name},
                              {"begin", bar.begin},
                              {"seconds", bar.seconds},
                              {"bytes", bar.bytes},
                              {"beside", bar.beside}});
  }
  for (const auto& table : report.tables) {
    json["tables"].push_back({{"title", table.title},
                              {"note", table.note},
                              {"heads", table.heads},
                              {"rows", table.rows}});
  }
  for (const auto& advice : report.advice) {
    json["advice"].push_back({{"text", advice.text}, {"lines", advice.lines}});
  }
  return json;
}

}  // namespace efs::report
