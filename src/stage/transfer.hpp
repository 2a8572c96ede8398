#pragma once
// One file's data from one descriptor to another: the loop that stage-in and stage-out share.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/checksum.hpp"
#include "base/result.hpp"
#include "stage/pfs_io.hpp"
#include "stage/progress.hpp"

namespace efs::stage {

/// Files of this size and more are read by one thread and written by another.
inline constexpr std::uint64_t pipelined_from = 32U << 20U;

/// The memory that copies go through; made once per task, so that small files do not pay for it each. Pages are
/// taken when first used. Not thread-safe.
class Scratch {
 public:
  static constexpr std::size_t count = 3;  // one being read, one being written, one between
  explicit Scratch(std::uint64_t chunk);
  std::span<std::byte> buffer(std::size_t index);
  std::size_t chunk() const { return chunk_; }

 private:
  std::size_t chunk_;
  std::array<std::unique_ptr<std::byte[]>, count> buffers_;
};

/// One end of a copy. Owns nothing.
struct End {
  PfsIo& io;
  int fd = -1;
};

struct CopyJob {
  End source;
  End destination;               // empty and nobody else's
  std::uint64_t size = 0;        // of the source
  std::uint64_t allocated = 0;   // below size: holes are looked for, and kept
  bool early_writeback = false;  // large files: let the device work while we copy
};

/// Copies `size` bytes; on success the destination has exactly that size and `sum` has been fed its full content,
/// holes as zeros. Nothing is made durable. Progress advances by what was copied, also where the copy then fails.
/// Errors: those of the ends (text names which end); ESTALE where the source ends early; ECANCELED.
/// Starts a thread of its own for files from `pipelined_from` on; joined before it returns.
Status copy_data(const CopyJob& job, Scratch& scratch, Checksum& sum, Progress& progress);

/// The checksum of the first `size` bytes. Errors: as copy_data.
Result<std::uint64_t> hash_data(const End& source, std::uint64_t size, Scratch& scratch, const std::atomic<bool>& cancel);

}  // namespace efs::stage
