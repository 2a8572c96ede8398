// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The contents of all containers of a device, and their space.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "backends/devdax/devdax.hpp"
#include "backends/devdax/extent_allocator.hpp"
#include "base/extents.hpp"
#include "base/mutex.hpp"

namespace efs::devdax {

/// The bytes of a container. Reads and in-place writes share `shape`.
struct ContainerContent {
  explicit ContainerContent(std::uint64_t number) : id(number) {}

  const std::uint64_t id;
  SharedMutex shape;  // rank 40
  Extents map EFS_GUARDED_BY(shape);
  std::uint64_t size EFS_GUARDED_BY(shape) = 0;
  Mutex times;  // rank 90
  FileTime atime EFS_GUARDED_BY(times), mtime EFS_GUARDED_BY(times), ctime EFS_GUARDED_BY(times);
  // under ContentStore::table_
  unsigned users = 0, writers = 0;
  bool removed = false;
};

using ContentPointer = std::shared_ptr<ContainerContent>;

/// Invariant: bytes of an extent behind the size have no meaning. A change that makes the file
/// longer zeroes them first. Thread-safe.
class ContentStore {
 public:
  ContentStore(DevdaxOptions options, ExtentAllocator allocator);

  /// Adds a content of the former instance, whose extents are claimed.
  Status add(const StoredContent& stored);

  // --- the table
  Result<ContentPointer> create(std::uint64_t id, bool writes);
  Result<ContentPointer> open(std::uint64_t id, bool writes);
  void close(const ContentPointer& content, bool writes);
  bool exists(std::uint64_t id);
  std::uint64_t remove(std::uint64_t id);
  std::vector<std::uint64_t> ids();
  /// Whether a user can write to it; `unknown` if there is no such container.
  bool is_written(std::uint64_t id, bool unknown);
  bool is_used(std::uint64_t id, bool unknown);

  // --- a content
  Result<std::size_t> read(ContainerContent& content, std::span<std::byte> into,
                           std::uint64_t offset);
  Result<std::size_t> write(ContainerContent& content, std::span<const std::byte> from,
                            std::uint64_t offset);
  Status truncate(ContainerContent& content, std::uint64_t size);
  /// fallocate(2) with its modes.
  Status allocate(ContainerContent& content, int mode, std::uint64_t offset, std::uint64_t length);
  Result<std::uint64_t> seek(ContainerContent& content, std::uint64_t offset, bool data);
  struct stat attributes(ContainerContent& content);
  void set_times(ContainerContent& content, std::optional<FileTime> atime,
                 std::optional<FileTime> mtime);
  void accessed(ContainerContent& content, AccessTimes policy);
  StoredContent stored(ContainerContent& content);

  // --- the device
  Space space();
  void set_unreadable(const DeviceRange& range);

  Device& device() { return *device_; }

 private:
  class Growth;
  struct Edit;

  static constexpr std::size_t stripes = 64;
  static constexpr std::uint64_t stripe_bytes = 64U << 10U;

  // --- space
  std::vector<DeviceRange> take(std::uint64_t bytes, std::uint64_t hint);
  void zero_stale(std::span<const DeviceRange> ranges) EFS_REQUIRES(space_);
  void give_back(std::span<const Extent> extents) noexcept;
  void free_all(ContainerContent& content) noexcept;

  // --- changes of a content: under its lock
  void fill(ContainerContent& content, std::uint64_t begin, std::uint64_t end, Growth& growth)
      EFS_REQUIRES(content.shape);
  std::uint64_t wanted(ContainerContent& content, const Extent& gap, std::uint64_t begin)
      EFS_REQUIRES(content.shape);
  Result<std::size_t> extend(ContainerContent& content, std::span<const std::byte> from,
                             std::uint64_t offset) EFS_REQUIRES(content.shape);
  Status reserve(ContainerContent& content, int mode, std::uint64_t offset, std::uint64_t end)
      EFS_REQUIRES(content.shape);
  Status punch(ContainerContent& content, std::uint64_t begin, std::uint64_t end)
      EFS_REQUIRES(content.shape);
  Status commit(ContainerContent& content, Edit&& edit) EFS_REQUIRES(content.shape);
  Status zero_existing(ContainerContent& content, std::uint64_t begin, std::uint64_t end)
      EFS_REQUIRES(content.shape);

  // --- bytes
  Status store_in(std::span<const Extent> extents, std::span<const std::byte> from,
                  std::uint64_t offset);
  std::size_t load(const Extent& extent, std::span<std::byte> into);
  void zero(std::uint64_t device, std::uint64_t length);
  /// The bytes from `device` on before the first unreadable one, at most `length`.
  std::uint64_t readable(std::uint64_t device, std::uint64_t length);

  std::byte* at(std::uint64_t device) { return device_->bytes().data() + device; }

  SharedMutex& stripe_of(std::uint64_t device) { return stripes_[device / stripe_bytes % stripes]; }

  const std::shared_ptr<Device> device_;
  const std::shared_ptr<ExtentLog> log_;
  const std::uint64_t unit_, block_, data_;  // bytes; data_: where the blocks begin
  SharedMutex table_;                        // rank 50
  std::unordered_map<std::uint64_t, ContentPointer> contents_ EFS_GUARDED_BY(table_);
  Mutex space_;  // rank 52
  ExtentAllocator allocator_ EFS_GUARDED_BY(space_);
  // blocks that may have bytes of other users; empty if there are none
  std::optional<BitTree> stale_ EFS_GUARDED_BY(space_);
  // Writes of the same bytes take turns: one stripe at a time, after all other locks
  std::array<SharedMutex, stripes> stripes_;  // rank 54
  std::atomic<bool> has_unreadable_{false};
  Mutex unreadable_mutex_;  // rank 90; taken while has_unreadable_
  std::vector<DeviceRange> unreadable_ EFS_GUARDED_BY(unreadable_mutex_);
};

}  // namespace efs::devdax
