// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The file `meta/placed` of a store: events of the ledger that its journal does not have yet. A
// salvage writes them there, because it does not change the journal, which may be damaged, of an
// older format, or on a read-only file system. The next start puts them in the journal. An efs
// whose journal had no events of the ledger left all of them there.
//
// Format: records of 112 bytes in the machine's byte order, each with its XXH3-64. The first record
// says since when events may be missing because the buffer was full; a record that does not verify
// may have been of any name. The record of a directory has the versions of its attributes in the
// fields for a file's sizes, and its former shape in the other fields of the first version.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "ledger/log.hpp"
#include "store/medium.hpp"

namespace efs::fs {

inline constexpr const char* placed_name = "placed";

class PlacedFile final : public ledger::Log {
 public:
  /// Opens the file of the store with this metadata directory, which is borrowed. Makes a missing
  /// one, with room for events. Opens a file without write permission for reading. `before`: the
  /// ledger that the events follow.
  static Result<std::unique_ptr<PlacedFile>> open(int metadata, const ledger::Ledger& before = {});

  /// Visits the events of the file, if there is one, and a Missed if it is damaged.
  static Status events(store::Medium& medium,
                       const std::function<void(const ledger::Event&)>& visit);

  void read(const std::function<void(const ledger::Ledger&)>& look) const override;
  Status append(const std::function<std::vector<ledger::Event>(const ledger::Ledger&)>& make,
                std::optional<Nanoseconds> since) override;
  Status sync() override;

 private:
  struct Record;

  PlacedFile(UniqueFd fd, int metadata);
  /// Visits the events of the undamaged records. Returns true if all are undamaged, and if the
  /// first one of the file (`is_start`) is the head.
  static bool visit_events(std::span<const Record> records, bool is_start,
                           const std::function<void(const ledger::Event&)>& visit);
  static Record record_of(const ledger::Event& event);
  Status load(const ledger::Ledger& before);
  Result<bool> read_records(bool is_empty) EFS_REQUIRES(mutex_);
  Status append_one(const ledger::Event& event) EFS_REQUIRES(mutex_);
  Status write(const Record& record, std::uint64_t at) EFS_REQUIRES(mutex_);
  void record_missed(Nanoseconds since) EFS_REQUIRES(mutex_);
  void make_room() EFS_REQUIRES(mutex_);
  bool rewrite() EFS_REQUIRES(mutex_);
  std::vector<Record> records_that_count() const EFS_REQUIRES(mutex_);

  const int metadata_;  // borrowed from the store
  const std::uint64_t room_ahead_;
  mutable Mutex mutex_;  // rank 90 (leaf): guards all below
  UniqueFd fd_ EFS_GUARDED_BY(mutex_);
  ledger::Ledger ledger_ EFS_GUARDED_BY(mutex_);
  std::uint64_t records_ EFS_GUARDED_BY(mutex_) = 0;  // in the file
  std::uint64_t space_ EFS_GUARDED_BY(mutex_) = 0;    // bytes reserved for the file
  // since when events of this process are missing in the file
  std::optional<Nanoseconds> missed_since_ EFS_GUARDED_BY(mutex_);
};

}  // namespace efs::fs
