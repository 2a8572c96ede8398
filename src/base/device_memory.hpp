// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A range of a device that is mapped whole: the interface below the containers and the metadata
// files of a devdax store.

#include <cstddef>
#include <span>

#include "base/result.hpp"

namespace efs {

/// Mapped memory of a device. Thread-safe, like memory: the caller orders overlapping stores. A
/// store is durable once flushed and drained; on a device that is not persistent memory, all stores
/// survive the death of the process only.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  /// The whole range; constant.
  virtual std::span<std::byte> bytes() = 0;
  /// Copies to `to`, which lies in bytes(), and begins to make the bytes durable. Large copies
  /// bypass the processor's caches.
  virtual void store(std::byte* to, std::span<const std::byte> from) = 0;
  /// Begins to make bytes durable that were stored without store(). `range` lies in bytes().
  virtual void flush(std::span<const std::byte> range) = 0;
  /// Waits for the stores and flushes that this thread has begun.
  virtual void drain() = 0;
  /// Returns when the drained stores of all threads are as durable as the device permits.
  virtual Status sync() = 0;
};

}  // namespace efs
