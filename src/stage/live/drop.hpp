// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Drops results that results-dir has from the buffer while programs run (key `keep`).

#include <cstdint>
#include <string>
#include <vector>

#include "stage/export/receipt.hpp"
#include "stage/live/live_transfer.hpp"
#include "stage/live/unload.hpp"

namespace efs::stage {

/// A version of results that the buffer need not have any longer.
struct OldVersion {
  std::string path;                // a file, or the directory above its files
  std::vector<std::string> files;  // regular files of the buffer
};

/// The outcome of a drop.
struct Dropped {
  struct Stayed {
    std::string version;
    std::string file;  // the first one that could not be dropped
    Error why;
  };

  std::vector<ReceiptEntry> entries;  // of each file that was dropped
  std::vector<Stayed> stayed;         // versions that are in the buffer, whole or in part
};

/// The reason in the entry of a file that was dropped. It begins with removed_from_buffer.
inline constexpr const char* dropped_by_keep = "removed from the buffer by keep";

/// Removes the files of each version from the buffer. A version stays as a whole if the check of
/// any of its files fails: the file must be clean and have one name, no program may have it open or
/// mapped, and results-dir must have the very version of the file that was exported. A program that
/// opens a file between the check and the removal keeps that file. Directories and symbolic links
/// stay. The job has not removed a file that was dropped: no export removes its copy.
Dropped drop(const LiveArguments& with, const std::vector<OldVersion>& versions);

}  // namespace efs::stage
