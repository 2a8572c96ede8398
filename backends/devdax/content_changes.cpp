// SPDX-License-Identifier: BSD-3-Clause
// The changes of a content: each allocates, stores and drains, is logged, and then shows.
#include <linux/falloc.h>

#include <algorithm>
#include <ctime>
#include <list>
#include <new>
#include <optional>
#include <utility>

#include "backends/devdax/content_store.hpp"

namespace efs::devdax {
namespace {

constexpr std::uint64_t largest_size = INT64_MAX / 2;

// A file that grows gets space ahead only while so many times as much is available.
constexpr std::uint64_t ample_space = 16;

}  // namespace

/// New extents of a file, in its order. Gives them back unless they are committed.
class ContentStore::Growth {
 public:
  explicit Growth(ContentStore& store) : store_(store) {}

  ~Growth() {
    if (!is_committed) {
      store_.give_back(added);
    }
  }

  Growth(const Growth&) = delete;
  Growth& operator=(const Growth&) = delete;

  std::uint64_t begin() const { return added.empty() ? 0 : added.front().offset; }

  std::uint64_t end() const { return added.empty() ? 0 : added.back().end(); }

  std::vector<Extent> added;
  std::uint64_t reach = 0;  // the file has space up to here, from the begin of the request
  bool is_committed = false;

 private:
  ContentStore& store_;
};

/// The new extents of [begin, end), and the new size.
struct ContentStore::Edit {
  std::uint64_t begin = 0, end = 0;
  Extents with;
  std::uint64_t size = 0;
  std::vector<DeviceRange> freed;
};

/// Bytes to allocate for a gap. An append doubles the file's space up to a block, so that a file
/// of many small appends has few extents.
std::uint64_t ContentStore::wanted(ContainerContent& content, const Extent& gap,
                                   std::uint64_t begin) {
  const std::uint64_t ahead = std::min(block_, content.map.physical());
  if (content.size == 0 || begin != content.size || gap.end() < content.map.end() ||
      gap.length >= ahead) {
    return gap.length;
  }
  MutexLock lock(space_);
  return allocator_.space().available / ample_space >= ahead ? ahead : gap.length;
}

/// Allocates space for the holes of [begin, end); growth.reach tells how far it lasts.
void ContentStore::fill(ContainerContent& content, std::uint64_t begin, std::uint64_t end,
                        Growth& growth) {
  growth.reach = end;
  for (const auto& gap : content.map.gaps(round_down(begin, unit_), round_up(end, unit_))) {
    const bool is_last = gap.end() >= end;
    const auto before = gap.offset == 0 ? std::nullopt : content.map.find(gap.offset - 1);
    std::uint64_t hint =
        before && before->offset < gap.offset ? before->device + (gap.offset - before->offset) : 0;
    const auto ranges = take(is_last ? wanted(content, gap, begin) : gap.length, hint);
    std::uint64_t at = gap.offset;
    try {
      growth.added.reserve(growth.added.size() + ranges.size());
    } catch (const std::bad_alloc&) {
      MutexLock lock(space_);
      for (const auto& range : ranges) {
        allocator_.free(range);
      }
      throw;
    }
    for (const auto& range : ranges) {
      growth.added.push_back({.offset = at, .device = range.offset, .length = range.length});
      at += range.length;
    }
    if (at < gap.end()) {
      growth.reach = std::clamp(at, begin, end);
      return;
    }
  }
}

/// Logs the edit and carries it out. Allocates all that it needs before the log has it.
Status ContentStore::commit(ContainerContent& content, Edit&& edit) {
  std::list<ExtentAllocator::Quarantined> freed;
  if (!edit.freed.empty()) {
    freed.push_back({.position = 0, .ranges = std::move(edit.freed)});
  }
  ContentChange change{.id = content.id,
                       .size = edit.size,
                       .physical = content.map.physical() + edit.with.physical(),
                       .begin = edit.begin,
                       .end = edit.end,
                       .extents = edit.with.within(edit.begin, edit.end)};
  for (const auto& replaced : content.map.within(edit.begin, edit.end)) {
    change.physical -= replaced.length;
  }
  if (edit.begin < edit.end) {
    content.map.split(edit.begin);
    content.map.split(edit.end);
  }
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
  change.mtime = change.ctime = now;
  {
    MutexLock times(content.times);
    change.atime = content.atime;
  }
  const auto position = log_->changed(change);
  if (!position) {
    content.map.join(edit.begin);
    content.map.join(edit.end);
    return std::unexpected(position.error());
  }
  content.map.replace(edit.begin, edit.end, std::move(edit.with));
  content.size = edit.size;
  {
    MutexLock times(content.times);
    content.mtime = content.ctime = now;
  }
  if (!freed.empty()) {
    freed.front().position = *position;
    MutexLock lock(space_);
    allocator_.quarantine(std::move(freed));
  }
  return {};
}

Result<std::size_t> ContentStore::write(ContainerContent& content, std::span<const std::byte> from,
                                        std::uint64_t offset) {
  if (from.empty()) {
    return std::size_t{0};
  }
  if (offset > largest_size - std::min<std::uint64_t>(from.size(), largest_size)) {
    return fail(EFBIG);
  }
  const std::uint64_t end = offset + from.size();
  {
    ReadLock lock(content.shape);
    if (end <= content.size && content.map.covers(offset, end)) {
      EFS_TRY(store_in(content.map.within(offset, end), from, offset));
      device_->drain();
      {
        MutexLock times(content.times);
        timespec now{};
        ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
        content.mtime = content.ctime = now;
      }
      log_->touched(content.id);
      return from.size();
    }
  }
  WriteLock lock(content.shape);
  return extend(content, from, offset);
}

/// Writes into holes, or beyond the end.
Result<std::size_t> ContentStore::extend(ContainerContent& content, std::span<const std::byte> from,
                                         std::uint64_t offset) {
  Growth growth(*this);
  fill(content, offset, offset + from.size(), growth);
  if (growth.reach == offset) {
    return fail(ENOSPC);
  }
  from = from.first(growth.reach - offset);
  Edit edit{.begin = growth.begin(),
            .end = growth.end(),
            .with = {},
            .size = std::max(content.size, growth.reach),
            .freed = {}};
  if (offset > content.size) {
    EFS_TRY(zero_existing(content, content.size, offset));
  }
  for (const auto& extent : growth.added) {
    const std::uint64_t begin = std::clamp(offset, extent.offset, extent.end()),
                        end = std::clamp(growth.reach, extent.offset, extent.end()),
                        visible = std::clamp(edit.size, end, extent.end());
    zero(extent.device, begin - extent.offset);
    zero(extent.device + (end - extent.offset), visible - end);
  }
  EFS_TRY(store_in(content.map.within(offset, growth.reach), from, offset));
  EFS_TRY(store_in(growth.added, from, offset));
  device_->drain();
  for (const auto& kept : content.map.within(edit.begin, edit.end)) {
    edit.with.map(kept);
  }
  for (const auto& extent : growth.added) {
    edit.with.map(extent);
  }
  EFS_TRY(commit(content, std::move(edit)));
  growth.is_committed = true;
  return from.size();
}

Status ContentStore::truncate(ContainerContent& content, std::uint64_t size) {
  if (size > largest_size) {
    return fail(EFBIG);
  }
  WriteLock lock(content.shape);
  Edit edit{.begin = 0, .end = 0, .with = {}, .size = size, .freed = {}};
  if (size > content.size) {
    EFS_TRY(zero_existing(content, content.size, size));
    device_->drain();
  } else if (const std::uint64_t keep = round_up(size, unit_); keep < content.map.end()) {
    edit.begin = keep;
    edit.end = content.map.end();
    for (const auto& extent : content.map.within(edit.begin, edit.end)) {
      edit.freed.push_back({.offset = extent.device, .length = extent.length});
    }
  }
  return commit(content, std::move(edit));
}

Status ContentStore::allocate(ContainerContent& content, int mode, std::uint64_t offset,
                              std::uint64_t length) {
  if (length == 0) {
    return fail(EINVAL);
  }
  if (offset > largest_size || length > largest_size - offset) {
    return fail(EFBIG);
  }
  WriteLock lock(content.shape);
  switch (mode & ~FALLOC_FL_KEEP_SIZE) {
    case 0:
    case FALLOC_FL_ZERO_RANGE: return reserve(content, mode, offset, offset + length);
    case FALLOC_FL_PUNCH_HOLE:
      return (mode & FALLOC_FL_KEEP_SIZE) != 0 ? punch(content, offset, offset + length)
                                               : fail(EOPNOTSUPP);
    default: return fail(EOPNOTSUPP);
  }
}

Status ContentStore::reserve(ContainerContent& content, int mode, std::uint64_t offset,
                             std::uint64_t end) {
  Growth growth(*this);
  fill(content, offset, end, growth);
  if (growth.reach < end) {
    return fail(ENOSPC);
  }
  const bool keeps_size = (mode & FALLOC_FL_KEEP_SIZE) != 0;
  Edit edit{.begin = growth.begin(),
            .end = growth.end(),
            .with = {},
            .size = keeps_size ? content.size : std::max(content.size, end),
            .freed = {}};
  for (const auto& extent : growth.added) {
    zero(extent.device, std::clamp(edit.size, extent.offset, extent.end()) - extent.offset);
  }
  if (edit.size > content.size) {
    EFS_TRY(zero_existing(content, content.size, edit.size));
  }
  if ((mode & FALLOC_FL_ZERO_RANGE) != 0) {
    EFS_TRY(zero_existing(content, offset, std::min(end, edit.size)));
  }
  device_->drain();
  for (const auto& kept : content.map.within(edit.begin, edit.end)) {
    edit.with.map(kept);
  }
  for (const auto& extent : growth.added) {
    edit.with.map(extent);
  }
  EFS_TRY(commit(content, std::move(edit)));
  growth.is_committed = true;
  return {};
}

/// Zeroes the parts of units at both ends, and frees the units between.
Status ContentStore::punch(ContainerContent& content, std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t first = round_up(begin, unit_), last = round_down(end, unit_);
  EFS_TRY(zero_existing(content, begin, std::min(first, end)));
  EFS_TRY(zero_existing(content, std::max(last, begin), end));
  device_->drain();
  Edit edit{.begin = 0, .end = 0, .with = {}, .size = content.size, .freed = {}};
  if (first < last) {
    for (const auto& extent : content.map.within(first, last)) {
      edit.freed.push_back({.offset = extent.device, .length = extent.length});
    }
  }
  if (!edit.freed.empty()) {
    edit.begin = first;
    edit.end = last;
  }
  return commit(content, std::move(edit));
}

}  // namespace efs::devdax
