// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The metadata journal: checksummed records in order, on a Medium. This layer handles bytes and
// order; the file system interprets the records. src/store/README.md has the format and the
// ordering rules.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "store/format.hpp"
#include "store/instance_id.hpp"
#include "store/medium.hpp"

namespace efs::store {

/// An appended record.
struct Record {
  std::uint64_t sequence = 0;  // 1, 2, 3, ... without gaps over the life of the store
  std::uint64_t request = 0;   // the FUSE request that caused it; 0: none
  std::span<const std::byte> payload;
  std::uint32_t version = journal_version;  // of its journal
};

using Replay = std::function<Status(const Record&)>;

/// The result of a replay.
struct ReplayEnd {
  std::uint64_t first_sequence = 1;
  std::uint64_t sequence = 0;               // of the last good record
  std::uint64_t records = 0;                // number of good records
  std::uint64_t tail = 0;                   // bytes: the position of the next record
  std::uint64_t size = 0;                   // bytes of the file
  std::uint32_t version = journal_version;  // of the format
  // data follows the last good record: power loss during a write, or damage
  bool torn = false;
  // good records that the caller's replay skipped: of a newer efs, which allows it. The caller
  // counts
  std::uint64_t skipped = 0;
  InstanceId instance;  // the owner, according to the header
  // the last record when the journal got its name or the store was left; or, if the machine still
  // runs since, when the instance died
  std::uint64_t complete_to = 0;
  bool incomplete = false;  // it ends before that record: neither a crash nor power loss explains
                            // this
  // torn, and good records follow: a crash does not explain this, power loss may
  bool followed = false;
  // the record that does not verify has a length, which is stored last: a crash does not explain
  // this, power loss may
  bool spoilt = false;
  // followed, and the record that does not verify was durable before the later records were
  // written: nothing explains this
  bool settled = false;
  // the file ends inside a chunk with records, or where another chunk must follow: nothing explains
  // this
  bool cut_short = false;
};

struct JournalOptions {
  bool after_power_loss = true;  // false: anything that a crash does not explain is damage
  // false breaks R2, for the crash tests: checksums are ignored
  bool verify = true;
  InstanceId instance;  // of the store: another store's journal is rejected
  // the last durable record when the store was left: a journal that ends earlier is rejected
  std::uint64_t complete_to = 0;
};

/// Not thread-safe: the caller's namespace lock orders the appends, and so the sequence.
class Journal {
 public:
  static constexpr std::size_t max_payload = 256 * 1024;  // bytes

  /// Creates an empty journal named `name` (EEXIST if it exists): under another name, and renamed
  /// once it is complete and durable.
  static Result<Journal> create(std::shared_ptr<Medium> medium, const std::string& name,
                                const InstanceId& instance = {});

  /// Opens an existing journal. Calls `replay` for every record that verifies, in order, and stops
  /// at the first that does not (rule R2). Clears the data behind it, durably, before this returns:
  /// an old record must never verify behind a new one. Removes an unfinished snapshot. Appends
  /// continue at the end, without a reserve until set_reserve().
  ///
  /// EPROTO with a text if the header is invalid. EPROTONOSUPPORT with a text, and nothing changed,
  /// if the format is not one that this efs reads. The error of `replay` if it rejects a record,
  /// before anything is removed or overwritten. EUCLEAN, with
  /// nothing changed, in these cases: the journal belongs to another instance; it ends too early or
  /// is cut short; or a record that does not verify was complete once, and power loss cannot
  /// explain this.
  static Result<Journal> open(std::shared_ptr<Medium> medium, const std::string& name,
                              const Replay& replay, const JournalOptions& options = {});

  /// As open(), but changes nothing. Reports damage in the result.
  static Result<ReplayEnd> scan(Medium& medium, const std::string& name, const Replay& replay,
                                const JournalOptions& options = {});

  /// Appends a record. On persistent memory, the record is durable on return, as far as the store
  /// is. `reserve` changes the space reserved for later releases: a record that creates a name
  /// passes the space that its removal will need, and a removal passes the negative. A record that
  /// releases space never fails for lack of space. ENOSPC: nothing was appended. `durable`: all
  /// records up to this one are known to survive power loss; 0: unknown. EPROTO in a journal of an
  /// older version: replace() makes one of the present version.
  Status append(std::uint64_t request, std::span<const std::byte> payload, std::int64_t reserve,
                std::uint64_t durable = 0);

  /// Sets the reserved space; allocated on return. ENOSPC: as much as possible is reserved.
  Status set_reserve(std::uint64_t bytes);

  /// Bytes that are reserved for later releases.
  std::uint64_t reserve() const { return reserved_; }

  /// Returns when all records survive power loss, as far as the store can promise this.
  Status sync() { return file_->sync(); }

  /// For a sync without the namespace lock: once `file->sync()` has returned, every record up to
  /// `sequence` is durable.
  struct SyncPoint {
    std::shared_ptr<MediumFile> file;
    std::uint64_t sequence = 0;
  };

  SyncPoint sync_point() const { return {file_, sequence_}; }

  /// Bytes of records so far, for comparison with the size of a snapshot.
  std::uint64_t size() const { return end_.tail; }

  std::uint64_t sequence() const { return sequence_; }

  /// Records in the file: those of the snapshot and later ones.
  std::uint64_t records() const { return sequence_ + 1 - end_.first_sequence; }

  /// The result of the replay in open().
  const ReplayEnd& replayed() const { return replayed_; }

  /// Writes a new journal by `write` (which appends the whole state), makes it durable, and
  /// switches to it by one rename (R5). On failure the old journal stays in use. `switched` is set
  /// if the failure came after the rename; power loss may then restore the old journal.
  Status replace(const std::function<Status(Journal&)>& write, bool* switched = nullptr);

  /// Returns the bytes that a record with `payload` bytes uses in the file.
  static std::uint64_t record_size(std::size_t payload);

  /// Returns the bytes of the file of a journal whose records use `records` bytes, with this
  /// reserve. A journal of several chunks may need one more, for what its records leave at their
  /// ends.
  static std::uint64_t file_size(std::uint64_t records, std::uint64_t reserve);

 private:
  Journal() = default;
  static Result<Journal> make_beside(std::shared_ptr<Medium> medium, const std::string& name,
                                     std::uint64_t first_sequence, const InstanceId& instance);
  Status take_the_name(bool* switched);
  Status write_header(std::uint64_t complete_to);
  Status grow(std::uint64_t wanted_end);
  Status map_chunk(std::uint64_t index);
  void put(std::span<const std::byte> bytes, std::uint64_t at);
  Status read_header();
  Status replay_all(const Replay& replay, bool verify = true);
  Status check_version(const JournalHeader& header) const;
  Status expect(Medium& medium, const JournalOptions& options);
  void open_last();
  void record_last();
  Status refuse_other(const InstanceId& instance) const;
  Status refuse_damage(bool after_power_loss) const;
  std::unexpected<Error> refuse_cut() const;
  Result<bool> ends_in_records();
  Status look_behind_tail();
  std::uint64_t later_record(std::uint64_t within);
  Status clear_behind_tail();

  std::shared_ptr<Medium> medium_;
  std::string name_;
  std::shared_ptr<MediumFile> file_;
  std::shared_ptr<MediumFile> last_file_;
  std::byte* last_ = nullptr;   // the mapped number of the last record; null: not recorded
  std::byte* chunk_ = nullptr;  // the mapped chunk
  std::uint64_t chunk_index_ = 0;
  std::uint64_t allocated_ = 0;  // end of the allocated space, bytes
  std::uint64_t reserved_ = 0;   // bytes reserved for releases
  std::uint64_t sequence_ = 0;   // of the last record
  // writing a snapshot that has no reader before it is complete: no drain per record
  bool batch_ = false;
  ReplayEnd end_;  // tail: the position of the next record
  ReplayEnd replayed_;
  std::vector<std::byte> scratch_;  // buffer for one contiguous record
};

}  // namespace efs::store
