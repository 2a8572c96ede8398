// SPDX-License-Identifier: BSD-3-Clause
#include "backends/devdax/content_store.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <string>
#include <utility>

namespace efs::devdax {
namespace {

// The clock by which the kernel stamps files.
FileTime stamp() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return now;
}

}  // namespace

ContentStore::ContentStore(DevdaxOptions options, ExtentAllocator allocator)
    : device_(std::move(options.device)),
      log_(std::move(options.log)),
      unit_(allocator.layout().unit()),
      block_(allocator.layout().block),
      data_(allocator.layout().offset),
      allocator_(std::move(allocator)) {
  if (options.superblock.zero_before_use) {
    BitTree stale(options.superblock.data.blocks);
    for (std::uint64_t block = 0; block < options.superblock.data.blocks; ++block) {
      stale.insert(block);
    }
    MutexLock lock(space_);
    stale_ = std::move(stale);
  }
}

Status ContentStore::add(const StoredContent& stored) {
  auto content = std::make_shared<ContainerContent>(stored.id);
  const auto refuse = [&](const std::string& why) {
    return fail(EUCLEAN, "container " + std::to_string(stored.id) + ": " + why);
  };
  WriteLock shape(content->shape);
  for (const auto& extent : stored.extents) {
    if (extent.offset % unit_ != 0 || extent.offset > UINT64_MAX - extent.length ||
        !content->map.within(extent.offset, extent.end()).empty()) {
      return refuse("an extent overlaps another one of the file, or is not of whole units");
    }
    MutexLock lock(space_);
    if (const auto claimed = allocator_.claim({.offset = extent.device, .length = extent.length});
        !claimed) {
      return refuse(claimed.error().what);
    }
    content->map.map(extent);
  }
  content->size = stored.size;
  {
    MutexLock times(content->times);
    content->atime = stored.atime;
    content->mtime = stored.mtime;
    content->ctime = stored.ctime;
  }
  WriteLock table(table_);
  if (!contents_.emplace(stored.id, content).second) {
    return refuse("it is there twice");
  }
  return {};
}

// --- the table

Result<ContentPointer> ContentStore::create(std::uint64_t id, bool writes) {
  auto content = std::make_shared<ContainerContent>(id);
  {
    MutexLock times(content->times);
    content->atime = content->mtime = content->ctime = stamp();
  }
  WriteLock lock(table_);
  if (!contents_.emplace(id, content).second) {
    return fail(EEXIST);
  }
  content->users = 1;
  content->writers = writes ? 1 : 0;
  return content;
}

Result<ContentPointer> ContentStore::open(std::uint64_t id, bool writes) {
  WriteLock lock(table_);
  const auto found = contents_.find(id);
  if (found == contents_.end()) {
    return fail(ENOENT);
  }
  ++found->second->users;
  found->second->writers += writes ? 1 : 0;
  return found->second;
}

void ContentStore::close(const ContentPointer& content, bool writes) {
  bool is_last = false;
  {
    WriteLock lock(table_);
    content->writers -= writes ? 1 : 0;
    is_last = --content->users == 0 && content->removed;
  }
  if (is_last) {
    free_all(*content);
  }
}

bool ContentStore::exists(std::uint64_t id) {
  ReadLock lock(table_);
  return contents_.contains(id);
}

std::uint64_t ContentStore::remove(std::uint64_t id) {
  ContentPointer content;
  bool is_unused = false;
  {
    WriteLock lock(table_);
    const auto found = contents_.find(id);
    if (found == contents_.end()) {
      return 0;
    }
    content = std::move(found->second);
    contents_.erase(found);
    content->removed = true;
    is_unused = content->users == 0;
  }
  std::uint64_t freed = 0;
  {
    ReadLock lock(content->shape);
    freed = content->map.physical();
  }
  if (is_unused) {
    free_all(*content);
  }
  return freed;
}

std::vector<std::uint64_t> ContentStore::ids() {
  ReadLock lock(table_);
  std::vector<std::uint64_t> all;
  all.reserve(contents_.size());
  for (const auto& [id, content] : contents_) {
    all.push_back(id);
  }
  return all;
}

bool ContentStore::is_written(std::uint64_t id, bool unknown) {
  ReadLock lock(table_);
  const auto found = contents_.find(id);
  return found == contents_.end() ? unknown : found->second->writers > 0;
}

bool ContentStore::is_used(std::uint64_t id, bool unknown) {
  ReadLock lock(table_);
  const auto found = contents_.find(id);
  return found == contents_.end() ? unknown : found->second->users > 0;
}

// --- space

std::vector<DeviceRange> ContentStore::take(std::uint64_t bytes, std::uint64_t hint) {
  MutexLock lock(space_);
  if (allocator_.space().available < bytes) {
    allocator_.release(log_->durable());
  }
  auto ranges = allocator_.allocate(bytes, hint);
  zero_stale(ranges);
  return ranges;
}

/// A block that is zeroed as a whole is clean from then on. Parts of a block are zeroed each time.
void ContentStore::zero_stale(std::span<const DeviceRange> ranges) {
  if (!stale_) {
    return;
  }
  for (const auto& range : ranges) {
    for (std::uint64_t at = range.offset; at < range.end();) {
      const std::uint64_t block = (at - data_) / block_, begin = data_ + block * block_,
                          end = std::min(begin + block_, range.end());
      if (stale_->contains(block)) {
        zero(at, end - at);
        if (end - at == block_) {
          stale_->erase(block);
        }
      }
      at = end;
    }
  }
}

void ContentStore::give_back(std::span<const Extent> extents) noexcept {
  MutexLock lock(space_);
  for (const auto& extent : extents) {
    allocator_.free({.offset = extent.device, .length = extent.length});
  }
}

/// No thread uses the container, and its removal is durable.
void ContentStore::free_all(ContainerContent& content) noexcept {
  WriteLock shape(content.shape);
  MutexLock lock(space_);
  for (auto one = content.map.find(0); one; one = content.map.find(one->end())) {
    allocator_.free({.offset = one->device, .length = one->length});
  }
  content.map = Extents();
}

Space ContentStore::space() {
  MutexLock lock(space_);
  allocator_.release(log_->durable());
  const auto now = allocator_.space();
  return {
      .capacity = now.capacity, .used = now.capacity - now.available, .available = now.available};
}

void ContentStore::set_unreadable(const DeviceRange& range) {
  {
    MutexLock lock(unreadable_mutex_);
    unreadable_.push_back(range);
  }
  has_unreadable_.store(true);
  MutexLock lock(space_);
  allocator_.withhold(range);
}

// --- bytes

std::uint64_t ContentStore::readable(std::uint64_t device, std::uint64_t length) {
  if (!has_unreadable_.load(std::memory_order_relaxed)) {
    return length;
  }
  MutexLock lock(unreadable_mutex_);
  for (const auto& bad : unreadable_) {
    if (bad.offset < device + length && bad.end() > device) {
      length = bad.offset > device ? bad.offset - device : 0;
    }
  }
  return length;
}

/// Stores the part of `from`, which begins at `offset` of the file, that is in these extents.
Status ContentStore::store_in(std::span<const Extent> extents, std::span<const std::byte> from,
                              std::uint64_t offset) {
  for (const auto& extent : extents) {
    std::uint64_t begin = std::max(extent.offset, offset);
    const std::uint64_t end = std::min(extent.end(), offset + from.size());
    while (begin < end) {
      const std::uint64_t device = extent.device + (begin - extent.offset);
      const std::uint64_t part = std::min(end - begin, stripe_bytes - device % stripe_bytes);
      if (readable(device, part) < part) {
        return fail(EIO);
      }
      WriteLock lock(stripe_of(device));
      device_->store(at(device), from.subspan(begin - offset, part));
      begin += part;
    }
  }
  return {};
}

/// Returns fewer bytes than requested before an unreadable one.
std::size_t ContentStore::load(const Extent& extent, std::span<std::byte> into) {
  std::size_t done = 0;
  while (done < into.size()) {
    const std::uint64_t device = extent.device + done;
    const std::uint64_t part =
        std::min<std::uint64_t>(into.size() - done, stripe_bytes - device % stripe_bytes);
    const std::uint64_t good = readable(device, part);
    {
      ReadLock lock(stripe_of(device));
      std::memcpy(into.data() + done, at(device), good);
    }
    done += good;
    if (good < part) {
      break;
    }
  }
  return done;
}

void ContentStore::zero(std::uint64_t device, std::uint64_t length) {
  device_->zero({at(device), length});
}

Status ContentStore::zero_existing(ContainerContent& content, std::uint64_t begin,
                                   std::uint64_t end) {
  for (const auto& extent : content.map.within(begin, end)) {
    if (readable(extent.device, extent.length) < extent.length) {
      return fail(EIO);
    }
    zero(extent.device, extent.length);
  }
  return {};
}

// --- a content, without a change of its extents

Result<std::size_t> ContentStore::read(ContainerContent& content, std::span<std::byte> into,
                                       std::uint64_t offset) {
  ReadLock lock(content.shape);
  const std::uint64_t most =
      offset < content.size ? std::min<std::uint64_t>(into.size(), content.size - offset) : 0;
  std::uint64_t done = 0;
  while (done < most) {
    const std::uint64_t from = offset + done;
    const auto found = content.map.find(from);
    if (!found || found->offset > from) {
      const std::uint64_t hole = found ? std::min(found->offset - from, most - done) : most - done;
      std::memset(into.data() + done, 0, hole);
      done += hole;
      continue;
    }
    const Extent rest{.offset = from,
                      .device = found->device + (from - found->offset),
                      .length = std::min(found->end() - from, most - done)};
    const std::size_t part = load(rest, into.subspan(done, rest.length));
    done += part;
    if (part < rest.length) {
      return done > 0 ? Result<std::size_t>(done) : fail(EIO);
    }
  }
  return done;
}

Result<std::uint64_t> ContentStore::seek(ContainerContent& content, std::uint64_t offset,
                                         bool data) {
  ReadLock lock(content.shape);
  if (offset >= content.size) {
    return fail(ENXIO);
  }
  auto found = content.map.find(offset);
  if (data) {
    return found && found->offset < content.size
               ? Result<std::uint64_t>(std::max(offset, found->offset))
               : fail(ENXIO);
  }
  std::uint64_t hole = offset;
  for (; found && found->offset <= hole; found = content.map.find(hole)) {
    hole = found->end();
  }
  return std::min(hole, content.size);
}

struct stat ContentStore::attributes(ContainerContent& content) {
  struct stat st{};
  st.st_mode = S_IFREG | 0600;
  st.st_nlink = 1;
  st.st_blksize = 4096;
  {
    ReadLock lock(content.shape);
    st.st_size = static_cast<off_t>(content.size);
    st.st_blocks = static_cast<blkcnt_t>(round_up(content.map.physical(), 512) / 512);
  }
  MutexLock times(content.times);
  st.st_atim = to_timespec(content.atime);
  st.st_mtim = to_timespec(content.mtime);
  st.st_ctim = to_timespec(content.ctime);
  return st;
}

void ContentStore::set_times(ContainerContent& content, std::optional<FileTime> atime,
                             std::optional<FileTime> mtime) {
  // The log reads a whole state: no change of the content is under way.
  WriteLock lock(content.shape);
  {
    MutexLock times(content.times);
    const FileTime now = content.ctime = stamp();
    content.atime = !atime ? content.atime : *atime == stamp_now ? now : *atime;
    content.mtime = !mtime ? content.mtime : *mtime == stamp_now ? now : *mtime;
  }
  log_->touched(content.id);
}

void ContentStore::accessed(ContainerContent& content, AccessTimes policy) {
  {
    MutexLock times(content.times);
    if (!atime_is_due(policy, content.atime, content.mtime, content.ctime)) {
      return;
    }
    content.atime = stamp();
  }
  log_->touched(content.id);
}

StoredContent ContentStore::stored(ContainerContent& content) {
  ReadLock lock(content.shape);
  MutexLock times(content.times);
  return {.id = content.id,
          .size = content.size,
          .atime = content.atime,
          .mtime = content.mtime,
          .ctime = content.ctime,
          .extents = content.map.within(0, UINT64_MAX)};
}

}  // namespace efs::devdax
