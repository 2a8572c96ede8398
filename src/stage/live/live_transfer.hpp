// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The arguments and the turn that a load and an unload have in common.

#include <cstdint>

#include "config/job_config.hpp"
#include "fs/staging.hpp"
#include "stage/copy/progress.hpp"
#include "stage/options.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// All are borrowed and must outlive the transfer.
struct LiveArguments {
  const config::JobConfig& config;
  fs::Staging& staging;
  PfsIo& pfs;
  const Options& options;
  Progress& progress;
};

/// The base of each class that transfers files while programs run.
class LiveTransfer {
 protected:
  explicit LiveTransfer(const LiveArguments& with)
      : config_(with.config),
        staging_(with.staging),
        pfs_(with.pfs),
        options_(with.options),
        progress_(with.progress) {}

  ~LiveTransfer() = default;

  LiveTransfer(const LiveTransfer&) = delete;
  LiveTransfer& operator=(const LiveTransfer&) = delete;

  /// Waits for the turn to transfer `bytes`. Returns at once if there is nothing to transfer, or if
  /// jobs take no turns.
  Status wait_for_turn(std::uint64_t bytes) {
    return bytes == 0 || !options_.wait_for_turn ? Status() : options_.wait_for_turn(bytes);
  }

  const config::JobConfig& config_;
  fs::Staging& staging_;
  PfsIo& pfs_;
  const Options& options_;
  Progress& progress_;
};

}  // namespace efs::stage
