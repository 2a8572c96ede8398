// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The state that the requests of one FUSE connection share.

#include <atomic>
#include <cstdint>
#include <memory>

#include "fs/filesystem.hpp"
#include "fuse/backing.hpp"
#include "fuse/door.hpp"
#include "fuse/due_work.hpp"
#include "fuse/limits.hpp"
#include "fuse/observer.hpp"
#include "fuse/put_aside.hpp"
#include "fuse/registration_batch.hpp"
#include "fuse/usage.hpp"
#include "fuse/walk_policy.hpp"

struct fuse_session;

namespace efs::fuse {

class Upkeep;

/// Each Session has one and passes it to libfuse as user data. Requests reach it by
/// Request::connection().
struct Connection {
  fs::Filesystem& filesystem;
  BackingTable backing;
  BatchRegistrar batch_registrar{filesystem, backing};
  fuse_session* session = nullptr;        // for notifications
  std::atomic<Upkeep*> upkeep = nullptr;  // while requests are served
  Observer observer;
  Counters& counters = observer.counters;
  bool uncached = false;  // no page cache: the daemon sees each read and write
  bool stacked = false;   // the containers' file system may itself be stacked
  // The kernel collects writes of programs in its page cache, and has the sizes and times of
  // regular files. Excludes passthrough and `uncached`. The same for the whole life of the mount.
  std::atomic<bool> writeback = false;
  // false: the first request for an extended attribute gets ENOSYS, and the kernel sends no other.
  // The same for the whole life of the mount, also under a successor.
  bool xattr = true;
  WalkPolicy walks;
  bool opens_directories_itself = false;  // the kernel can do without OPENDIR
  Usage* usage = nullptr;                 // for the report of the job; null: none is kept
  DueWork* due_work = nullptr;            // done after a reply; null: none
  std::unique_ptr<PacedRequests> paced;   // while requests are served; null: no limits
  PutAside* put_aside = nullptr;          // null: no content is fetched
  // a thread waits for the kernel to write pages back (mapped_pages.hpp)
  std::atomic_flag writes_back{};
  Door door;  // exists on every mount whose supervisor had memory for it
};

/// Drops `count` of the kernel's references to an inode.
void forget_references(Connection& connection, std::uint64_t ino, std::uint64_t count);
/// Has the pool of containers filled if it is low. Call it after the reply to a create.
void fill_pool(Connection& connection);
/// Frees an inode without a name unless the kernel still references it. Call without any lock that
/// a request may need.
void free_if_forgotten(Connection& connection, std::uint64_t ino);

}  // namespace efs::fuse
