// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The content of the buffer and the outcome of a stop, for `efs ls` and `efs explain`.

#include <nlohmann/json_fwd.hpp>

#include <string>

#include "config/job_config.hpp"
#include "fs/staging.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// One line of `efs ls`: path, type, size, class, dirty, staged ("in", "out" or "no": where another
/// whole copy is), and if they apply: backend (the id, for a regular file), pinned, parts, target.
nlohmann::json inventory_entry(const config::JobConfig& config, const fs::WalkItem& item);

/// Describes a name, with `text` for people: its location, its class and the rule for it, whether a
/// stop would export it and why, and its writers. For a name that is not in the buffer: whether the
/// PFS has it. `where` describes the backend.
nlohmann::json explain(const config::JobConfig& config, const std::string& name,
                       fs::Staging& staging, PfsIo& pfs, const std::string& where);

}  // namespace efs::stage
