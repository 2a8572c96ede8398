// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Passthrough of files that are opened one after the other: one question to the supervisor instead
// of one each.

#include <atomic>
#include <cstdint>

#include "fs/filesystem.hpp"
#include "fuse/backing.hpp"

namespace efs::fuse {

/// One for a connection. Thread-safe.
class BatchRegistrar {
 public:
  BatchRegistrar(fs::Filesystem& filesystem, BackingTable& backing)
      : filesystem_(filesystem), backing_(backing) {}

  /// Registers what is left of the inode's row (BackingTable::rest_of_batch()) and may be served by
  /// the kernel. Under no lock; takes about a third of a millisecond, or nothing where another
  /// thread is at a row: it holds a descriptor for each file. Nothing stays registered that is
  /// removed meanwhile. Throws std::bad_alloc, with nothing lost.
  void run(std::uint64_t ino);

  /// Returns when the row that was being registered is: its thread may hold descriptors of removed
  /// files.
  void wait() const { busy_.wait(true); }

 private:
  void register_batch(std::uint64_t ino);
  void end();

  fs::Filesystem& filesystem_;
  BackingTable& backing_;
  std::atomic_flag busy_{};
};

}  // namespace efs::fuse
