// SPDX-License-Identifier: BSD-3-Clause
#include "stage/plan/hard_links.hpp"

#include <map>
#include <utility>

namespace efs::stage {
namespace {

constexpr std::uint64_t grain = 4096;  // the smallest piece a buffer gives out
// bytes of all names of one file: they go into one record
constexpr std::size_t longest_names = 64U << 10U;

}  // namespace

std::uint64_t rounded(std::uint64_t bytes) {
  return (bytes + grain - 1) / grain * grain;
}

void group_links(std::vector<PlanEntry>& entries) {
  struct First {
    const std::string* path;
    std::size_t bytes;
  };

  std::map<std::pair<std::uint64_t, std::uint64_t>, First> firsts;  // by device and inode
  for (auto& entry : entries) {
    if (!entry.linked) {
      continue;
    }
    entry.link_to.clear();
    const First own{&entry.path, entry.path.size()};
    const auto [known, is_first] =
        firsts.try_emplace({entry.origin.device, entry.origin.inode}, own);
    if (is_first) {
      continue;
    }
    known->second.bytes += entry.path.size() + 1;
    if (known->second.bytes > longest_names) {
      known->second = own;
    } else {
      entry.link_to = *known->second.path;
    }
  }
}

// Evictable files need room for one of them at a time.
void need_room_for_largest(Plan& plan) {
  PlanEntry* largest = nullptr;
  for (auto& entry : plan.entries) {
    if (is_evictable(entry) && (largest == nullptr || entry.size > largest->size)) {
      largest = &entry;
    }
  }
  if (largest != nullptr) {
    largest->needed = rounded(largest->size);
    plan.needed += largest->needed;
  }
}

void sum_up(Plan& plan) {
  plan.bytes = plan.needed = plan.inodes = plan.files = plan.reusable_files = plan.reusable_bytes =
      plan.remote_files = plan.remote_bytes = 0;
  for (auto& entry : plan.entries) {
    if (entry.type == EntryType::file) {
      ++plan.files;
    }
    entry.needed = entry.link_to.empty() && !is_evictable(entry) ? rounded(entry.size) : 0;
    if (!entry.link_to.empty()) {
      continue;
    }
    plan.bytes += entry.size;
    plan.needed += entry.needed;
    ++plan.inodes;
    if (is_remote(entry)) {
      ++plan.remote_files;
      plan.remote_bytes += entry.size;
      continue;  // it bypasses the cache
    }
    if (entry.type != EntryType::file || !entry.reusable) {
      continue;
    }
    ++plan.reusable_files;
    plan.reusable_bytes += entry.size;
  }
  need_room_for_largest(plan);
}

}  // namespace efs::stage
