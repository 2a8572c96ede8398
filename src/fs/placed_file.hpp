// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The file `meta/placed` of a store: events of the ledger.
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

namespace efs::fs {

inline constexpr const char* placed_name = "placed";

class PlacedFile final : public ledger::Log {
 public:
  /// Opens the file of the store with this metadata directory, which is borrowed. Makes a missing
  /// one. Opens a file without write permission for reading.
  static Result<std::unique_ptr<PlacedFile>> open(int metadata);

  void read(const std::function<void(const ledger::Ledger&)>& look) const override;
  Status append(const std::function<std::vector<ledger::Event>(const ledger::Ledger&)>& make,
                std::optional<Nanoseconds> since) override;
  Status sync() override;

 private:
  struct Record;

  PlacedFile(UniqueFd fd, int metadata);
  static Record record_of(const ledger::Event& event);
  Status load();
  Result<bool> read_records(bool is_empty) EFS_REQUIRES(mutex_);
  bool apply_read(std::span<const Record> records) EFS_REQUIRES(mutex_);
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
