// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/missed_names.hpp"

#include <exception>
#include <fstream>
#include <iterator>
#include <new>
#include <nlohmann/json.hpp>

#include "base/json_text.hpp"
#include "stage/pfs/partial_name.hpp"
#include "stage/pfs/paths.hpp"

namespace efs::stage {
namespace {

using Json = nlohmann::json;

constexpr std::string_view beginning = "{\"efs-report\":1,";

}  // namespace

std::string missed_names_text(const Receipt& receipt) {
  if (!receipt.record || !receipt.record->missed || receipt.record->missed->files.empty()) {
    return "";
  }
  Json files = Json::array();
  for (const auto& file : receipt.record->missed->files) {
    files.push_back({{"path", file.path}, {"bytes", file.bytes}});
  }
  return json_to_text(
             {{"efs-report", 1}, {"ended_ns", receipt.ended}, {"files", std::move(files)}}) +
         "\n";
}

bool begins_missed_names(std::string_view text) {
  return text.starts_with(beginning);
}

void add_missed_names(Receipt& receipt, const std::string& path) try {
  if (!receipt.record || !receipt.record->missed || receipt.record->missed->named == 0) {
    return;
  }
  const std::string directory = parent_of(path);
  std::ifstream file((directory.empty() && !path.starts_with('/') ? "." : directory) + "/" +
                         missed_names_name(receipt.job),
                     std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const Json json = json_from_text(text);
  if (!begins_missed_names(text) || !json.is_object() ||
      json.value("ended_ns", Nanoseconds{0}) != receipt.ended) {
    return;
  }
  std::vector<JobFile> files;
  for (const auto& one : json.at("files")) {
    files.push_back({.path = one.at("path"), .bytes = one.at("bytes")});
  }
  receipt.record->missed->files = std::move(files);
} catch (const std::bad_alloc&) {
  throw;
} catch (const std::exception&) {
  // another kind of file: the number of names is all there is
}

}  // namespace efs::stage
