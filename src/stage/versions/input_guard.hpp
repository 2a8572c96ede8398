// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The last protection of the inputs: no result replaces an input, whatever path in results-dir
// leads to it.

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.hpp"
#include "config/job_config.hpp"
#include "stage/export_source.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// Thread-safe. All arguments are borrowed and must outlive the object.
class InputGuard {
 public:
  InputGuard(const config::JobConfig& config, ExportSource& buffer, PfsIo& pfs)
      : config_(config), buffer_(buffer), pfs_(pfs) {}

  /// True if the file `there`, which a result is about to replace, is the source of an input. Only
  /// for jobs that do not work in place; in place on-conflict decides. Reads the buffer's inputs
  /// once, at the first call. Errors: the buffer's.
  Result<bool> is_input(const struct stat& there);

 private:
  struct Input {
    std::string source;  // relative to root-dir
    std::uint64_t size = 0;
    Nanoseconds mtime = 0;
  };

  void read();
  bool leads_to(const std::string& source, const struct stat& there);

  const config::JobConfig& config_;
  ExportSource& buffer_;
  PfsIo& pfs_;
  std::once_flag asked_;
  // Constant after the first call. Key: the inode number on the PFS.
  std::unordered_map<std::uint64_t, std::vector<Input>> inputs_;
  Status readable_;
};

}  // namespace efs::stage
