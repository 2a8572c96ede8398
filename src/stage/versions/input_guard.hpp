#pragma once
// The last line of defence of the inputs: by whatever way results-dir leads to one, no result takes
// its place.

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.hpp"
#include "config/job_config.hpp"
#include "stage/buffer.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// Thread-safe. Owns none of what it is given, all of which must outlive it.
class InputGuard {
 public:
  InputGuard(const config::JobConfig& config, Buffer& buffer, PfsIo& pfs)
      : config_(config), buffer_(buffer), pfs_(pfs) {}

  /// Is `there`, which a result is about to take the place of, what an input was staged in from?
  /// For who does not work in place: there on-conflict decides. Asks the buffer once, the first
  /// time. Errors: the buffer's.
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
  Buffer& buffer_;
  PfsIo& pfs_;
  std::once_flag asked_;
  // Constant once asked.
  std::unordered_map<std::uint64_t, std::vector<Input>> inputs_;  // by the inode number on the PFS
  Status readable_;
};

}  // namespace efs::stage
