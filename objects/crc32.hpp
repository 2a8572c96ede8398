// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// CRC-32 as zip files have it.

#include <cstddef>
#include <cstdint>

namespace efs::objects {

/// Returns the CRC-32 of the bytes; `before` is that of the bytes before them.
std::uint32_t crc32(std::uint32_t before, const char* bytes, std::size_t size);

/// The same without instructions that not every processor has.
std::uint32_t crc32_plain(std::uint32_t before, const char* bytes, std::size_t size);

}  // namespace efs::objects
