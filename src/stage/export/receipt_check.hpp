// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Compares the PFS with a receipt.

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

struct ReceiptCheck {
  struct Difference {
    std::string path;  // on the PFS, relative to results_dir
    std::string reason;
  };

  std::string job, results_dir;
  std::uint64_t verified = 0;
  std::uint64_t unchecked = 0;  // results without a checksum: directories, links, unchanged files
  std::vector<Difference> differences;
};

/// Reads every result that has a checksum in the receipt and compares the two. The kind of the
/// checksum decides how the file is read, not the file's present holes: a copy without holes has
/// the same checksum. Writes nothing. EPROTO if `path` is not a receipt of efs.
Result<ReceiptCheck> check_receipt(const std::string& path, PfsIo& pfs,
                                   const std::atomic<bool>& cancel);

}  // namespace efs::stage
