// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>

#include "fs/filesystem.hpp"
#include "fs/mapped_file.hpp"

namespace efs::fs {

Result<std::size_t> Filesystem::read(std::uint64_t ino, std::span<std::byte> into,
                                     std::uint64_t offset, int flags) {
  auto content = file(ino);
  if (!content) {
    return std::unexpected(content.error());
  }
  if (options_.access_times != AccessTimes::kept && (flags & O_NOATIME) == 0) {
    (*content)->container().accessed(options_.access_times);
  }
  return (*content)->read(into, offset);
}

Result<std::uint64_t> Filesystem::seek(std::uint64_t ino, std::uint64_t offset, int whence) {
  auto content = file(ino);
  if (!content) {
    return std::unexpected(content.error());
  }
  return (*content)->container().seek(offset, whence);
}

}  // namespace efs::fs
