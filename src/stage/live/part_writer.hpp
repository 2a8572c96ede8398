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
#include "stage/live/live_transfer.hpp"
#include "stage/live/range.hpp"
#include "stage/live/unload_buffer.hpp"
#include "stage/options.hpp"
#include "stage/pfs/pfs_handle.hpp"
#include "stage/versions/input_guard.hpp"

namespace efs::stage {

/// One object serves one unload. Not thread-safe. All arguments are borrowed and must outlive the
/// object.
class PartWriter : LiveTransfer {
 public:
  PartWriter(const LiveArguments& with, UnloadBuffer& buffer)
      : LiveTransfer(with),
        buffer_(buffer),
        publisher_(*options_.publisher),
        in_place_(config::has_results_in_place(config_)),
        inputs_(config_, buffer, pfs_) {}

  /// Writes the bytes of `asked` that the item has, and returns that part. On success a new version
  /// of the file in results-dir, with these bytes replaced, has the name durably. `entry` gets its
  /// checksum and any remarks. After an error results-dir is unchanged and has no partial; the
  /// entry's action distinguishes a conflict from a failure.
  Result<Part> write(const fs::WalkItem& item, Part asked, ReceiptEntry& entry);

 private:
  /// The version in results-dir before the export.
  struct OldVersion {
    PfsHandle directory;  // the directory that holds it
    PfsHandle file;
    struct stat attributes{};
    bool ours = false;  // this job has exported it
  };

  /// The relation of the job to the version that the part was laid over.
  struct Replaced {
    bool ours = false;    // the job has exported it
    bool is_new = false;  // the job's file is a new one, in place
  };

  static Result<Part> present_part(const fs::WalkItem& item, Part asked);
  Result<PfsHandle> directory_of(const fs::WalkItem& item);
  Result<OldVersion> open_old(const fs::WalkItem& item);
  std::unexpected<Error> conflict(ReceiptEntry& entry, std::string reason);
  bool is_unknown_name(const fs::WalkItem& item) const;
  Status may_lay_over(const fs::WalkItem& item, const OldVersion& old, ReceiptEntry& entry);
  Status is_no_input(const OldVersion& old, ReceiptEntry& entry);
  static bool is_its_own(const struct stat& there, fs::WalkItem item);
  Status is_still(const fs::WalkItem& item, const OldVersion& old, ReceiptEntry& entry);
  void record_version(const fs::WalkItem& item, const PartialFile& made, Replaced replaced,
                      ReceiptEntry& entry);
  Status record_part(const fs::WalkItem& item, const PartialFile& made);
  Status record_placed(const fs::WalkItem& item, const PartialFile& made);
  Result<PartialFile> place_part(const PartialJob& job, Part part, const OldVersion& old,
                                 ReceiptEntry& entry);
  Result<PartialFile> fill_partial(const PartialJob& job, Part part, const OldVersion& old,
                                   PfsRef file, ReceiptEntry& entry);
  Status give_name(const PartialJob& job, const PartialFile& made, const OldVersion& old,
                   ReceiptEntry& entry);
  Status publish_patiently(const PartialJob& job, const PartialFile& made,
                           const AboutToPublish& about_to);
  Status revoke(const std::string& path);
  Result<PartialFile> lay_over(const fs::WalkItem& item, Part part, const OldVersion& old,
                               PfsRef file, Scratch& scratch);
  Result<std::string> take_attributes(const OldVersion& old, PfsRef file);

  UnloadBuffer& buffer_;
  Publisher& publisher_;
  const bool in_place_;
  InputGuard inputs_;
};

}  // namespace efs::stage
