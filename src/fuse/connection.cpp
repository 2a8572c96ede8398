// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/connection.hpp"

#include <cerrno>

#include "fuse/library.hpp"
#include "fuse/upkeep.hpp"

namespace efs::fuse {

void forget_references(Connection& connection, std::uint64_t ino, std::uint64_t count) {
  if (connection.filesystem.forget(ino, count).ask) {
    free_if_forgotten(connection, ino);
  }
  Upkeep* upkeep = connection.upkeep;
  if (upkeep != nullptr && connection.filesystem.put_off() >= Upkeep::removals_at_once) {
    upkeep->wake();
  }
}

void fill_pool(Connection& connection) {
  Upkeep* upkeep = connection.upkeep;
  if (upkeep != nullptr && connection.filesystem.pool_is_low()) {
    upkeep->wake();
  }
}

// The kernel answers a notification about an inode that it does not know with ENOENT.
void free_if_forgotten(Connection& connection, std::uint64_t ino) {
  if (fuse_lowlevel_notify_inval_inode(connection.session, ino, -1, 0) != -ENOENT) {
    return;
  }
  connection.filesystem.forget_all(ino);
}

}  // namespace efs::fuse
