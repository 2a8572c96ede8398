// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/mapped_pages.hpp"

#include <unistd.h>

#include "base/slow_work.hpp"
#include "fuse/connection.hpp"
#include "fuse/library.hpp"

namespace efs::fuse {
namespace {

bool may_hide_stores(const Connection& connection, const fs::Entry& entry) {
  return !connection.writeback && entry.may_change_now &&
         connection.backing.keeps_to_daemon(entry.ino);
}

/// Makes the kernel write back its pages of a file. Returns false if this is not possible now: only
/// one thread may wait here, because the others must answer the WRITE requests.
bool write_back(Connection& connection, std::uint64_t ino) {
  if (connection.session == nullptr ||
      connection.writes_back.test_and_set(std::memory_order_acquire)) {
    return false;
  }
  slow_work_begins();
  const int told = fuse_lowlevel_notify_inval_inode(connection.session, ino, 0, 0);
  connection.writes_back.clear(std::memory_order_release);
  return told == 0;
}

/// Reports the whole file as data. POSIX allows this: a file system need not report holes.
Result<std::uint64_t> all_data(std::uint64_t size, std::uint64_t offset, int whence) {
  if (offset >= size) {
    return fail(ENXIO);
  }
  return whence == SEEK_DATA ? offset : size;
}

}  // namespace

Result<std::uint64_t> seek(Connection& connection, std::uint64_t ino, std::uint64_t offset,
                           int whence) {
  const auto entry = connection.filesystem.getattr(ino);
  if (!entry) {
    return std::unexpected(entry.error());
  }
  if (may_hide_stores(connection, *entry) && !write_back(connection, ino)) {
    return all_data(static_cast<std::uint64_t>(entry->attributes.st_size), offset, whence);
  }
  return connection.filesystem.seek(ino, offset, whence);
}

Result<fs::Entry> attributes(Connection& connection, std::uint64_t ino) {
  auto entry = connection.filesystem.getattr(ino);
  if (!entry || !S_ISREG(entry->attributes.st_mode) || entry->attributes.st_size == 0 ||
      entry->attributes.st_blocks != 0 || !may_hide_stores(connection, *entry)) {
    return entry;
  }
  if (write_back(connection, ino)) {
    return connection.filesystem.getattr(ino);
  }
  entry->attributes.st_blocks = 1;
  return entry;
}

}  // namespace efs::fuse
