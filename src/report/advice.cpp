// SPDX-License-Identifier: BSD-3-Clause
#include "report/advice.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <ranges>

#include "base/text.hpp"
#include "stage/export/unmatched.hpp"

namespace efs::report {
namespace {

using stage::Action;
using stage::Receipt;

constexpr std::size_t most_lines = 5;
constexpr std::uint64_t MiB = 1U << 20U;
// smaller wastes cost less than a change of the job file
constexpr std::uint64_t worth_bytes = 64 * MiB;
constexpr double worth_share = 0.1;
constexpr std::uint64_t worth_caching = 1024 * MiB;

std::string count_text(std::uint64_t count, const char* noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string first_component(const std::string& path) {
  return path.substr(0, path.find('/'));
}

/// A name as a YAML scalar in double quotes if it needs quotes. A line of advice must stay one
/// line.
std::string as_yaml(const std::string& name) {
  static constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=";
  const bool is_plain = !name.empty() && name.find_first_not_of(plain) == std::string::npos &&
                        name.find_first_of("-+=") != 0;
  if (is_plain) {
    return name;
  }
  std::string quoted = "\"";
  for (const char c : escaped(name)) {
    quoted += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
  }
  return quoted + "\"";
}

std::vector<std::string> lines_of(const char* section, const std::vector<std::string>& names,
                                  const std::string& more = {}) {
  std::vector<std::string> lines{section};
  for (const auto& name : names) {
    if (lines.size() > most_lines) {
      lines.emplace_back("  # ... and " + std::to_string(names.size() - most_lines) + " more");
      break;
    }
    lines.push_back("  - path: " + as_yaml(name));
    if (!more.empty()) {
      lines.push_back("    " + more);
    }
  }
  return lines;
}

void about_unopened(const Receipt& receipt, std::vector<Advice>& all) {
  if (!receipt.record || !receipt.record->unopened) {
    return;
  }
  const auto& unopened = *receipt.record->unopened;
  const bool is_worth =
      unopened.bytes >= worth_bytes ||
      static_cast<double>(unopened.bytes) > worth_share * static_cast<double>(unopened.of_bytes);
  if (unopened.files == 0 || !is_worth) {
    return;
  }
  Advice advice{.text = "No program opened " + count_text(unopened.files, "input") + " (" +
                        format_bytes(unopened.bytes) + " of " + format_bytes(unopened.of_bytes) +
                        "). Remove what the job does not need from these resources:",
                .lines = {"resources:"}};
  const auto is_large = [&](const auto& resource) {
    return static_cast<double>(resource.bytes) >= worth_share * static_cast<double>(unopened.bytes);
  };
  for (const auto& resource :
       unopened.resources | std::views::filter(is_large) | std::views::take(most_lines)) {
    advice.lines.push_back("  - path: " + as_yaml(resource.path.empty() ? "." : resource.path) +
                           "  # line " + std::to_string(resource.line) + ": " +
                           count_text(resource.files, "file") + ", " +
                           format_bytes(resource.bytes) + " not opened");
  }
  all.push_back(std::move(advice));
}

void about_missed(const Receipt& receipt, std::vector<Advice>& all) {
  if (!receipt.record || !receipt.record->missed || receipt.record->missed->files.empty()) {
    return;
  }
  std::vector<std::string> names;
  for (const auto& file : receipt.record->missed->files) {
    names.push_back(file.path);
  }
  all.push_back({.text = "Programs looked for names that root-dir has and the job file does not "
                         "name. If the job needs them, add them.",
                 .lines = lines_of("resources:", names)});
}

void about_unmatched(const Receipt& receipt, std::vector<Advice>& all) {
  std::map<std::string, std::uint64_t> bytes_of;  // by the first component
  std::uint64_t files = 0;
  for (const auto& entry : receipt.entries) {
    if (entry.action == Action::dropped && entry.reason == stage::no_rule_matches) {
      bytes_of[first_component(entry.path)] += entry.bytes;
      ++files;
    }
  }
  if (files == 0) {
    return;
  }
  std::vector<std::string> names;
  for (const auto& [name, bytes] : bytes_of) {
    names.push_back(name);
  }
  std::ranges::stable_sort(names, std::greater{},
                           [&](const std::string& name) { return bytes_of[name]; });
  all.push_back({.text = count_text(files, "new file") + " matched no output rule and " +
                         (files == 1 ? "was" : "were") +
                         " not exported. Add a rule for those that you want.",
                 .lines = lines_of("outputs:", names, "flags: persistent")});
}

void about_cache(const Receipt& receipt, std::vector<Advice>& all) {
  const auto& in = receipt.staged_in;
  if (!in || in->files_reused > 0 || in->bytes < worth_caching) {
    return;
  }
  all.push_back({.text = "The stage-in read " + format_bytes(in->bytes) +
                         " from the PFS. If later jobs on this node use the same inputs, keep "
                         "them in the node's cache.",
                 .lines = {"resources:", "  - path: DIRECTORY", "    reusable: true"}});
}

void about_space(const Receipt& receipt, std::vector<Advice>& all) {
  if (!receipt.record || !receipt.record->space || receipt.record->space->samples.empty()) {
    return;
  }
  const auto& space = *receipt.record->space;
  const auto peak =
      std::ranges::max(space.samples, {}, [](const auto& sample) { return sample.used; }).used;
  const auto share = static_cast<double>(peak) / static_cast<double>(std::max(space.capacity, MiB));
  if (share > 0.9) {
    all.push_back({.text = "The buffer was " + std::to_string(std::lround(100 * share)) +
                           "% full. A larger capacity avoids errors of programs.",
                   .lines = {"backends:", "  - capacity: SIZE"}});
  }
}

void about_results(const Receipt& receipt, std::vector<Advice>& all) {
  const auto& totals = receipt.totals;
  if (totals.replaced > 0) {
    all.push_back({.text = count_text(totals.replaced, "result") +
                           " replaced files of the same name. To keep both versions:",
                   .lines = {"global-settings:", "  existing: keep-both"}});
  }
  const auto is_existing = [](const stage::ReceiptEntry& entry) {
    return entry.action == Action::conflict && entry.reason.contains(stage::says_existing_fail);
  };
  const auto existed =
      static_cast<std::uint64_t>(std::ranges::count_if(receipt.entries, is_existing));
  if (existed > 0) {
    all.push_back({.text = count_text(existed, "result") +
                           " met a file of the same name in results-dir, and the job file says "
                           "existing: fail. To export under a second name:",
                   .lines = {"global-settings:", "  existing: keep-both"}});
  }
  if (totals.conflict > existed) {
    all.push_back({.text = count_text(totals.conflict - existed, "result") +
                           " met another version on the PFS and stayed in the buffer. To export "
                           "under a second name:",
                   .lines = {"global-settings:", "  on-conflict: keep-both"}});
  }
  if (totals.not_saved > 0) {
    all.push_back({.text = count_text(totals.not_saved, "result") +
                           " could not be tried, because time or space was short. Mark "
                           "files that you do not need:",
                   .lines = {"outputs:", "  - path: scratch", "    flags: temporary"}});
  }
}

void about_vanished(const Receipt& receipt, std::vector<Advice>& all) {
  if (!receipt.staged_in) {
    return;
  }
  const auto vanished =
      std::ranges::count_if(receipt.staged_in->skipped, &stage::PlanSkip::vanished);
  if (vanished > 0) {
    all.push_back({.text = count_text(static_cast<std::uint64_t>(vanished), "input") +
                           " vanished during the start. Stage in a directory that no "
                           "other job changes.",
                   .lines = {}});
  }
}

}  // namespace

std::vector<Advice> advice_for(const Receipt& receipt) {
  std::vector<Advice> all;
  about_unmatched(receipt, all);
  about_missed(receipt, all);
  about_unopened(receipt, all);
  about_results(receipt, all);
  about_space(receipt, all);
  about_cache(receipt, all);
  about_vanished(receipt, all);
  return all;
}

}  // namespace efs::report
