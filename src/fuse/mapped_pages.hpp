// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Data that programs store through mappings of a file on the daemon's path. The data stay in the
// kernel's pages, without a notification, until the kernel writes the pages back. Until then the
// container has neither the data nor blocks for them.

#include <cstdint>

#include "base/result.hpp"
#include "fs/filesystem.hpp"

namespace efs::fuse {

struct Connection;

/// lseek(2) with SEEK_DATA or SEEK_HOLE. The result includes data stored before the call. If
/// another thread is waiting for a write-back, this call cannot know the holes and reports the
/// whole file as data. May wait for WRITE requests, which other threads must answer: call it
/// without a lock.
Result<std::uint64_t> seek(Connection& connection, std::uint64_t ino, std::uint64_t offset,
                           int whence);

/// Returns the attributes. If a file without blocks may have data in the kernel's pages, st_blocks
/// is not 0: some programs take 0 to mean "only a hole". May wait as seek() does.
Result<fs::Entry> attributes(Connection& connection, std::uint64_t ino);

}  // namespace efs::fuse
