#pragma once
// The cache of inputs as a stage-in uses it. Nothing that goes wrong with the cache is an error of
// the stage-in.

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/mutex.hpp"
#include "fs/seal.hpp"
#include "stage/buffer.hpp"
#include "stage/copy/transfer.hpp"
#include "stage/import/cache.hpp"
#include "stage/plan/planner.hpp"

namespace efs::stage {

/// The cache as it is told of changes by the file system of the job's inputs; `config` outlives it.
/// Thread-safe.
class InputSharer final : public Sharer {
 public:
  InputSharer(Cache& cache, const config::JobConfig& config) : cache_(cache), config_(config) {}

  void part(int container, const std::string& staged_as) override;

 private:
  Cache& cache_;
  const config::JobConfig& config_;
};

/// Thread-safe. `cache` may be null: then nothing is found and nothing kept.
class Reuse {
 public:
  struct Report {
    std::uint64_t files = 0, bytes = 0;  // came from the cache
    std::uint64_t not_kept = 0;          // reusable files that the cache did not take
    std::string reason;                  // of the first of them
  };

  Reuse(Cache* cache, Buffer& buffer, std::string root_dir)
      : cache_(cache), buffer_(buffer), root_dir_(std::move(root_dir)) {}

  /// One file's way through the cache. `source` is the file of the PFS, which the user could open.
  struct File {
    std::optional<CacheKey> key;  // absent: the cache has nothing to do with it
    Nanoseconds since = 0;        // when it was looked at, wall clock
    std::uint64_t data = 0;       // bytes, without holes
    bool reused = false;
  };

  File look_at(const PlanEntry& entry, const Result<struct stat>& source) const;
  /// A nameless file with its content, where the cache has it; nothing is read from the PFS.
  /// `place`: of a copy, see PlanEntry.
  std::optional<fs::HeldFile> take(File& file, unsigned place, Scratch& scratch,
                                   Progress& progress);
  /// The file has been read from the PFS as `version`, is whole and has its times.
  void keep(const File& file, const fs::Origin& version, int container);

  Report report() const;

 private:
  std::optional<fs::HeldFile> copied(int container, unsigned place, Scratch& scratch,
                                     Progress& progress);

  Cache* const cache_;
  Buffer& buffer_;
  const std::string root_dir_;
  std::atomic<std::uint64_t> files_{0}, bytes_{0};
  mutable Mutex mutex_;  // rank 90 (leaf)
  std::uint64_t not_kept_ EFS_GUARDED_BY(mutex_) = 0;
  std::string reason_ EFS_GUARDED_BY(mutex_);
};

}  // namespace efs::stage
