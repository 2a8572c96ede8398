#pragma once
// What a stage-out did, file by file, with one verdict.

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/checksum.hpp"
#include "base/clock.hpp"
#include "base/result.hpp"
#include "config/job_config.hpp"
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
  // there already, whole and the same: an earlier stage-out that was interrupted has brought it out
  kept,
  dropped,    // changed, and temporary by the job file
  skipped,    // nothing that can be staged
  failed,     // was tried; the reason says what happened; still in the buffer
  conflict,   // the PFS has another version than was staged in; still in the buffer, PFS untouched
  not_saved,  // not tried (PFS full, cancelled); still in the buffer
  // an input that the job removed or renamed, gone from results-dir too (deletions: propagate)
  removed,
};
const char* name_of(Action action);  // "staged-out"

struct ReceiptEntry {
  std::string path;  // relative to results_dir
  Action action = Action::failed;
  std::uint64_t bytes = 0;
  std::optional<FileSum> checksum;  // of the whole content, as read from the buffer
  Nanoseconds mtime = 0;
  double seconds = 0;  // spent on copying it
  std::string reason;
  // where it is not called as in the buffer: its name on the PFS, or by an output rule its path in
  // results-dir
  std::string placed_as;
  // errno of a failure, where it is known, or ECANCELED of what has no cause of its own (time was
  // up); not in the file
  int code = 0;
  // It took the place of something that was neither an input of the job nor its own earlier result.
  bool replaced = false;
  // copied while it could be written to: what was copied is no state that the file ever had, for
  // all we know
  bool unverified = false;
  // the buffer has lost its content, or cannot read it: no retry brings it before that is mended
  bool unreadable = false;
  std::string evidence;  // of a salvage: "verified" or "as-found"
};

/// What became of an item, with its name, size and time.
ReceiptEntry receipt_entry(const fs::WalkItem& item, Action action, std::string reason);

/// complete: nothing failed. partial: some results are not back. failed: none of those that should
/// be.
enum class Verdict : std::uint8_t { complete, partial, failed };
const char* name_of(Verdict verdict);

struct ReceiptTotals {
  std::uint64_t staged_out = 0, unchanged = 0, kept = 0, dropped = 0, skipped = 0, failed = 0,
                conflict = 0, not_saved = 0, removed = 0;
  std::uint64_t replaced = 0;  // of staged_out
  std::uint64_t bytes_staged_out = 0;
  std::uint64_t bytes_left = 0;  // failed, conflict and not-saved: only the buffer has them
};

/// What the stage-in of the instance brought, and how much of it came from the cache of inputs.
struct StagedIn {
  std::uint64_t files = 0, bytes = 0;
  std::uint64_t files_reused = 0, bytes_reused = 0;
  // that the job took away before, in an earlier life of the instance
  std::uint64_t files_away = 0;
  std::vector<PlanSkip> skipped;
};

struct Receipt {
  std::string job;
  std::string results_dir;
  Nanoseconds started = 0;  // wall clock
  Nanoseconds ended = 0;
  Verdict verdict = Verdict::complete;
  std::string reason;         // why nothing could be done; "" elsewhere
  bool read_back = false;     // checksums were compared with what the PFS gave back
  std::uint64_t retries = 0;  // repeated calls to the PFS
  std::string note;           // where it comes from, if not from a running instance
  // how what is left comes out, without the name of the job
  std::string way_out = "retry: efs stop";
  /// not-saved, counted and not among the entries: time was up, and there are too many to name
  std::uint64_t unlisted = 0, unlisted_bytes = 0;
  // of what is left: the buffer has not got it any more, and there is no way out; not in the file
  std::uint64_t lost = 0;
  std::optional<StagedIn> staged_in;  // where the process that staged in is the one that stages out
  ReceiptTotals totals;
  std::vector<ReceiptEntry> entries;  // byte order of paths
};

/// Adds the entry. A not-saved one is only counted if `most` of them are listed. `not_tried`: their
/// number so far.
void add_or_count(Receipt& receipt, ReceiptEntry entry, std::size_t& not_tried, std::size_t most);

/// Sorts the entries and derives totals and verdict from them (and from `reason` and `unlisted`).
void settle(Receipt& receipt);

/// Of one that could not even begin, or ended with an exception.
Receipt failed_receipt(const config::JobConfig& config, std::string reason);

/// Results whose content the buffer cannot read.
std::uint64_t count_unreadable(const Receipt& receipt);

/// 0 complete, 3 some files failed, 1 nothing could be done.
int exit_code(const Receipt& receipt);

/// Of each kind in a text for people: where a receipt has all, and where there is none (bounded by
/// what an answer can hold).
inline constexpr std::size_t names_shown = 5, names_shown_without_receipt = 2000;

/// "format": "efs-receipt-1". Names that are not UTF-8: base/json_text.hpp.
nlohmann::json to_json(const Receipt& receipt);

/// An entry of it, in one line; and that read again: none where it is no such line.
std::string entry_text(const ReceiptEntry& entry);
std::optional<ReceiptEntry> entry_of(const nlohmann::json& json);

/// For people: totals, and by name every file that is not back and why, at most `names` of each
/// kind.
std::string describe(const Receipt& receipt, std::size_t names = names_shown);

/// Writes the JSON to `path`: a partial beside it, fsync, rename, fsync of the directory. On an
/// error `path` is as it was before (after a failed fsync of the directory: new, but perhaps not
/// durable) and the partial is gone, unless removing it failed too. What lies under the partial's
/// name is no result of this receipt, and is removed without being opened. `partial_tag`: as of the
/// results.
Status write_receipt(const Receipt& receipt, const std::string& path, PfsIo& pfs,
                     const std::string& partial_tag = {});

}  // namespace efs::stage
