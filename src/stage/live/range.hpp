// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Parts of files: parsing, union and copy of byte ranges.

#include <cstdint>
#include <string>
#include <vector>

#include "stage/copy/transfer.hpp"

namespace efs::stage {

/// Bytes [offset, offset + length).
struct Part {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;  // 0: to the end of the file

  bool whole() const { return offset == 0 && length == 0; }

  bool operator==(const Part&) const = default;
};

/// Cuts the part to a file of `size` bytes. EINVAL if the part begins at or after the end.
Result<Part> clipped(Part part, std::uint64_t size);

/// Converts to "0+4096,8192+100" and back. The parts are in order and do not touch. parts_of()
/// returns none for any other text.
std::string to_text(const std::vector<Part>& parts);
std::vector<Part> parts_of(const std::string& text);

/// The union of both.
std::vector<Part> united(std::vector<Part> parts, Part added);

/// The two files of a copy of parts, and what follows it. Owns nothing.
struct PartCopy {
  const ContentSource& source;
  const ContentSink& destination;
  Progress& progress;
  FileChecksum* sum = nullptr;  // if given, it receives each part that was copied
};

/// Copies a part to the same offsets of a file that has a hole there. Keeps holes: if the part ends
/// in a hole, the caller must set the file's size. On success the sum has received the part.
/// Errors: as copy_data.
Status copy_part(const PartCopy& copy, Part part, Scratch& scratch);

}  // namespace efs::stage
