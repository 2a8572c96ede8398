// SPDX-License-Identifier: BSD-3-Clause
#include "image/check_extents.hpp"

#include <algorithm>
#include <utility>

namespace efs::image {
namespace {

struct Used {
  unsigned place = 0;
  std::uint64_t device = 0, length = 0, ino = 0;
};

}  // namespace

std::vector<SharedByte> find_shared_bytes(
    const fs::Namespace& names,
    const std::function<std::optional<unsigned>(std::uint64_t ino)>& place_of) {
  std::vector<Used> used;
  names.for_each([&](const fs::Inode& inode) {
    const auto* content = inode.content();
    const auto place = content != nullptr ? place_of(inode.ino) : std::nullopt;
    if (!place) {
      return;
    }
    for (const auto& extent : content->extents.list()) {
      used.push_back({*place, extent.device, extent.length, inode.ino});
    }
  });
  std::ranges::sort(used, {}, [](const Used& one) { return std::pair(one.place, one.device); });
  std::vector<SharedByte> shared;
  const Used* before = nullptr;  // of the same place, the one that ends last
  for (const auto& one : used) {
    const bool is_first = before == nullptr || before->place != one.place;
    if (!is_first && one.device - before->device < before->length) {
      shared.push_back({.ino = one.ino, .other = before->ino, .device = one.device});
    }
    if (is_first || one.device + one.length > before->device + before->length) {
      before = &one;
    }
  }
  return shared;
}

}  // namespace efs::image
