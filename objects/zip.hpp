// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Zip files of .npy members (.npz). Pure functions on memory; a file that is parsed is untrusted.
// The library writes stored members only, and begins the bytes of each at a multiple of 64.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "objects/result.hpp"

namespace efs::objects {

/// A member that is not smaller is refused.
constexpr std::uint64_t max_member = 0xffffffffU;

/// A .npy member of a zip file.
struct Member {
  std::string name;          // of the array: without .npy
  std::uint64_t offset = 0;  // of its local header
  std::uint64_t start = 0;   // of its bytes
  std::uint64_t size = 0;
  std::uint32_t crc = 0;
  bool stored = true;  // neither compressed nor encrypted
};

/// Returns the bytes between member.offset, where they are written, and the member's bytes. Sets
/// member.start.
std::string local_header(Member& member);

/// Returns the end of a zip file: the central directory, to be written at the offset.
std::string zip_end(const std::vector<Member>& members, std::uint64_t offset);

/// Returns the .npy members of a zip file; others are ignored. EBADMSG: it is damaged, or two
/// members have one name. The bytes of each member are inside the file.
Result<std::vector<Member>> parse_zip(std::string_view file);

}  // namespace efs::objects
