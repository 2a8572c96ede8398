// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>

#include "objects/files.hpp"
#include "objects/npy.hpp"

namespace efs::objects {

/// An object that is open, with a valid header and all its data. Its .npy bytes are a file, or a
/// member of a bundle.
struct Object {
  Fd fd;                                   // of the file; of a member: none
  Header header;                           // its offset is counted from the first .npy byte
  std::uint64_t size = 0;                  // of the .npy bytes
  std::shared_ptr<const Mapping> mapping;  // of the bundle; of a file: none
  std::uint64_t start = 0;                 // of the .npy bytes in the mapping

  /// The .npy bytes of a member.
  const char* bytes() const { return mapping->data() + start; }
};

/// Parses the header of an object that has `size` bytes, from their first ones. EBADMSG: it is
/// damaged, or its data is not whole.
Result<Header> checked_header(std::string_view head, std::uint64_t size);

}  // namespace efs::objects
