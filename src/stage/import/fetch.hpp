// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Copies the content of a remote file (fs::Remote) from the PFS into its container.

#include <cstdint>
#include <string>

#include "fs/staging.hpp"
#include "stage/copy/progress.hpp"
#include "stage/copy/transfer.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// Borrows all but `root_dir`'s text, which outlives the call, too.
struct FetchMeans {
  fs::Staging& staging;
  PfsIo& pfs;
  const std::string& root_dir;
  Scratch& scratch;
  Progress& progress;  // its `cancel` ends the fetch
};

struct FetchOutcome {
  enum class Kind : std::uint8_t { here, gone, failed, cancelled };

  Kind kind = Kind::here;  // gone: the file has lost its name
  std::uint64_t bytes = 0;
  bool has_changed = false;  // here: another version than that of the plan, which was accepted
  Error error{};             // of a failure, with a text for people
};

/// Returns when the content is here and as durable as the store, or when the fetch has failed: the
/// file is then as remote as before, and takes no room. Only the version on the PFS that the plan
/// saw becomes the content; another version is a failure, unless Remote::accepts. One call for a
/// file at a time.
FetchOutcome fetch_content(std::uint64_t ino, const FetchMeans& means);

}  // namespace efs::stage
