// SPDX-License-Identifier: BSD-3-Clause
#include "stage/pfs/partial_name.hpp"

#include <algorithm>
#include <span>

#include "base/checksum.hpp"

namespace efs::stage {
namespace {

constexpr std::size_t longest_name = 255;
constexpr std::size_t tag_digits = 12;

}  // namespace

std::string partial_tag_of(const std::string& store) {
  return "." + store.substr(0, tag_digits);
}

bool is_hidden_directory(std::string_view path) {
  if (!path.ends_with(partial_suffix)) {
    return false;
  }
  path.remove_suffix(std::string_view(partial_suffix).size());
  if (path.size() <= tag_digits + 1) {
    return false;
  }
  const auto tag = path.substr(path.size() - tag_digits - 1);
  return tag.front() == '.' &&
         tag.find_first_not_of("0123456789abcdef", 1) == std::string_view::npos;
}

std::string partial_name(const std::string& name, const std::string& tag, bool taken) {
  const std::string of = name + tag, partial = of + partial_suffix;
  if (!taken && partial.size() <= longest_name) {
    return partial;
  }
  return ".efs-" + to_hex(checksum(std::as_bytes(std::span(of)))) + partial_suffix;
}

std::string left_behind(const std::string& partial, const Error& error) {
  return "its partial " + partial + " stays behind: " + describe(error);
}

std::string kept_name(const std::string& name, const std::string& job, unsigned n) {
  const std::string suffix = ".efs-" + job + (n > 1 ? "." + std::to_string(n) : "");
  return name.substr(0, longest_name - std::min(suffix.size(), longest_name - 1)) + suffix;
}

std::string receipt_name(const std::string& job) {
  return "efs-receipt-" + job + ".json";
}

std::string salvage_receipt_name(const std::string& job) {
  return "efs-salvage-" + job + ".json";
}

std::string report_name(const std::string& job) {
  return "efs-report-" + job + ".html";
}

std::string missed_names_name(const std::string& job) {
  return "efs-report-" + job + ".json";
}

bool is_receipt_name(std::string_view name) {
  return (name.starts_with("efs-receipt-") || name.starts_with("efs-salvage-")) &&
         name.ends_with(".json");
}

bool is_report_name(std::string_view name) {
  return name.starts_with("efs-report-") && (name.ends_with(".html") || name.ends_with(".json"));
}

}  // namespace efs::stage
