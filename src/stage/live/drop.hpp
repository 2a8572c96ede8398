// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Drops results that results-dir has from the buffer while programs run (key `keep`).

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stage/export/receipt.hpp"
#include "stage/live/live_transfer.hpp"
#include "stage/live/unload.hpp"

namespace efs::stage {

/// A version of results that the buffer need not have any longer.
struct OldVersion {
  /// A regular file of the buffer. Another file with this name is not part of the version.
  struct File {
    std::string path;
    std::uint64_t ino = 0;
    // of an unsent version: a program that opens it for writing makes it newer; nullopt: any
    std::optional<std::uint64_t> edits{};
  };

  std::string path;         // a file, or the directory above its files
  std::vector<File> files;  // all of them
  // Files of newer versions. If one of them is gone or being written, this version may be one of
  // the newest. Null: there are none.
  std::shared_ptr<const std::vector<File>> newer{};
  // The rule does not send it (to-pfs), and results-dir has none of its files. `newer` then has all
  // files of the versions that must be whole.
  bool is_unsent = false;
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
  // The storage of the buffer has failed to take a newer version. The system tells that once: a
  // later sync would seem to succeed, so no unsent version may leave any more.
  bool has_failed_sync = false;
};

/// The reason in the entry of a file that was dropped. It begins with removed_from_buffer.
inline constexpr const char* dropped_by_keep = "removed from the buffer by keep";
/// The same of a file that results-dir never had. Its action is `dropped`.
inline constexpr const char* dropped_unsent =
    "removed from the buffer by keep; never sent to results-dir (to-pfs)";

/// Removes the files of each version from the buffer. A version stays as a whole if the check of
/// any of its files fails: the file must be clean and have one name, no program may have it open or
/// mapped, and results-dir must have the very version of the file that was exported. A directory
/// also stays as a whole if a program writes to any file in it, or if the version has a file that
/// is not listed. These checks and each removal are repeated for each file: if a program opens a
/// file after the check of all, or results-dir loses a copy, that file and the rest of the version
/// stay. Directories and symbolic links stay. The job has not removed a file that was dropped: no
/// export removes its copy. An error of EBUSY is a matter of programs.
///
/// A version that is unsent leaves with all its files at once, and only if all files of `newer` are
/// in the buffer, no program can write to them, and their contents are synced. The files must be
/// known to the buffer alone (fs::Staging::is_only_here()).
Dropped drop(const LiveArguments& with, const std::vector<OldVersion>& versions);

/// Adds the files that were dropped from the buffer and that the receipt does not list, and says of
/// each file that was never sent that it was not. `with_sent`: also those that results-dir has.
void add_dropped(Receipt& receipt, const std::vector<fs::DroppedResult>& dropped, bool with_sent);

}  // namespace efs::stage
