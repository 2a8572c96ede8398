// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A small HTTP server for one monitoring system: GET /metrics, one thread.

#include <functional>
#include <string>

#include "cli/cli.hpp"
#include "cli/listen_address.hpp"

namespace efs::cli {

/// The metrics in both formats.
struct ScrapeBodies {
  std::string openmetrics, text;
};

/// Collects the metrics. An error becomes the status 503 with its text.
using CollectBodies = std::function<Result<ScrapeBodies>()>;

/// Listens, prints the address, and answers until SIGTERM, SIGINT or SIGHUP. Collects at most once
/// a second; requests in between get the same metrics. A connection lasts 5 seconds at most for the
/// request and for the answer each; if there are too many, the oldest ends. Returns the exit code.
/// Changes the signal mask of the process for its duration.
int serve_metrics(World& world, const ListenAddress& address, const CollectBodies& collect);

}  // namespace efs::cli
