// SPDX-License-Identifier: BSD-3-Clause
#include "fs/mapped_file.hpp"

#include <linux/falloc.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>

#include "base/log.hpp"
#include "base/slow_work.hpp"

namespace efs::fs {
namespace {

constexpr std::uint64_t first_size = 2u << 20;  // bytes
// for one file: far below vm.max_map_count, even for many files
constexpr std::size_t most_segments = 32;

std::atomic<bool> no_mapping_told{false};  // logged once for all files

}  // namespace

// A thread that serves requests must not sleep here for a truncation, or for the I/O that a
// truncation waits for.
class MappedFile::Shared {
 public:
  explicit Shared(SharedMutex& shape) : shape_(shape) {
    if (shape_.try_lock_shared()) {
      return;
    }
    slow_work_begins();
    shape_.lock_shared();
  }

  ~Shared() { shape_.unlock_shared(); }

  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

 private:
  SharedMutex& shape_;
};

class MappedFile::Exclusive {
 public:
  explicit Exclusive(SharedMutex& shape) : shape_(shape) {
    if (shape_.try_lock()) {
      return;
    }
    slow_work_begins();
    shape_.lock();
  }

  ~Exclusive() { shape_.unlock(); }

  Exclusive(const Exclusive&) = delete;
  Exclusive& operator=(const Exclusive&) = delete;

 private:
  SharedMutex& shape_;
};

std::uint64_t MappedFile::size_at(std::uint64_t offset) const {
  std::uint64_t size = first_size;
  while (size < segment_size_ && size * 4 <= offset) {
    size *= 2;
  }
  return std::min(size, segment_size_);
}

Result<std::size_t> MappedFile::read(std::span<std::byte> into, std::uint64_t offset) {
  if (into.size() > slow_copy) {
    slow_work_begins();
  }
  const Shared shape(shape_);
  // A read(2) of persistent memory is one copy without a page fault; a mapping would not be faster.
  return container_->read(into, offset);
}

Result<std::size_t> MappedFile::write(std::span<const std::byte> from, std::uint64_t offset) {
  if (from.size() > slow_copy) {
    slow_work_begins();
  }
  const Shared shape(shape_);
  const Status stored = store(from, offset);
  if (stored) {
    return from.size();
  }
  if (stored.error().code != ENOTSUP && stored.error().code != ENOSPC &&
      stored.error().code != ENOMEM) {
    return std::unexpected(stored.error());
  }
  return container_->write(from, offset);  // no mapping is possible, or the write is short
}

Status MappedFile::store(std::span<const std::byte> from, std::uint64_t offset) {
  Range range;
  EFS_TRY(segment_at(offset, range));
  // Allocate first: a store into a hole of a full file system would raise SIGBUS; the allocation
  // fails with ENOSPC.
  EFS_TRY(container_->allocate(0, offset, from.size()));
  std::uint64_t at = offset;
  while (!from.empty()) {
    auto segment = segment_at(at, range);
    if (!segment) {
      return std::unexpected(segment.error());
    }
    const auto part = std::min<std::uint64_t>(from.size(), range.end - at);
    (*segment)->store(at - range.begin, from.first(part));
    from = from.subspan(part);
    at += part;
  }
  return {};
}

Result<std::shared_ptr<Segment>> MappedFile::segment_at(std::uint64_t offset, Range& range) {
  MutexLock lock(tree_mutex_);
  if (const auto* found = tree_.find(offset)) {
    range = found->range;
    return found->value;
  }
  const std::uint64_t size = size_at(offset);
  range = {offset / size * size, offset / size * size + size};
  // Earlier, smaller segments may overlap this range: use the gap between the neighbours.
  for (const Range& gap : tree_.gaps(range)) {
    if (gap.begin <= offset && offset < gap.end) {
      range = gap;
    }
  }
  if (tree_.size() >= most_segments) {
    tree_.clear();  // their users keep segments in use
  }
  auto mapped = container_->map(range.begin, range.length());
  if (!mapped) {
    if (mapped.error().code == ENOMEM && !no_mapping_told.exchange(true)) {
      log::warn("event=not_mapped note=\"written by system calls\"");
    }
    return std::unexpected(mapped.error());
  }
  std::shared_ptr<Segment> segment = std::move(*mapped);
  tree_.insert(range, segment);
  return segment;
}

Status MappedFile::truncate(std::uint64_t size) {
  const Exclusive shape(shape_);
  // Freeing pages takes time.
  if (const auto now = container_->attributes();
      now && static_cast<std::uint64_t>(now->st_size) > size + slow_copy &&
      now->st_blocks * 512 > static_cast<blkcnt_t>(slow_copy)) {
    slow_work_begins();
  }
  return container_->truncate(size);
}

Status MappedFile::allocate(int mode, std::uint64_t offset, std::uint64_t length) {
  if (length > slow_copy) {
    slow_work_begins();
  }
  const Exclusive shape(shape_);
  return container_->allocate(mode, offset, length);
}

Status MappedFile::alone(const std::function<Status(Container&)>& work) {
  if (!shape_.try_lock()) {
    return fail(EBUSY);
  }
  Status done = fail(ENOMEM);
  try {
    done = work(*container_);
  } catch (const std::bad_alloc&) {
  }
  shape_.unlock();
  return done;
}

}  // namespace efs::fs
