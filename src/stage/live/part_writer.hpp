#pragma once
// A part of a file, laid over the version that results-dir has.

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

/// Of one unload; not thread-safe. Owns nothing that it is given, all of which outlives it.
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

  /// What of `asked` the item has. The file of results-dir with that laid over it has its name
  /// then, durably; `entry` gets its checksum and what is to be told. After an error, which the
  /// entry's action may tell from a failure, results-dir has what it had, and no partial.
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
