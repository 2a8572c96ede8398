// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The durability class of a backend before a job starts: the answer that the daemon will get.

#include <string>

#include "base/durability.hpp"
#include "config/job_config.hpp"

namespace efs::cli {

/// Probes a directory as the daemon does (base/durability.hpp). `problem` is set if the caller
/// cannot create files there.
DurabilityProbe probe_directory(const std::string& path);

/// A backend in memory needs no directory.
DurabilityProbe probe_backend(const config::Backend& backend);

/// "page cache: durable by fsync or msync".
std::string durability_text(Durability durability);

/// The same of a probe, and why it may have missed DAX.
std::string durability_text(const DurabilityProbe& probe);

}  // namespace efs::cli
