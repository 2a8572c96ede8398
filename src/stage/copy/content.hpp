// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The two ends of a copy. A file of the PFS and a container of the buffer are alike to a copy: only
// the ends know which of them they are.

#include <cstddef>
#include <cstdint>
#include <span>

#include "backends/backend.hpp"
#include "base/result.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// The readable end of a copy: a view of an open file, which it borrows. Thread-safe. Errors carry
/// the errno; the copy adds the text.
class ContentSource {
 public:
  virtual ~ContentSource() = default;
  /// May be short. Returns 0 at the end only.
  virtual Result<std::size_t> read(std::span<std::byte> into, std::uint64_t offset) const = 0;
  /// lseek(2) with SEEK_DATA or SEEK_HOLE: ENXIO if there is no more data; EINVAL or EOPNOTSUPP if
  /// the file system cannot find holes.
  virtual Result<std::uint64_t> seek(std::uint64_t offset, int whence) const = 0;
  /// A hint that these bytes will be read soon. Does not wait; has no result.
  virtual void will_need(std::uint64_t offset, std::uint64_t length) const = 0;
};

/// The writable end of a copy. As ContentSource.
class ContentSink {
 public:
  virtual ~ContentSink() = default;
  /// May be short.
  virtual Result<std::size_t> write(std::span<const std::byte> from,
                                    std::uint64_t offset) const = 0;
  virtual Status truncate(std::uint64_t size) const = 0;
  /// A hint to begin the write-back of these bytes. Does not wait; has no result.
  virtual void start_writeback(std::uint64_t offset, std::uint64_t length) const = 0;
};

/// A file of the PFS: every call goes through PfsIo, with its retries, its pace and the faults of a
/// test.
class PfsContent final : public ContentSource, public ContentSink {
 public:
  PfsContent(PfsIo& io, PfsRef file) : io_(io), file_(file) {}

  Result<std::size_t> read(std::span<std::byte> into, std::uint64_t offset) const override {
    return io_.read(file_, into, offset);
  }

  Result<std::uint64_t> seek(std::uint64_t offset, int whence) const override {
    return io_.seek(file_, offset, whence);
  }

  void will_need(std::uint64_t offset, std::uint64_t length) const override {
    io_.will_need(file_, offset, length);
  }

  Result<std::size_t> write(std::span<const std::byte> from, std::uint64_t offset) const override {
    return io_.write(file_, from, offset);
  }

  Status truncate(std::uint64_t size) const override { return io_.truncate(file_, size); }

  void start_writeback(std::uint64_t offset, std::uint64_t length) const override {
    io_.start_writeback(file_, offset, length);
  }

 private:
  PfsIo& io_;
  const PfsRef file_;
};

/// A container of the buffer, whatever its backend keeps it in.
class ContainerContent final : public ContentSource, public ContentSink {
 public:
  explicit ContainerContent(Container& container) : container_(container) {}

  Result<std::size_t> read(std::span<std::byte> into, std::uint64_t offset) const override {
    return container_.read(into, offset);
  }

  Result<std::uint64_t> seek(std::uint64_t offset, int whence) const override {
    return container_.seek(offset, whence);
  }

  void will_need(std::uint64_t offset, std::uint64_t length) const override {
    container_.will_need(offset, length);
  }

  Result<std::size_t> write(std::span<const std::byte> from, std::uint64_t offset) const override {
    return container_.write(from, offset);
  }

  Status truncate(std::uint64_t size) const override { return container_.truncate(size); }

  /// Without effect: settle() makes the buffer's data durable.
  void start_writeback(std::uint64_t, std::uint64_t) const override {}

 private:
  Container& container_;
};

}  // namespace efs::stage
