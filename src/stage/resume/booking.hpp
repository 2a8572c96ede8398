#pragma once
// What is known of the results that are on the PFS, so that the next stage-out brings what is left,
// and takes none of its own for somebody else's.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/job_config.hpp"
#include "fs/staging.hpp"
#include "stage/export/receipt.hpp"
#include "stage/pfs/pfs_io.hpp"
#include "stage/versions/placed_names.hpp"

namespace efs::stage {

/// Notes in the buffer what results-dir has. What cannot be noted, or looked at, is logged and
/// left: should the job change it again, it is compared, and a conflict at worst. Keeps what it is
/// made of. Not thread-safe; nothing may be written to the buffer meanwhile.
class Booking {
 public:
  /// `placed`: null where results meet nobody else's.
  Booking(const config::JobConfig& config, fs::Staging& staging, PfsIo& pfs,
          const PlacedNames* placed);

  /// After a stage-out that is not the last: what is back is clean from now on.
  void saved(const Receipt& receipt);

  /// Of a buffer that somebody else may have brought out: a salvage, or a stop that was killed.
  /// Nothing gets clean.
  void salvaged();

  /// What the job file now calls otherwise in results-dir than `before` has not been brought there
  /// yet; nor, for all that is known, has anything where nobody can tell what the last one called
  /// it (null).
  Status forget_renamed(const config::JobConfig* before);

 private:
  using Note = Status (fs::Staging::*)(const std::string&, const fs::Origin&, bool,
                                       const fs::GoneInput*);

  std::string result(const std::string& path) const;
  std::optional<struct stat> brought_out(const std::string& result);
  std::vector<std::string> names_in_results(std::vector<std::string> names) const;
  void book(const std::vector<std::string>& paths, std::span<const fs::WalkItem> items, Note note);

  const config::JobConfig& config_;
  fs::Staging& staging_;
  PfsIo& pfs_;
  const PlacedNames* placed_;
  const bool in_place_;
};

}  // namespace efs::stage
