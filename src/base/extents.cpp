// SPDX-License-Identifier: BSD-3-Clause
#include "base/extents.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace efs {

void Extents::split(std::uint64_t at) {
  const auto behind = runs_.lower_bound(at);
  if (behind == runs_.begin()) {
    return;
  }
  const auto crossing = std::prev(behind);
  Run& run = crossing->second;
  const std::uint64_t before = at - crossing->first;
  if (run.length <= before) {
    return;
  }
  runs_.emplace_hint(behind, at, Run{.device = run.device + before, .length = run.length - before});
  run.length = before;
}

// Merges the extents that meet at `at`, if they meet on the device too.
void Extents::join(std::uint64_t at) noexcept {
  const auto behind = runs_.find(at);
  if (behind == runs_.begin() || behind == runs_.end()) {
    return;
  }
  const auto before = std::prev(behind);
  Run& run = before->second;
  if (before->first + run.length == at && run.device + run.length == behind->second.device) {
    run.length += behind->second.length;
    runs_.erase(behind);
  }
}

void Extents::map(const Extent& added) {
  Extents one;
  one.runs_.emplace(added.offset, Run{.device = added.device, .length = added.length});
  one.physical_ = added.length;
  replace(added.offset, added.end(), std::move(one));
}

// Allocates first; the rest cannot fail.
void Extents::replace(std::uint64_t begin, std::uint64_t end, Extents&& with) {
  if (begin >= end) {
    return;
  }
  split(begin);
  try {
    split(end);
  } catch (...) {
    join(begin);
    throw;
  }
  for (auto one = runs_.lower_bound(begin); one != runs_.end() && one->first < end;) {
    physical_ -= one->second.length;
    one = runs_.erase(one);
  }
  physical_ += std::exchange(with.physical_, 0);
  runs_.merge(with.runs_);
  join(begin);
  join(end);
}

std::optional<Extent> Extents::find(std::uint64_t offset) const {
  auto found = runs_.upper_bound(offset);
  if (found != runs_.begin()) {
    const auto before = std::prev(found);
    if (offset - before->first < before->second.length) {
      found = before;
    }
  }
  if (found == runs_.end()) {
    return std::nullopt;
  }
  return Extent{
      .offset = found->first, .device = found->second.device, .length = found->second.length};
}

std::vector<Extent> Extents::within(std::uint64_t begin, std::uint64_t end) const {
  std::vector<Extent> found;
  while (begin < end) {
    const auto one = find(begin);
    if (!one || one->offset >= end) {
      break;
    }
    const std::uint64_t from = std::max(begin, one->offset), to = std::min(end, one->end());
    found.push_back(
        {.offset = from, .device = one->device + (from - one->offset), .length = to - from});
    begin = to;
  }
  return found;
}

std::vector<Extent> Extents::gaps(std::uint64_t begin, std::uint64_t end) const {
  std::vector<Extent> found;
  while (begin < end) {
    const auto one = find(begin);
    const std::uint64_t next = one ? std::min(one->offset, end) : end;
    if (next > begin) {
      found.push_back({.offset = begin, .device = 0, .length = next - begin});
    }
    begin = one && one->offset < end ? one->end() : end;
  }
  return found;
}

bool Extents::covers(std::uint64_t begin, std::uint64_t end) const {
  return gaps(begin, end).empty();
}

std::vector<Extent> Extents::list() const {
  std::vector<Extent> all;
  all.reserve(runs_.size());
  for (const auto& [offset, run] : runs_) {
    all.push_back({.offset = offset, .device = run.device, .length = run.length});
  }
  return all;
}

}  // namespace efs
