// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Access of a stage-in to the cache of inputs. No failure of the cache is an error of the stage-in.

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/mutex.hpp"
#include "fs/seal.hpp"
#include "stage/copy/transfer.hpp"
#include "stage/import/cache.hpp"
#include "stage/import_sink.hpp"
#include "stage/plan/planner.hpp"

namespace efs::stage {

/// Connects the job's file system to the cache: the file system reports changes of shared
/// containers. `config` must outlive the object. Thread-safe.
class InputSharer final : public Sharer {
 public:
  InputSharer(Cache& cache, const config::JobConfig& config) : cache_(cache), config_(config) {}

  void part(Container& container, const std::string& staged_as) override;

 private:
  Cache& cache_;
  const config::JobConfig& config_;
};

/// Thread-safe. `cache` may be null: then no file is found or kept.
class Reuse {
 public:
  struct Report {
    std::uint64_t files = 0, bytes = 0;  // imported from the cache
    std::uint64_t not_kept = 0;          // reusable files that the cache did not keep
    std::string reason;                  // for the first of them
  };

  Reuse(Cache* cache, ImportSink& buffer, std::string root_dir)
      : cache_(cache), buffer_(buffer), root_dir_(std::move(root_dir)) {}

  /// The state of one file. `source`: the attributes of the file on the PFS, which the user could
  /// open.
  struct File {
    std::optional<CacheKey> key;  // absent: the file does not use the cache
    Nanoseconds since = 0;        // when its attributes were read, wall clock
    std::uint64_t data = 0;       // bytes, without holes
    bool reused = false;
  };

  File look_at(const PlanEntry& entry, const Result<struct stat>& source) const;
  /// Returns an unnamed file with the content, if the cache has it. Reads nothing from the PFS.
  /// `place`: the backend for a copy, see PlanEntry.
  std::optional<fs::OpenContainer> take(File& file, unsigned place, Scratch& scratch,
                                        Progress& progress);
  /// Offers a file to the cache. Requires: it was read from the PFS as `version`, is whole and has
  /// its times.
  void keep(const File& file, const fs::Origin& version, Container& container);

  Report report() const;

 private:
  std::optional<fs::OpenContainer> copied(Container& cached, unsigned place, Scratch& scratch,
                                          Progress& progress);

  Cache* const cache_;
  ImportSink& buffer_;
  const std::string root_dir_;
  std::atomic<std::uint64_t> files_{0}, bytes_{0};
  mutable Mutex mutex_;  // rank 90 (leaf)
  std::uint64_t not_kept_ EFS_GUARDED_BY(mutex_) = 0;
  std::string reason_ EFS_GUARDED_BY(mutex_);
};

}  // namespace efs::stage
