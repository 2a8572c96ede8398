// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Exports a part of a file over the version in results-dir.

#include <atomic>
#include <string>

#include "config/job_config.hpp"
#include "fs/staging.hpp"
#include "stage/copy/transfer.hpp"
#include "stage/export/partial.hpp"
#include "stage/export/receipt.hpp"
#include "stage/live/range.hpp"
#include "stage/live/unload_buffer.hpp"
#include "stage/options.hpp"
#include "stage/versions/input_guard.hpp"

namespace efs::stage {

/// One object serves one unload. Not thread-safe. All arguments are borrowed and must outlive the
/// object.
class PartWriter {
 public:
  PartWriter(const config::JobConfig& config, fs::Staging& staging, UnloadBuffer& buffer,
             PfsIo& pfs, const Options& options, Progress& progress)
      : config_(config),
        staging_(staging),
        buffer_(buffer),
        pfs_(pfs),
        options_(options),
        progress_(progress),
        in_place_(config::has_results_in_place(config)),
        inputs_(config, buffer, pfs) {}

  /// Writes the bytes of `asked` that the item has, and returns that part. On success a new version
  /// of the file in results-dir, with these bytes replaced, has the name durably. `entry` gets its
  /// checksum and any remarks. After an error results-dir is unchanged and has no partial; the
  /// entry's action distinguishes a conflict from a failure.
  Result<Part> write(const fs::WalkItem& item, Part asked, ReceiptEntry& entry);

 private:
  std::unexpected<Error> conflict(ReceiptEntry& entry, std::string reason);
  bool is_unknown_name(const fs::WalkItem& item) const;
  Status may_lay_over(const fs::WalkItem& item, const struct stat& before, bool ours,
                      ReceiptEntry& entry);
  static bool is_its_own(const struct stat& there, fs::WalkItem item);
  Status is_still(const fs::WalkItem& item, int directory, const struct stat& before,
                  ReceiptEntry& entry);
  Status note_part(const fs::WalkItem& item, const PartialFile& made);
  Status note_placed(const fs::WalkItem& item, const PartialFile& made);
  Result<PartialFile> place_part(const PartialJob& job, Part part, int old,
                                 const struct stat& before, bool ours, ReceiptEntry& entry);
  Status publish_patiently(const PartialJob& job, const PartialFile& made,
                           const AboutToPublish& about_to);
  Status revoke(const std::string& path);
  Result<PartialFile> lay_over(const fs::WalkItem& item, Part part, int old,
                               const struct stat& before, int fd, Scratch& scratch);
  Result<std::string> take_attributes(int old, const struct stat& before, int fd);

  const config::JobConfig& config_;
  fs::Staging& staging_;
  UnloadBuffer& buffer_;
  PfsIo& pfs_;
  const Options& options_;
  Progress& progress_;
  const bool in_place_;
  InputGuard inputs_;
};

}  // namespace efs::stage
