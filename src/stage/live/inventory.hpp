#pragma once
// What is in the buffer and what will become of it: `efs ls` and `efs explain`.

#include <nlohmann/json_fwd.hpp>

#include <string>

#include "config/job_config.hpp"
#include "fs/staging.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// One line of `efs ls`: path, type, size, class, dirty, staged ("in", "out" or "no": where else it
/// is whole), and where they apply backend (its id, of a regular file), parts, target.
nlohmann::json inventory_entry(const config::JobConfig& config, const fs::WalkItem& item);

/// Everything that is known of a name, with `text` for people: where it is, which class and by
/// which rule, whether a stop would stage it out and why, what is known of its writers. Of a name
/// that is not in the buffer: whether the PFS has it. `where` describes the backend.
nlohmann::json explain(const config::JobConfig& config, const std::string& name,
                       fs::Staging& staging, PfsIo& pfs, const std::string& where);

}  // namespace efs::stage
