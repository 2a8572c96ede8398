#pragma once
// Parts of files: which bytes a request means, which a file has, and the copy of some of them.

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

/// The part within a file of `size` bytes. EINVAL where it begins at or behind the end; what
/// reaches beyond is cut.
Result<Part> clipped(Part part, std::uint64_t size);

/// "0+4096,8192+100" and back; parts in order, none touching another. Text that says anything else
/// gives no parts.
std::string to_text(const std::vector<Part>& parts);
std::vector<Part> parts_of(const std::string& text);

/// All bytes of both.
std::vector<Part> united(std::vector<Part> parts, Part added);

/// Copies a part to the same offsets of a file that has nothing there, holes as holes (where the
/// part ends in one, the file's size is the caller's to set); on success `sum`, where one is given,
/// has been fed it. Errors: as copy_data.
Status copy_part(const End& source, const End& destination, Part part, Scratch& scratch,
                 Progress& progress, FileChecksum* sum = nullptr);

}  // namespace efs::stage
