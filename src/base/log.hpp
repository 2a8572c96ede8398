// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Logging: one line per event, key=value, nothing per I/O. Uses spdlog; main sets up its default
// logger once.

#include <spdlog/spdlog.h>

#include <chrono>
#include <string>

#include "base/result.hpp"

namespace efs::log {

using spdlog::debug;
using spdlog::error;
using spdlog::info;
using spdlog::warn;

/// Sends the log to `file` ("": standard error) at `level` (trace debug info warn error off).
/// Replaces the previous setup. Not thread-safe: call it before the process starts threads.
///
/// Appends to the file. A missing file is created with mode 0600; a missing directory is not
/// created, and a symbolic link is not followed. A line is in the file when the call returns. If
/// the file's storage hangs, a call waits one second and later calls do not wait; up to 1 MiB is
/// buffered meanwhile. If the file cannot be opened within `patience`, setup() returns the reason
/// and the log goes to standard error.
Status setup(const std::string& file, const std::string& level,
             std::chrono::milliseconds patience = std::chrono::seconds(30));

/// Sets the level of the current logger.
void set_level(const std::string& level);

}  // namespace efs::log
