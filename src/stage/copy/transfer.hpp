// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One file's data from one end to another: the loop that stage-in and stage-out share.

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
#include "stage/copy/content.hpp"
#include "stage/copy/progress.hpp"

namespace efs::stage {

/// From `shared_from` bytes of data on two threads copy a file; from `widely_shared_from` on, as
/// many threads as there are CPUs. The Scratch of the copy has one buffer a thread and so limits
/// the number of threads.
inline constexpr std::uint64_t shared_from = 32U << 20U;
inline constexpr std::uint64_t widely_shared_from = 256U << 20U;

/// A container of at least this size, for a file without holes, gets its size before its bytes:
/// then a tmpfs with huge pages uses them.
inline constexpr std::uint64_t smallest_huge = 2U << 20U;

/// The buffers of a copy. A task makes one Scratch for all its files, because small files should
/// not pay for one each. The kernel allocates the pages at first use. Not thread-safe.
class Scratch {
 public:
  static constexpr std::size_t most = 4;
  /// `count`: number of buffers, one for each thread of a large copy; from 1 to `most`.
  explicit Scratch(std::uint64_t chunk, std::size_t count = most);
  std::span<std::byte> buffer(std::size_t index);

  std::size_t chunk() const { return chunk_; }

  std::size_t count() const { return count_; }

 private:
  std::size_t chunk_;
  std::size_t count_;
  std::array<std::unique_ptr<std::byte[]>, most> buffers_;
};

/// A pool of Scratches that threads share, so that each is made once. Thread-safe. The pool must
/// outlive the borrowed Scratches.
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

/// Borrows the ends.
struct CopyJob {
  const ContentSource& source;
  const ContentSink& destination;  // empty; only this copy uses it
  std::uint64_t size = 0;          // of the source
  std::uint64_t allocated = 0;     // if below size: the copy finds and keeps holes
  bool early_writeback = false;    // for large files: the device writes back during the copy
};

/// Copies `size` bytes. On success the destination has exactly that size, and `sum`, if given, has
/// received the full content. Nothing is durable on return. Progress advances by the copied bytes,
/// even if the copy then fails. On success it has advanced by data_of(): holes take no time.
/// Errors: those of the two ends (the text names the end); ESTALE if the source ends early;
/// ECANCELED. Files from `shared_from` on are copied on additional threads, which end before the
/// call returns.
Status copy_data(const CopyJob& job, Scratch& scratch, FileChecksum* sum, Progress& progress);

/// The checksum of the first `size` bytes. An xxh3-sparse checksum does not read holes. Errors: as
/// copy_data.
Result<FileSum> hash_data(const ContentSource& source, std::uint64_t size, SumKind kind,
                          Scratch& scratch, const std::atomic<bool>& cancel);

/// The bytes of a file to transfer: its size without its holes.
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
