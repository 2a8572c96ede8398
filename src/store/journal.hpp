#pragma once
// The metadata journal: a file of checksummed records, mapped and persisted with libpmem. Knows bytes and order;
// what a record means is the file system's business. Format and ordering rules: src/store/README.md.

#include <cstdint>
#include <functional>
#include <span>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace efs::store {

/// A record as it was appended.
struct Record {
  std::uint64_t sequence = 0;  // 1, 2, 3, ... without gaps over the life of the instance
  std::uint64_t request = 0;   // the FUSE request that it answers; 0: none
  std::span<const std::byte> payload;
};

/// Not thread-safe: the caller's namespace lock orders appends (and so the sequence).
class Journal {
 public:
  static constexpr std::size_t max_payload = 256 * 1024;  // bytes

  /// An empty journal named `name` in `directory` (EEXIST if there is one).
  static Result<Journal> create(int directory, const std::string& name);

  /// An existing journal: calls `replay` for every record that verifies, in order, and stops at the first that does
  /// not (rule R2); appends continue there. EPROTO with a text where the header is not ours.
  static Result<Journal> open(int directory, const std::string& name, const std::function<Status(const Record&)>& replay);

  Journal(Journal&&) noexcept;
  Journal& operator=(Journal&&) noexcept;
  ~Journal();

  /// Appends and, on byte-granular stores, persists: when it returns the record survives what the store survives.
  /// `reserve` changes what is kept back for later releases: a record that creates a name passes what its removal
  /// will need, a removal passes the negative. A record that releases never fails for want of space.
  /// ENOSPC: nothing was appended.
  Status append(std::uint64_t request, std::span<const std::byte> payload, std::int64_t reserve);

  /// Returns when all records survive power loss, where the store can promise that.
  Status sync();

  /// fsync(2) of it does what sync() does, and needs no lock. Borrowed: replace() closes it.
  int descriptor() const { return fd_.get(); }

  /// Bytes of records so far: what a snapshot compares with.
  std::uint64_t size() const { return tail_; }
  std::uint64_t sequence() const { return sequence_; }

  /// Writes a new journal by `write` (which appends the whole state to it) and switches to it by one rename (R5).
  /// On failure the old journal stays in force.
  Status replace(const std::function<Status(Journal&)>& write);

  /// What a record of `payload` bytes takes in the file.
  static std::uint64_t record_size(std::size_t payload);

 private:
  Journal() = default;
  Status grow(std::uint64_t wanted_end);
  Status map_chunk(std::uint64_t index);
  void unmap();
  void put(std::span<const std::byte> bytes, std::uint64_t at);
  Status replay_all(const std::function<Status(const Record&)>& replay);

  int directory_ = -1;  // borrowed
  std::string name_;
  UniqueFd fd_;
  std::byte* chunk_ = nullptr;       // the mapped chunk
  std::uint64_t chunk_index_ = 0;
  bool pmem_ = false;
  std::uint64_t allocated_ = 0;      // end of the space that is ours, bytes
  std::uint64_t tail_ = 0;           // where the next record goes
  std::uint64_t reserved_ = 0;       // bytes kept back for releases
  std::uint64_t sequence_ = 0;       // of the last record
};

}  // namespace efs::store
