// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/unmatched.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/text.hpp"

namespace efs::stage {
namespace {

constexpr std::size_t most_named = 3;

std::string text_of(const std::vector<const ReceiptEntry*>& largest, std::uint64_t files,
                    std::uint64_t bytes, bool stays) {
  const bool one = files == 1;
  std::string text = std::to_string(files) + " new file" + (one ? "" : "s") + " (" +
                     format_bytes(bytes) + ") matched no output rule and ";
  text += stays ? (one ? "stays in the buffer: " : "stay in the buffer")
                : (one ? "was dropped: " : "were dropped");
  if (!one) {
    text += files > largest.size() ? ", the largest: " : ": ";
  }
  for (const auto* entry : largest) {
    text += (entry == largest.front() ? "" : ", ") + escaped(entry->path) +
            (one ? "" : " (" + format_bytes(entry->bytes) + ")");
  }
  return text;
}

}  // namespace

nlohmann::json unmatched_in(const Receipt& receipt, bool stays) {
  std::vector<const ReceiptEntry*> found;
  std::uint64_t bytes = 0;
  for (const auto& entry : receipt.entries) {
    if (entry.action != Action::dropped || entry.reason != no_rule_matches) {
      continue;
    }
    found.push_back(&entry);
    bytes += entry.bytes;
  }
  if (found.empty()) {
    return nullptr;
  }
  const std::uint64_t files = found.size();
  const std::size_t named = std::min(most_named, found.size());
  const auto is_larger = [](const ReceiptEntry* a, const ReceiptEntry* b) {
    return a->bytes != b->bytes ? a->bytes > b->bytes : a->path < b->path;
  };
  std::ranges::partial_sort(found, found.begin() + static_cast<std::ptrdiff_t>(named), is_larger);
  found.resize(named);
  nlohmann::json json{{"files", files},
                      {"bytes", bytes},
                      {"largest", nlohmann::json::array()},
                      {"text", text_of(found, files, bytes, stays)}};
  for (const auto* entry : found) {
    json["largest"].push_back({{"path", entry->path}, {"bytes", entry->bytes}});
  }
  return json;
}

}  // namespace efs::stage
