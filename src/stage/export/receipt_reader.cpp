// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/receipt_reader.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/json_text.hpp"

namespace efs::stage {
namespace {

using Json = nlohmann::json;

/// The inverse of the receipt's times; 0 if the text is not a time.
Nanoseconds time_of(const std::string& text) {
  std::array<int, 6> part{};
  long nanoseconds = 0;
  if (std::sscanf(text.c_str(), "%d-%d-%dT%d:%d:%d.%ldZ", &part[0], &part[1], &part[2], &part[3],
                  &part[4], &part[5], &nanoseconds) != 7) {
    return 0;
  }
  const std::chrono::sys_days day = std::chrono::year(part[0]) /
                                    std::chrono::month(static_cast<unsigned>(part[1])) /
                                    std::chrono::day(static_cast<unsigned>(part[2]));
  const auto moment = day + std::chrono::hours(part[3]) + std::chrono::minutes(part[4]) +
                      std::chrono::seconds(part[5]);
  return std::chrono::nanoseconds(moment.time_since_epoch()).count() + nanoseconds;
}

ReceiptTotals totals_of(const Json& json) {
  const auto number = [&](const char* key) {
    return json.value(key, std::uint64_t{0});
  };
  ReceiptTotals totals;
  totals.staged_out = number("staged-out");
  totals.replaced = number("replaced");
  totals.unchanged = number("unchanged");
  totals.kept = number("kept");
  totals.dropped = number("dropped");
  totals.skipped = number("skipped");
  totals.failed = number("failed");
  totals.conflict = number("conflict");
  totals.not_saved = number("not-saved");
  totals.removed = number("removed");
  totals.bytes_staged_out = number("bytes_staged_out");
  totals.bytes_left = number("bytes_left");
  return totals;
}

StagedIn staged_in_of(const Json& json) {
  const auto number = [&](const char* key) {
    return json.value(key, std::uint64_t{0});
  };
  StagedIn in;
  in.files = number("files");
  in.bytes = number("bytes");
  in.files_reused = number("files_reused");
  in.bytes_reused = number("bytes_reused");
  in.files_away = number("files_away");
  for (const auto& skip : json.value("skipped", Json::array())) {
    in.skipped.push_back({.path = skip.at("path"),
                          .reason = skip.at("reason"),
                          .vanished = skip.value("vanished", false)});
  }
  return in;
}

Verdict verdict_of(const std::string& name) {
  for (const auto one : {Verdict::complete, Verdict::partial}) {
    if (name == name_of(one)) {
      return one;
    }
  }
  return Verdict::failed;
}

/// All but the entries.
Receipt head_of(const Json& json) {
  Receipt receipt;
  receipt.job = json.at("job");
  receipt.results_dir = json.at("results_dir");
  receipt.started = time_of(json.value("started", ""));
  receipt.ended = time_of(json.value("ended", ""));
  receipt.verdict = verdict_of(json.value("verdict", ""));
  receipt.reason = json.value("reason", "");
  receipt.note = json.value("note", "");
  receipt.read_back = json.value("verify", "") == "read-back";
  receipt.retries = json.value("retries", std::uint64_t{0});
  receipt.unlisted = json.value("unlisted", std::uint64_t{0});
  receipt.totals = totals_of(json.value("totals", Json::object()));
  if (const auto in = json.find("staged_in"); in != json.end()) {
    receipt.staged_in = staged_in_of(*in);
  }
  if (const auto record = json.find("record"); record != json.end()) {
    receipt.record = job_record_of(*record);
  }
  return receipt;
}

}  // namespace

Result<Json> read_receipt_document(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return fail_errno(path);
  }
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) {
    return fail(EIO, path + ": cannot be read");
  }
  auto json = json_from_text(text);
  const bool is_one = json.is_object() && json.value("format", Json()) == "efs-receipt-1" &&
                      json.contains("entries") && json["entries"].is_array();
  if (!is_one) {
    return fail(EPROTO, path + ": is not a receipt of efs");
  }
  return json;
}

Result<Receipt> read_receipt(const std::string& path) try {
  const auto json = read_receipt_document(path);
  if (!json) {
    return std::unexpected(json.error());
  }
  Receipt receipt = head_of(*json);
  for (const auto& line : json->at("entries")) {
    auto entry = entry_of(line);
    if (!entry) {
      return fail(EPROTO, path + ": has an entry that this version of efs cannot read");
    }
    receipt.entries.push_back(std::move(*entry));
  }
  return receipt;
} catch (const Json::exception&) {
  return fail(EPROTO, path + ": is not a receipt of efs");
}

}  // namespace efs::stage
