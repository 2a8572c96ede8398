#pragma once
// The metadata journal: checksummed records in order, on a Medium. Knows bytes and order; what a
// record means is the file system's business. Format and ordering rules: src/store/README.md.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "store/instance_id.hpp"
#include "store/medium.hpp"

namespace efs::store {

/// A record as it was appended.
struct Record {
  std::uint64_t sequence = 0;  // 1, 2, 3, ... without gaps over the life of the instance
  std::uint64_t request = 0;   // the FUSE request that it answers; 0: none
  std::span<const std::byte> payload;
};

using Replay = std::function<Status(const Record&)>;

/// How a replay ended.
struct ReplayEnd {
  std::uint64_t first_sequence = 1;
  std::uint64_t sequence = 0;  // of the last good record
  std::uint64_t records = 0;   // good ones
  std::uint64_t tail = 0;      // bytes: where the next record goes
  std::uint64_t size = 0;      // bytes of the file
  // something is behind the last good record: a store that power loss caught, or damage
  bool torn = false;
  InstanceId instance;  // whose it is, by its own word
  // the last record that was in it when it got its name, when the store was left, or, while the
  // machine was up, when it died
  std::uint64_t complete_to = 0;
  bool incomplete = false;  // it ends before that: neither a death nor power loss leaves that
  // torn, and good records lie behind that: no death of ours leaves that, power loss may
  bool followed = false;
  // what does not verify has a length, which is stored last: no death of ours leaves that, power
  // loss may
  bool spoilt = false;
  // followed, and what does not verify had survived power loss before those records were: nothing
  // leaves that
  bool settled = false;
  // the file ends within a chunk that has records, or where another one is to follow: nor does one
  // leave that
  bool cut_short = false;
};

struct JournalOptions {
  bool after_power_loss = true;  // else what no death of ours leaves is damage
  // false breaks R2, for the crash tests: checksums are not looked at
  bool verify = true;
  InstanceId instance;  // of the store: a journal of another one is refused
  // the last record that was durable when the store was left: one that ends before it is refused
  std::uint64_t complete_to = 0;
};

/// Not thread-safe: the caller's namespace lock orders appends (and so the sequence).
class Journal {
 public:
  static constexpr std::size_t max_payload = 256 * 1024;  // bytes

  /// An empty journal named `name` (EEXIST if there is one): made beside it and renamed when it is
  /// whole and durable.
  static Result<Journal> create(std::shared_ptr<Medium> medium, const std::string& name,
                                const InstanceId& instance = {});

  /// An existing journal: calls `replay` for every record that verifies, in order, and stops at the
  /// first that does not (rule R2). What lies behind that is cleared, durably, before this returns:
  /// a record of before must never verify behind one of after. A snapshot that was not finished is
  /// removed. Appends continue there, without a reserve until set_reserve(). EPROTO with a text
  /// where the header is not ours or `replay` refuses a record. EUCLEAN where the journal is
  /// another instance's, ends before it is complete, or is cut short, or what does not verify was
  /// whole once, and no power loss can explain that: then nothing is changed.
  static Result<Journal> open(std::shared_ptr<Medium> medium, const std::string& name,
                              const Replay& replay, const JournalOptions& options = {});

  /// The same without changing a byte; damage is told in the answer.
  static Result<ReplayEnd> scan(Medium& medium, const std::string& name, const Replay& replay,
                                const JournalOptions& options = {});

  /// Appends and, on persistent memory, persists: when it returns the record survives what the
  /// store survives. `reserve` changes what is kept back for later releases: a record that creates
  /// a name passes what its removal will need, a removal passes the negative. A record that
  /// releases never fails for want of space. ENOSPC: nothing was appended. `durable`: as far as is
  /// known, all records up to that one survive power loss; 0: nothing is known.
  Status append(std::uint64_t request, std::span<const std::byte> payload, std::int64_t reserve,
                std::uint64_t durable = 0);

  /// What is kept back from now on, allocated on return. ENOSPC: as much as there is.
  Status set_reserve(std::uint64_t bytes);

  /// Returns when all records survive power loss, where the store can promise that.
  Status sync() { return file_->sync(); }

  /// For a sync without the namespace lock: when `file->sync()` has returned, every record up to
  /// `sequence` survives.
  struct SyncPoint {
    std::shared_ptr<MediumFile> file;
    std::uint64_t sequence = 0;
  };

  SyncPoint sync_point() const { return {file_, sequence_}; }

  /// Bytes of records so far: what a snapshot compares with.
  std::uint64_t size() const { return end_.tail; }

  std::uint64_t sequence() const { return sequence_; }

  /// Records in the file: the snapshot's, and what followed.
  std::uint64_t records() const { return sequence_ + 1 - end_.first_sequence; }

  /// How the replay of open() ended.
  const ReplayEnd& replayed() const { return replayed_; }

  /// Writes a new journal by `write` (which appends the whole state to it), makes it durable and
  /// switches to it by one rename (R5). On failure the old journal stays in force; `switched` says
  /// if the failure came after the switch, so that power loss may bring the old one back.
  Status replace(const std::function<Status(Journal&)>& write, bool* switched = nullptr);

  /// What a record of `payload` bytes takes in the file.
  static std::uint64_t record_size(std::size_t payload);

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
  Status expect(Medium& medium, const JournalOptions& options);
  void open_last();
  void note_last();
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
  std::byte* last_ = nullptr;   // where the last record's number is noted; null: nowhere
  std::byte* chunk_ = nullptr;  // the mapped chunk
  std::uint64_t chunk_index_ = 0;
  std::uint64_t allocated_ = 0;  // end of the space that is ours, bytes
  std::uint64_t reserved_ = 0;   // bytes kept back for releases
  std::uint64_t sequence_ = 0;   // of the last record
  // a snapshot that nobody reads before it is whole: no drain per record
  bool batch_ = false;
  ReplayEnd end_;  // tail: where the next record goes
  ReplayEnd replayed_;
  std::vector<std::byte> scratch_;  // a record in one piece
};

}  // namespace efs::store
