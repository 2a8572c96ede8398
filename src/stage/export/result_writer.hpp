// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Writes the partials of results, and compares them with what was written.

#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "base/mutex.hpp"
#include "config/job_config.hpp"
#include "stage/copy/transfer.hpp"
#include "stage/export/export_context.hpp"
#include "stage/export/export_failures.hpp"
#include "stage/export/export_records.hpp"
#include "stage/export/outgoing.hpp"
#include "stage/export/partial.hpp"
#include "stage/export/result_names.hpp"
#include "stage/export/results_tree.hpp"
#include "stage/pfs/directory_cursor.hpp"

namespace efs::stage {

/// Thread-safe for different results. Makes nothing durable except by fsync of single files.
class ResultWriter {
 public:
  /// `names` is borrowed.
  ResultWriter(const ExportContext& context, ResultNames& names);

  /// Writes the partials. Each result is then `written`, or `named` if an earlier stage-out has
  /// exported it, or settled.
  void write(std::span<Outgoing> task);

  /// Compares the PFS's data of `written`, durable results with the written data (verify:
  /// read-back).
  void verify(std::span<Outgoing> task);

  /// Removes the partials of results that failed after their partial was whole.
  void remove_partials(std::span<Outgoing> batch);

  /// Removes the file of a result that is to be written again. A failure is in its entry.
  void remove_written(Outgoing& out);

 private:
  Result<PartialFile> write_in(const Outgoing& out, PfsRef directory, Scratch& scratch);
  void write_one(Outgoing& out, DirectoryCursor& directories, Scratch& scratch);
  static void take_written(Outgoing& out, const PartialFile& written);
  bool remove_at_once(Outgoing& out, DirectoryCursor& directories);
  void verify_one(Outgoing& out, DirectoryCursor& directories, Scratch& scratch);
  std::optional<mode_t> handed_down_acl(const std::string& path, PfsRef directory);
  bool may_write(Outgoing& out, PfsRef directory, Scratch& scratch);

  const config::JobConfig& config_;
  ExportSource& buffer_;
  PfsIo& pfs_;
  ResultsTree& tree_;
  Progress& progress_;
  ExportFailures& failures_;
  ResultNames& names_;
  ExportRecords records_;
  const bool in_place_;
  ScratchPool scratches_;
  Mutex mutex_;  // rank 90 (leaf)
  // A cache of handed_down_acl().
  std::unordered_map<std::string, std::optional<mode_t>> acl_directories_ EFS_GUARDED_BY(mutex_);
};

}  // namespace efs::stage
