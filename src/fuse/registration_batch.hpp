// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Passthrough of files that are opened one after the other: one call of the supervisor for a batch
// of files instead of one call for each.

#include <atomic>
#include <cstdint>

#include "fs/filesystem.hpp"
#include "fuse/backing.hpp"

namespace efs::fuse {

/// Each connection has one. Thread-safe.
class BatchRegistrar {
 public:
  BatchRegistrar(fs::Filesystem& filesystem, BackingTable& backing)
      : filesystem_(filesystem), backing_(backing) {}

  /// Registers the rest of the inode's batch (BackingTable::rest_of_batch()), as far as the kernel
  /// may serve the files. Call without a lock. Takes about a third of a millisecond. Returns at
  /// once if another thread registers a batch, because a batch holds a descriptor for each file. A
  /// file that is removed meanwhile does not stay registered. Throws std::bad_alloc; the table then
  /// stays valid.
  void run(std::uint64_t ino);

  /// Returns when no batch is being registered. The thread that registers a batch may hold
  /// descriptors of removed files.
  void wait() const { busy_.wait(true); }

 private:
  void register_batch(std::uint64_t ino);
  void end();

  fs::Filesystem& filesystem_;
  BackingTable& backing_;
  std::atomic_flag busy_{};
};

}  // namespace efs::fuse
