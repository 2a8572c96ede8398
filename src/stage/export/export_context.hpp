// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The objects that all parts of one stage-out use.

#include "config/job_config.hpp"
#include "stage/copy/progress.hpp"
#include "stage/copy/worker_pool.hpp"
#include "stage/export/export_failures.hpp"
#include "stage/export/results_tree.hpp"
#include "stage/export_source.hpp"
#include "stage/options.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// All are borrowed and must outlive the parts.
struct ExportContext {
  const config::JobConfig& config;
  ExportSource& buffer;
  PfsIo& pfs;
  ResultsTree& tree;
  const Options& options;
  WorkerPool& pool;
  Progress& progress;
  ExportFailures& failures;
};

}  // namespace efs::stage
