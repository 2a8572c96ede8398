// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What programs store through mappings while the daemon does a file's I/O: it is in pages of the
// kernel's, and nobody is told of it, until the kernel writes them back. The container knows
// neither of the data nor of its place until then.

#include <cstdint>

#include "base/result.hpp"
#include "fs/filesystem.hpp"

namespace efs::fuse {

struct Connection;

/// lseek(2) with SEEK_DATA or SEEK_HOLE. What was stored before counts; while another file's pages
/// are being written, and it cannot be known, all of the file is data. May wait for WRITE requests,
/// which other threads must answer: holds no lock.
Result<std::uint64_t> seek(Connection& connection, std::uint64_t ino, std::uint64_t offset,
                           int whence);

/// The attributes. Whatever is stored in a file without a block shows in st_blocks, for some
/// programs take 0 for "only a hole". May wait as seek() does.
Result<fs::Entry> attributes(Connection& connection, std::uint64_t ino);

}  // namespace efs::fuse
