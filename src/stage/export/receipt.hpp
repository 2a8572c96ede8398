// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The receipt: the outcome of a stage-out for each file, with one verdict.

#include <sys/types.h>
#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/checksum.hpp"
#include "base/clock.hpp"
#include "base/result.hpp"
#include "config/job_config.hpp"
#include "stage/export/job_record.hpp"
#include "stage/pfs/partial_name.hpp"  // and what the receipt is called
#include "stage/plan/skip.hpp"

namespace efs::fs {
struct WalkItem;
}

namespace efs::stage {

class PfsIo;

enum class Action : std::uint8_t {
  staged_out,  // whole and durable under its real name
  unchanged,   // clean: nothing to do
  // an earlier, interrupted stage-out has already exported the same content
  kept,
  dropped,  // changed, and temporary by the job file
  skipped,  // a type that cannot be staged
  failed,   // the export failed for `reason`; the file is still in the buffer
  // the PFS has another version than the imported one and is unchanged; the file is still in the
  // buffer
  conflict,
  not_saved,  // not tried (PFS full, cancelled); the file is still in the buffer
  // an input that the job removed or renamed; efs removed it from results-dir too (deletions:
  // propagate)
  removed,
};
const char* name_of(Action action);  // "staged-out"

/// Parts of the reasons of entries, by which a report knows them.
inline constexpr std::string_view says_existing_fail = "says existing: fail",
                                  unloaded_early = "unloaded while the job ran";

struct ReceiptEntry {
  std::string path;  // relative to results_dir
  Action action = Action::failed;
  std::uint64_t bytes = 0;
  std::optional<FileSum> checksum;  // of the whole content, as read from the buffer
  Nanoseconds mtime = 0;
  double seconds = 0;  // time to copy it
  std::string reason;
  // if it differs from the name in the buffer: the name on the PFS, or the path in results-dir by
  // an output rule
  std::string placed_as;
  // errno of a failure, if known; ECANCELED if time was up; not in the file
  int code = 0;
  // It took the place of something that was neither an input of the job nor its own earlier result.
  bool replaced = false;
  // copied while a program could write to it; the copy may mix several states of the file
  bool unverified = false;
  // the buffer has lost the content or cannot read it; a retry fails until the buffer is repaired
  bool unreadable = false;
  std::string evidence;  // of a salvage: "verified" or "as-found"
  // the inode of an unchanged regular file that was imported; 0 otherwise; not in the file
  std::uint64_t input = 0;
};

/// An entry with the item's name, size and time, and this outcome.
ReceiptEntry receipt_entry(const fs::WalkItem& item, Action action, std::string reason);

/// complete: nothing failed. partial: some results were not exported. failed: none was.
enum class Verdict : std::uint8_t { complete, partial, failed };
const char* name_of(Verdict verdict);

struct ReceiptTotals {
  std::uint64_t staged_out = 0, unchanged = 0, kept = 0, dropped = 0, skipped = 0, failed = 0,
                conflict = 0, not_saved = 0, removed = 0;
  std::uint64_t replaced = 0;  // of those that are there, also from before the stop
  std::uint64_t bytes_staged_out = 0;
  // failed, conflict and not-saved: these bytes are in the buffer only
  std::uint64_t bytes_left = 0;
};

/// The imports of the instance's stage-in, and the part of them that came from the cache of inputs.
struct StagedIn {
  std::uint64_t files = 0, bytes = 0;
  std::uint64_t files_reused = 0, bytes_reused = 0;
  // not imported again, because the job removed them in an earlier run of the instance
  std::uint64_t files_away = 0;
  std::vector<PlanSkip> skipped;
};

struct Receipt {
  std::string job;
  std::string results_dir;
  Nanoseconds started = 0;  // wall clock
  Nanoseconds ended = 0;
  Verdict verdict = Verdict::complete;
  std::string reason;         // why the whole stage-out failed; otherwise ""
  bool read_back = false;     // the stage-out read the results back and compared the checksums
  std::uint64_t retries = 0;  // repeated calls to the PFS
  std::string note;           // the origin of the receipt, if not a running instance
  // the command that exports the remaining results, without the job's name
  std::string way_out = "retry: efs stop";
  /// not-saved files that are counted but not listed: time was up, and there are too many
  std::uint64_t unlisted = 0, unlisted_bytes = 0;
  // of the remaining results: no longer in the buffer and not recoverable; not in the file
  std::uint64_t lost = 0;
  std::optional<StagedIn> staged_in;  // set if the same process did the stage-in
  std::optional<JobRecord> record;    // of the job's whole life, for its report
  ReceiptTotals totals;
  std::vector<ReceiptEntry> entries;  // byte order of paths
};

/// Adds the entry. After `most` not-saved entries further ones are only counted. `not_tried`: their
/// number so far.
void add_or_count(Receipt& receipt, ReceiptEntry entry, std::size_t& not_tried, std::size_t most);

/// Sorts the entries and derives totals and verdict from them (and from `reason` and `unlisted`).
void settle(Receipt& receipt);

/// The receipt of a stage-out that could not begin or ended with an exception.
Receipt failed_receipt(const config::JobConfig& config, std::string reason);

/// The number of results whose content the buffer cannot read.
std::uint64_t count_unreadable(const Receipt& receipt);

/// 0 complete, 3 some files failed, 1 nothing could be done.
int exit_code(const Receipt& receipt);

/// The most names of each kind in a text for people: with a receipt that has all names, and without
/// a receipt (the size of an answer bounds this number).
inline constexpr std::size_t names_shown = 5, names_shown_without_receipt = 2000;

/// "format": "efs-receipt-1". Names that are not UTF-8: base/json_text.hpp.
nlohmann::json to_json(const Receipt& receipt);

/// One entry as one line of text, and the inverse: nullopt if the line is not an entry.
std::string entry_text(const ReceiptEntry& entry);
std::optional<ReceiptEntry> entry_of(const nlohmann::json& json);

/// For people: totals, and each file that was not exported with its reason, at most `names` of each
/// kind.
std::string describe(const Receipt& receipt, std::size_t names = names_shown);

/// Writes `text` to `path` with this mode, as write_receipt() does, whose contract holds here too.
/// A symbolic link that has the name is replaced, not followed.
Status write_beside_results(const std::string& text, const std::string& path, mode_t mode,
                            PfsIo& pfs, const std::string& partial_tag = {});

/// Writes the JSON to `path`: writes a partial in the same directory, syncs it, renames it, and
/// syncs the directory. After an error `path` is unchanged and the partial is removed, unless the
/// removal failed too. After a failed fsync of the directory `path` is new but perhaps not durable.
/// A file that already has the partial's name is removed without being opened. `partial_tag`: the
/// same as for the results.
Status write_receipt(const Receipt& receipt, const std::string& path, PfsIo& pfs,
                     const std::string& partial_tag = {});

}  // namespace efs::stage
