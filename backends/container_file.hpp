// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A container that is a file: of fsdax, or outside any store.

#include <array>
#include <atomic>
#include <memory>

#include "backends/backend.hpp"
#include "base/mutex.hpp"
#include "base/unique_fd.hpp"

namespace efs {

/// Counts the bytes of a store if the kernel does not enforce its capacity. Thread-safe, lock-free.
class CapacityAccount {
 public:
  explicit CapacityAccount(std::uint64_t limit) : limit_(limit) {}

  std::uint64_t limit() const { return limit_; }

  std::uint64_t used() const {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(0, used_.load()));
  }

  std::uint64_t left() const { return limit_ - std::min(limit_, used()); }

  /// Reserves `bytes` if they fit.
  bool take(std::uint64_t bytes);

  /// Corrects the count by the bytes really allocated (negative: released).
  void adjust(std::int64_t bytes) { used_.fetch_add(bytes); }

 private:
  const std::uint64_t limit_;
  std::atomic<std::int64_t> used_{0};
};

/// For futimens(2) and utimensat(2); nullopt leaves a time unchanged.
std::array<timespec, 2> times_to_set(std::optional<FileTime> atime, std::optional<FileTime> mtime);

class ContainerFile final : public Container {
 public:
  /// `account`: null if bytes are not counted. `pmem`: mappings are persistent memory. `waits`: I/O
  /// may wait for a disk.
  ContainerFile(UniqueFd fd, std::shared_ptr<CapacityAccount> account, bool pmem, bool waits)
      : fd_(std::move(fd)), account_(std::move(account)), pmem_(pmem), waits_(waits) {}

  Result<std::size_t> read(std::span<std::byte> into, std::uint64_t offset) override;
  Result<std::size_t> write(std::span<const std::byte> from, std::uint64_t offset) override;
  Status truncate(std::uint64_t size) override;
  Status allocate(int mode, std::uint64_t offset, std::uint64_t length) override;
  Result<std::uint64_t> seek(std::uint64_t offset, int whence) override;
  Result<struct stat> attributes() override;
  Status set_times(std::optional<FileTime> atime, std::optional<FileTime> mtime) override;
  void accessed(AccessTimes policy) override;
  Status sync(bool metadata) override;
  Result<std::unique_ptr<Segment>> map(std::uint64_t offset, std::size_t length) override;

  void will_need(std::uint64_t offset, std::uint64_t length) override;
  Status clone(const Container& other) override;

  std::optional<int> descriptor() const override { return fd_.get(); }

 private:
  std::int64_t allocated() const;
  std::uint64_t missing(std::uint64_t offset, std::uint64_t length) const;
  template <typename Change>
  Status counted(std::uint64_t upper_bound, Change change);

  const UniqueFd fd_;
  const std::shared_ptr<CapacityAccount> account_;
  const bool pmem_;
  const bool waits_;
  Mutex growth_;  // rank 40; serialises counted changes of a container, so that deltas are exact
};

}  // namespace efs
