// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The daemon's own I/O on one file: through mapped segments if the backend maps persistent memory,
// otherwise through the container. Not used for a file that is open with passthrough.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "backends/backend.hpp"
#include "base/mutex.hpp"
#include "fs/segment_tree.hpp"

namespace efs::fs {

/// Thread-safe. Reads and writes run in parallel. A change of size waits for them, so that no store
/// passes a moved end of file.
class MappedFile {
 public:
  static constexpr std::uint64_t default_segment_size = 128u << 20;  // bytes

  /// `segment_size`: a multiple of 4 KiB. Segments grow with the file up to this size, so that a
  /// small file needs a small mapping and a large file few mappings.
  explicit MappedFile(std::shared_ptr<Container> container,
                      std::uint64_t segment_size = default_segment_size)
      : container_(std::move(container)), segment_size_(segment_size) {}

  Result<std::size_t> read(std::span<std::byte> into, std::uint64_t offset);
  Result<std::size_t> write(std::span<const std::byte> from, std::uint64_t offset);
  Status truncate(std::uint64_t size);
  Status allocate(int mode, std::uint64_t offset, std::uint64_t length);
  /// Runs `work` while the daemon does no read, write, truncation or allocation of this file. EBUSY
  /// if one is running. Does not wait.
  Status alone(const std::function<Status(Container&)>& work);

  Container& container() { return *container_; }

 private:
  class Shared;
  class Exclusive;
  /// The segment that contains `offset`; maps it if necessary.
  Result<std::shared_ptr<Segment>> segment_at(std::uint64_t offset, Range& range);
  Status store(std::span<const std::byte> from, std::uint64_t offset);

  /// The size of a segment to map for `offset`.
  std::uint64_t size_at(std::uint64_t offset) const;

  const std::shared_ptr<Container> container_;
  const std::uint64_t segment_size_;
  SharedMutex shape_;  // rank 20: shared by I/O, exclusive for a change of size
  Mutex tree_mutex_;   // rank 25
  SegmentTree<std::shared_ptr<Segment>> tree_ EFS_GUARDED_BY(tree_mutex_);
};

}  // namespace efs::fs
