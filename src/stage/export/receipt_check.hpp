#pragma once
// Whether the PFS still has what a receipt says that it got.

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

struct ReceiptCheck {
  struct Difference {
    std::string path;  // relative to results_dir, as the PFS has it
    std::string reason;
  };

  std::string job, results_dir;
  std::uint64_t verified = 0;
  std::uint64_t unchecked = 0;  // results without a checksum: directories, links, unchanged files
  std::vector<Difference> differences;
};

/// Reads every result of the receipt that has a checksum, and compares. How a file is read follows
/// from the name of its checksum, not from the holes that it has by now: a copy without holes has
/// the same value. Writes nothing. EPROTO where `path` is no receipt of efs.
Result<ReceiptCheck> check_receipt(const std::string& path, PfsIo& pfs,
                                   const std::atomic<bool>& cancel);

}  // namespace efs::stage
