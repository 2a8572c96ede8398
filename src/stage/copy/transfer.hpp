#pragma once
// One file's data from one descriptor to another: the loop that stage-in and stage-out share.

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/checksum.hpp"
#include "base/mutex.hpp"
#include "base/result.hpp"
#include "stage/copy/progress.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// Files with so many bytes of data are copied by two threads, or by as many as there are buffers
/// and CPUs; by no more than the copy's Scratch has buffers.
inline constexpr std::uint64_t shared_from = 32U << 20U;
inline constexpr std::uint64_t widely_shared_from = 256U << 20U;

/// The memory that copies go through; made once per task, so that small files do not pay for it
/// each. Pages are taken when first used. Not thread-safe.
class Scratch {
 public:
  static constexpr std::size_t most = 4;
  /// `count`: of buffers, one for each thread of a large copy; at least 1, `most` at most.
  explicit Scratch(std::uint64_t chunk, std::size_t count = most);
  std::span<std::byte> buffer(std::size_t index);

  std::size_t chunk() const { return chunk_; }

  std::size_t count() const { return count_; }

 private:
  std::size_t chunk_;
  std::size_t count_;
  std::array<std::unique_ptr<std::byte[]>, most> buffers_;
};

/// Scratches that threads lend one another, so that each is made once. Thread-safe; outlives what
/// it lends.
class ScratchPool {
 public:
  explicit ScratchPool(std::uint64_t chunk, std::size_t count = Scratch::most)
      : chunk_(chunk), count_(count) {}

  class Loan {
   public:
    explicit Loan(ScratchPool& pool) : pool_(pool), scratch_(pool.take()) {}

    ~Loan() { pool_.give_back(std::move(scratch_)); }

    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;

    Scratch& operator*() const { return *scratch_; }

   private:
    ScratchPool& pool_;
    std::unique_ptr<Scratch> scratch_;
  };

 private:
  std::unique_ptr<Scratch> take();
  void give_back(std::unique_ptr<Scratch> scratch);

  const std::uint64_t chunk_;
  const std::size_t count_;
  Mutex mutex_;  // rank 90 (leaf)
  std::vector<std::unique_ptr<Scratch>> free_ EFS_GUARDED_BY(mutex_);
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

/// Copies `size` bytes; on success the destination has exactly that size and `sum`, where one is
/// given, has been fed its full content. Nothing is made durable. Progress advances by what was
/// copied, also where the copy then fails, and by data_of() in the end: holes take no time. Errors:
/// those of the ends (text names which end); ESTALE where the source ends early; ECANCELED. Starts
/// threads of its own for files from `shared_from` on; joined before it returns.
Status copy_data(const CopyJob& job, Scratch& scratch, FileChecksum* sum, Progress& progress);

/// The checksum of the first `size` bytes; as xxh3-sparse at the cost of the data alone. Errors: as
/// copy_data.
Result<FileSum> hash_data(const End& source, std::uint64_t size, SumKind kind, Scratch& scratch,
                          const std::atomic<bool>& cancel);

/// What there is to move of a file: its size without its holes.
inline std::uint64_t data_of(std::uint64_t size, std::uint64_t allocated) {
  return std::min(size, allocated);
}

inline std::uint64_t data_of(const struct stat& st) {
  if (!S_ISREG(st.st_mode)) {
    return 0;
  }
  return data_of(static_cast<std::uint64_t>(st.st_size),
                 static_cast<std::uint64_t>(st.st_blocks) * 512);
}

}  // namespace efs::stage
