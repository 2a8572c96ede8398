// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Containers on a device without a file system (NVRAM-DEVDAX). The containers know the places of
// their bytes in memory only: the owner of the backend journals every change of them (ExtentLog),
// and gives them back at the next start.

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/backend.hpp"
#include "backends/devdax/device.hpp"
#include "backends/devdax/device_range.hpp"
#include "backends/devdax/superblock.hpp"
#include "base/extents.hpp"

namespace efs::devdax {

/// A change of a container. The extents replace those of the bytes [begin, end); the bytes of this
/// range in no extent are a hole. The other fields are the new values of the whole container, as in
/// the record SetContent. Lengths are multiples of a unit, so the last extent may pass `size`.
struct ContentChange {
  std::uint64_t id = 0;
  std::uint64_t size = 0;      // bytes, as programs see it
  std::uint64_t physical = 0;  // bytes on the device
  FileTime atime, mtime, ctime;
  std::uint64_t begin = 0, end = 0;
  std::vector<Extent> extents;
};

/// A container with all its extents.
struct StoredContent {
  std::uint64_t id = 0;
  std::uint64_t size = 0;
  FileTime atime, mtime, ctime;
  std::vector<Extent> extents;
};

/// Records the changes of containers. Its members are called under the lock of a container (rank
/// 40, docs/dev/locks.md): they take no lock of a lower rank and wait for no device. An owner that
/// appends its records under a lower rank queues the changes, and appends them before it answers
/// the request. Thread-safe.
class ExtentLog {
 public:
  virtual ~ExtentLog() = default;
  /// Called after new bytes are drained (rule R1) and before the change shows. Returns the position
  /// of the record; positions increase. After an error the container is as before, except that
  /// bytes to be zeroed or overwritten in place may be.
  virtual Result<std::uint64_t> changed(const ContentChange& change) = 0;
  /// The times of this container changed, and nothing else did. Devdax::content() has them, after
  /// this call.
  virtual void touched(std::uint64_t id) = 0;
  /// The records up to this position are durable: the space that they free may be reused (R3).
  /// The backend asks when space is short, under a lock of rank 52. An owner makes its records
  /// durable and retries when a request fails with ENOSPC.
  virtual std::uint64_t durable() = 0;
};

struct DevdaxOptions {
  std::shared_ptr<Device> device;
  Superblock superblock;
  std::shared_ptr<ExtentLog> log;
  std::vector<StoredContent> contents;  // of the former instance, for the rebuild (R4)
  std::vector<DeviceRange> unreadable;  // poisoned bytes of the device
};

/// The backend. Thread-safe.
class Devdax : public PlainBackend {
 public:
  /// The present state of a container. ENOENT if there is none.
  virtual Result<StoredContent> content(std::uint64_t id) = 0;
  /// The device cannot read these bytes: from now on reads and writes of them fail with EIO, and no
  /// container gets them.
  virtual void set_unreadable(const DeviceRange& range) = 0;
};

/// EUCLEAN with a text if two contents overlap on the device, or one is not in the data range.
Result<std::unique_ptr<Devdax>> make_devdax(DevdaxOptions options);

}  // namespace efs::devdax
