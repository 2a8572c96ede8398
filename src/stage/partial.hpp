#pragma once
// A result on its way: written under a partial name, checked, and renamed when it is durable.

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "fs/staging.hpp"
#include "stage/buffer.hpp"
#include "stage/pfs_io.hpp"
#include "stage/progress.hpp"
#include "stage/transfer.hpp"

namespace efs::stage {

inline constexpr const char* partial_suffix = ".efs-partial";

/// "NAME.efs-partial", or a hashed name of the same suffix where that would be too long or is `taken` by a result.
std::string partial_name(const std::string& name, bool taken = false);

/// What write_partial() made: to be recognised before it gets its real name.
struct PartialFile {
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::optional<std::uint64_t> checksum;  // of files, as read from the buffer
};

/// One result and where it goes. `directory` is an open directory of the PFS.
struct PartialJob {
  const fs::WalkItem& item;
  int directory = -1;
  std::string partial;
  bool fsync = false;  // now, by itself; else the caller's syncfs covers it
};

/// Writes data, owner (where permitted), mode and times of a file, or a symbolic link. A partial left by a stage-out
/// that was killed is replaced. After an error no partial is left, unless removing it failed too. Not durable
/// without `fsync`. Thread-safe for different items.
Result<PartialFile> write_partial(const PartialJob& job, Buffer& buffer, PfsIo& pfs, Scratch& scratch, Progress& progress);

/// Checks that the partial is the one that was written, of its full size, and gives it the item's name, replacing
/// what has it. Requires: the partial is durable. After an error the partial is gone, as above.
Status publish_partial(const PartialJob& job, const PartialFile& written, PfsIo& pfs);

/// How the PFS stands towards an item that is to replace its origin.
enum class PfsVersion : std::uint8_t { origin_or_none, same_content, other };
struct PfsCheck {
  PfsVersion version = PfsVersion::origin_or_none;
  std::optional<std::uint64_t> checksum;  // with same_content
};
/// same_content: an earlier stage-out, killed before its receipt, has brought the item out: size, mtime and checksum
/// are the item's.
Result<PfsCheck> check_version(const fs::WalkItem& item, int directory, Buffer& buffer, PfsIo& pfs, Scratch& scratch,
                               const std::atomic<bool>& cancel);

}  // namespace efs::stage
