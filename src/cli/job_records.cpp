// SPDX-License-Identifier: BSD-3-Clause
#include "cli/job_records.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "base/json_text.hpp"
#include "base/mounts.hpp"
#include "base/unique_fd.hpp"

namespace efs::cli {
namespace {

namespace stdfs = std::filesystem;
constexpr std::streamsize longest_record = 16384;
constexpr std::size_t head_of_receipt = 8192;  // bytes; the verdict is there
constexpr int answer_time_of_results = 5;      // seconds

constexpr std::array texts_of_a_record{"queue", "state", "instance", "node", "text", "receipt"};
constexpr std::array numbers_of_a_record{"time",      "uid",           "used",         "capacity",
                                         "takeovers", "changed_files", "changed_bytes"};

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

bool is_record(const Json& json) {
  if (!json.is_object()) {
    return false;
  }
  const auto is_text = [&](const char* key) {
    return !json.contains(key) || json[key].is_string();
  };
  const auto is_number = [&](const char* key) {
    return !json.contains(key) || json[key].is_number_unsigned();
  };
  return std::ranges::all_of(texts_of_a_record, is_text) &&
         std::ranges::all_of(numbers_of_a_record, is_number);
}

Json read_records(const std::string& directory) {
  std::map<std::string, Json> by_node;
  std::error_code problem;
  for (stdfs::directory_iterator it(directory, problem), end; !problem && it != end;
       it.increment(problem)) {
    if (it->path().filename().string().starts_with('.')) {
      continue;
    }
    std::string text(longest_record, '\0');
    std::ifstream file(it->path());
    file.read(text.data(), longest_record);
    text.resize(static_cast<std::size_t>(file.gcount()));
    Json record = json_from_text(text);
    if (is_record(record)) {
      by_node[it->path().filename().string()] = std::move(record);
    }
  }
  Json all = Json::array();
  for (auto& [node, record] : by_node) {
    all.push_back(std::move(record));
  }
  return all;
}

// Returns a member of the receipt's head whose text has no quotes; "" if there is none. A JSON
// string cannot contain the searched mark, because its quotes are escaped.
std::string member_of(const std::string& head, const std::string& key) {
  const std::string mark = ", \"" + key + "\": \"";
  const auto at = head.find(mark);
  return at == std::string::npos
             ? ""
             : head.substr(at + mark.size(), head.find('"', at + mark.size()) - at - mark.size());
}

std::string head_of(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  return file ? read_all(file.get(), head_of_receipt) : "";
}

// Returns "2026-01-31T12:00:00", the format with which a receipt's times begin.
std::string iso_time(std::int64_t seconds) {
  struct tm parts{};
  const time_t moment = seconds;
  ::gmtime_r(&moment, &parts);
  std::array<char, 32> text{};
  (void)std::strftime(text.data(), text.size(), "%FT%T", &parts);
  return text.data();
}

bool is_complete_since(const std::string& receipt, const std::string& since) {
  const std::string head = head_of(receipt);
  return member_of(head, "verdict") == "complete" && member_of(head, "ended") >= since;
}

// Returns the command that has exported the results since the record: "stop" or "salvage". Returns
// "" if no receipt says so. The receipt is the user's file, so this reads it with the user's
// rights.
std::string brought_since(const Json& record) {
  const stdfs::path receipt = record.value("receipt", "");
  constexpr std::string_view of_stop = "efs-receipt-", of_salvage = "efs-salvage-";
  const std::string name = receipt.filename().string(),
                    since = iso_time(record.value("time", std::int64_t{0}));
  if (!receipt.is_absolute() || !name.starts_with(of_stop) ||
      !answers(receipt.parent_path().string(), answer_time_of_results)) {
    return {};
  }
  const std::string other =
      (receipt.parent_path() / (std::string(of_salvage) + name.substr(of_stop.size()))).string();
  const auto found = as_owner(record.value("uid", uid_t{0}), [&]() -> Result<std::string> {
    return is_complete_since(receipt.string(), since) ? "stop"
           : is_complete_since(other, since)          ? "salvage"
                                                      : "";
  });
  return found.value_or("");
}

void follow_what_happened(Json& record) {
  const std::string state = record.value("state", "");
  if (state != "unsaved" && state != "dead" && state != "given-up") {
    return;
  }
  const std::string verb = brought_since(record);
  if (verb.empty()) {
    return;
  }
  record["was"] = state;
  record["state"] = "done";
  record["text"] = "all results are exported, by a later efs " + verb;
}

}  // namespace

Runs last_runs(const std::string& shared) {
  Runs runs;
  std::map<std::string, unsigned long> restarts;
  std::error_code problem;
  for (stdfs::directory_iterator it(shared + "/jobs", problem), end; !problem && it != end;
       it.increment(problem)) {
    const std::string name = it->path().filename().string();
    const auto dot = name.find('.');
    if (dot == std::string::npos || !is_number(name.substr(0, dot)) ||
        !is_number(name.substr(dot + 1))) {
      continue;
    }
    const std::string job = name.substr(0, dot);
    const unsigned long restart = std::strtoul(name.c_str() + dot + 1, nullptr, 10);
    if (runs.contains(job) && restarts[job] > restart) {
      continue;
    }
    runs[job] = it->path().string();
    restarts[job] = restart;
  }
  return runs;
}

Json records_of(const Runs& runs, const std::string& job) {
  const auto run = runs.find(job);
  if (run == runs.end()) {
    return Json::array();
  }
  Json all = read_records(run->second);
  for (auto& record : all) {
    follow_what_happened(record);
  }
  return all;
}

std::map<std::string, std::string> tasks_of_array(const std::string& shared,
                                                  const std::string& array) {
  std::map<std::string, std::string> tasks;
  std::error_code problem;
  for (stdfs::directory_iterator it(shared + "/jobs/.arrays/" + array, problem), end;
       !problem && it != end; it.increment(problem)) {
    std::string job;
    std::ifstream(it->path()) >> job;
    const std::string task = it->path().filename().string();
    if (is_number(task) && is_number(job)) {
      tasks[task] = job;
    }
  }
  return tasks;
}

}  // namespace efs::cli
