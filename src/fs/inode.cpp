// SPDX-License-Identifier: BSD-3-Clause
#include "fs/inode.hpp"

#include <fcntl.h>

namespace efs::fs {

bool Inode::count_open(int flags) {
  was_used.store(true, std::memory_order_relaxed);
  if ((flags & O_ACCMODE) == O_RDONLY) {
    ++read_opens;
    return false;
  }
  ++write_opens;
  ++edits;
  if ((flags & O_ACCMODE) != O_RDWR) {
    return false;
  }
  opened_read_write = true;
  return read_write_opens.fetch_add(1) == 0;
}

void Inode::count_close(int flags) {
  --((flags & O_ACCMODE) == O_RDONLY ? read_opens : write_opens);
  if ((flags & O_ACCMODE) == O_RDWR) {
    --read_write_opens;
  }
}

}  // namespace efs::fs
