// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The rename of a file within its directory.

#include <functional>
#include <string>

#include "base/result.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// The file `from` of the open directory `at` and the name that it is to get there. Borrows the
/// names.
struct Rename {
  PfsRef at{};
  const std::string& from;
  const std::string& to;
};

/// Called just before the call that gives a file its name. Called again if another process was
/// faster. `is_shared`: another node's identical file has the name.
using AboutToName = std::function<void(bool is_shared)>;

/// Renames; EEXIST if the name `to` exists. On a file system without renameat2(2) it makes a link
/// under a claim to the name (name_claim.hpp); a link never replaces a file. On a file system
/// without links it may replace a file that a program other than efs makes at that moment.
Status rename_new(PfsIo& pfs, const Rename& names);

}  // namespace efs::stage
