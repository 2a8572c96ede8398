// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The state of one FUSE connection that its requests share.

#include <atomic>
#include <cstdint>

#include "fs/filesystem.hpp"
#include "fuse/backing.hpp"
#include "fuse/observer.hpp"
#include "fuse/registration_batch.hpp"

struct fuse_session;

namespace efs::fuse {

/// One per Session, which hands it to libfuse as user data. Requests reach it by
/// Request::connection().
struct Connection {
  fs::Filesystem& filesystem;
  BackingTable backing;
  BatchRegistrar batch_registrar{filesystem, backing};
  fuse_session* session = nullptr;  // for notifications
  Observer observer;
  Counters& counters = observer.counters;
  bool uncached = false;  // reads and writes come as programs make them
  bool stacked = false;   // containers lie on a file system that may lie on another one itself
  // a thread waits for the kernel to write pages back (mapped_pages.hpp)
  std::atomic_flag writes_back{};
};

/// Drops `count` of the kernel's references to an inode.
void forget_references(Connection& connection, std::uint64_t ino, std::uint64_t count);
/// Frees an inode without a name unless the kernel knows it. Call without a lock that a request may
/// need.
void free_if_forgotten(Connection& connection, std::uint64_t ino);

}  // namespace efs::fuse
