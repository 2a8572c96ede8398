#pragma once
// Passthrough: which inode the kernel serves by itself, and under which backing id.

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>

#include "backends/backend.hpp"
#include "base/mutex.hpp"
#include "base/result.hpp"

namespace efs::fuse {

/// Registers descriptors with the FUSE connection (FUSE_DEV_IOC_BACKING_OPEN). That needs privilege, so it is a seam:
/// the supervisor does it for a worker that has none. Thread-safe.
class BackingRegistrar {
 public:
  virtual ~BackingRegistrar() = default;
  virtual Result<int> open_backing(int fd) = 0;
  virtual void close_backing(int id) = 0;
};

/// All opens of one inode use one mode and one backing id (knowledge of the kernel: fs/fuse/iomode.c). An id stays
/// registered for a while after the last close, in bounded number, for files that are opened again and again.
/// Thread-safe.
class BackingTable {
 public:
  static constexpr std::size_t most_idle = 256;

  /// `registrar` may be null: then everything takes the daemon's path.
  explicit BackingTable(BackingRegistrar* registrar) : registrar_(registrar) {}
  ~BackingTable();

  /// Counts an open; the backing id, or 0 for the daemon's path. `wanted`: passthrough is allowed for this inode.
  Result<int> acquire(std::uint64_t ino, bool wanted, Container* container);
  void release(std::uint64_t ino);
  /// Ends the registration of an inode that nobody has open.
  void let_go(std::uint64_t ino);
  /// The inode is gone.
  void drop(std::uint64_t ino);
  bool enabled() const { return registrar_ != nullptr; }
  void disable() { registrar_ = nullptr; }

 private:
  struct Slot {
    int id = 0;
    std::uint64_t opens = 0;
    std::list<std::uint64_t>::iterator idle;  // valid where opens == 0
  };

  BackingRegistrar* registrar_;
  Mutex mutex_;  // rank 35; the registrar is called under it, so that no two opens register one inode twice
  std::unordered_map<std::uint64_t, Slot> slots_ EFS_GUARDED_BY(mutex_);
  std::list<std::uint64_t> idle_ EFS_GUARDED_BY(mutex_);
};

}  // namespace efs::fuse
