#pragma once
// Logging: one line per event, key=value, nothing per I/O. spdlog below; its default logger is set
// up once by main.

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
/// Replaces what was set up before. Not thread-safe: call it before there are threads. Appends; a
/// file that is not there is made with mode 0600, its directory is not, and a link in its place is
/// not followed. A line is in the file when the call returns, but where its place hangs: then a
/// call waits a second, and the next ones do not; 1 MiB is kept for it. Where it cannot be opened,
/// or not within `patience`: why not, and the log goes to standard error.
Status setup(const std::string& file, const std::string& level,
             std::chrono::milliseconds patience = std::chrono::seconds(30));

/// Of what was set up.
void set_level(const std::string& level);

}  // namespace efs::log
