// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Records in the buffer which results the PFS has. The next stage-out then exports only the
// remaining results, and recognises this job's results as its own.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/job_config.hpp"
#include "fs/staging.hpp"
#include "stage/export/receipt.hpp"
#include "stage/pfs/pfs_io.hpp"
#include "stage/pfs/publisher.hpp"
#include "stage/versions/placed_names.hpp"

namespace efs::stage {

/// Updates the records of exported copies in the buffer. If a record or a look-up fails, the
/// failure is logged and the file is skipped. If the job changes such a file again, the next
/// stage-out compares it with the PFS; at worst it reports a conflict. All arguments are borrowed.
/// Not thread-safe; no program may write to the buffer during a call.
class Booking {
 public:
  /// `placed`: the ledger; null if only this store writes to results-dir.
  Booking(const config::JobConfig& config, fs::Staging& staging, PfsIo& pfs, Publisher& publisher,
          const PlacedNames* placed);

  /// Call it after a stage-out that is not the last. Marks the exported files clean.
  void saved(const Receipt& receipt);

  /// Call it for a buffer that a salvage or a killed stop may have exported. Records the copies,
  /// and marks no file clean.
  void salvaged();

  /// Forgets the copies of results whose name in results-dir differs between `before` and the
  /// present job file. If the former job file is unknown (null), forgets all copies.
  Status forget_renamed(const config::JobConfig* before);

 private:
  using Note = Status (fs::Staging::*)(const std::string&, const fs::Origin&, bool,
                                       const fs::GoneInput*);

  std::string result(const std::string& path) const;
  bool has_results() const;
  bool is_back_by_name(const ReceiptEntry& entry) const;
  std::optional<struct stat> brought_out(const std::string& result);
  fs::Origin version_of(const std::string& result, const struct stat& there);
  std::vector<std::string> names_in_results(std::vector<std::string> names) const;
  void book(const std::vector<std::string>& paths, std::span<const fs::WalkItem> items, Note note);

  const config::JobConfig& config_;
  fs::Staging& staging_;
  PfsIo& pfs_;
  Publisher& publisher_;
  const PlacedNames* placed_;
  const bool in_place_;
};

}  // namespace efs::stage
