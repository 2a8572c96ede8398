// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The proof that each byte which a record makes reachable was flushed and drained before (R1 of
// src/store/README.md). It observes the real medium and the real containers: the emulated
// persistent memory of other tests never loses an unflushed cache line, so a missing flush shows
// nowhere else. It is stricter than a file system with DAX: a sync does not replace the flush and
// the drain of a store into a mapping.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.hpp"
#include "fs/namespace.hpp"
#include "store/format.hpp"
#include "support/durable_calls.hpp"

namespace efs::test {

/// A call without its effect, to prove that the proof notices its absence.
struct FlushFault {
  enum class Kind : std::uint8_t {
    none,
    flush,   // a store is not flushed
    drain,   // a drain does not happen, for these files
    order,   // a store is flushed after the next drain, not before
    bypass,  // the log does not have a store
  };
  Kind kind = Kind::none;
  std::string file;       // the part of the path that selects files: "/meta/journal", "/data"
  std::uint64_t nth = 1;  // counted from 1
};

/// A file below the observed directory: what programs see of it by the log, and what power loss
/// leaves.
struct LoggedFile {
  static constexpr std::size_t line_bytes = 64;
  using LineBytes = std::array<char, line_bytes>;

  /// A cache line with stores that are not durable yet.
  struct Line {
    bool stored = false;   // since its last flush
    bool flushed = false;  // since the last drain
    LineBytes at_flush{};  // its bytes then
  };

  std::string path;
  std::string visible;  // by the logged calls
  std::string durable;  // without what may be lost; may be shorter than durable_size: zeros
  std::uint64_t durable_size = 0;
  std::map<std::uint64_t, Line> lines;  // by number
  UniqueFd real;                        // the mapped bytes
  std::uint64_t inode = 0;

  // of a journal
  std::uint64_t tail = sizeof(store::JournalHeader);
  std::uint64_t checked = 0;               // the bytes before were durable, and no record changes
  std::uint64_t sequence = 0;              // of the last record
  std::uint64_t length_at = 0;             // the last record whose early length was reported
  std::unique_ptr<fs::Namespace> names{};  // after its records

  bool is_live_journal() const { return path.ends_with("/meta/journal"); }

  bool is_journal() const { return is_live_journal() || path.ends_with("/meta/journal.new"); }
};

/// Observes a store below a directory: meta/journal, and the containers in data (in several
/// backends: */data). At most one may exist. The store must be empty when the observation begins.
class FlushProof {
 public:
  explicit FlushProof(std::string directory, FlushFault fault = {});

  FlushProof(const FlushProof&) = delete;
  FlushProof& operator=(const FlushProof&) = delete;

  /// The operation that runs now, for messages.
  void operation(std::string name) { operation_ = std::move(name); }

  /// An operation was answered: its records are durable.
  void answered();

  /// The content that the file `ino` has after power loss. A file that power loss may remove, or
  /// that has no content here, promises nothing.
  void promised(std::uint64_t ino, const std::string& content);

  /// Compares files with the log. A different byte was stored past libpmem. `all`: also far behind
  /// the last record of a journal.
  void compare(bool all);

  /// Writes below `to` the files that power loss leaves before the drain `nth` (counted from 1).
  /// Each word of a line that was not drained is there or not. image_record() then has the last
  /// record that was answered before.
  void keep_image(std::uint64_t nth, std::string to, std::uint64_t seed);

  std::optional<std::uint64_t> image_record() const { return image_record_; }

  /// From now on the calls are those of another store.
  void stop() { stopped_ = true; }

  /// The fault is repaired: later calls made the bytes durable before anything relied on them.
  bool is_healed() const { return exposed_by_fault_.empty(); }

  /// One violation a line; "" if there are none.
  const std::string& violations() const { return violations_; }

  struct Counts {
    std::uint64_t journal_stores = 0;  // into journals
    std::uint64_t container_stores = 0;
    std::uint64_t drains = 0;
    std::uint64_t records = 0;
    std::uint64_t reachable = 0;  // containers that a record made reachable
    std::uint64_t promises = 0;
    std::uint64_t fault_points = 0;  // calls that the fault could have removed
  };

  const Counts& counts() const { return counts_; }

 private:
  using Kind = DurableCall::Kind;

  void hear(const DurableCall& call);
  void store(LoggedFile& file, const DurableCall& call);
  void flush(LoggedFile& file, std::uint64_t offset, std::uint64_t length);
  void drain();
  void drain(LoggedFile& file);
  void write_image();
  void sync(LoggedFile& file);
  void change(LoggedFile& file, const DurableCall& call);
  void rename(const DurableCall& call);
  void read_records(LoggedFile& journal);
  void apply(LoggedFile& journal, std::span<const std::byte> payload);
  void check_record(const fs::Namespace& names, const fs::Record& record);
  void check_container(std::uint64_t id, const std::string& why);
  void check_journal(LoggedFile& journal, const std::string& why);
  /// The first byte before `size` that power loss may change, and the missing step; "" if none.
  static std::string exposed(const LoggedFile& file, std::uint64_t begin, std::uint64_t size);
  bool is_fault(FlushFault::Kind kind, const std::string& path);
  LoggedFile* find(const std::string& path);
  LoggedFile& file_at(const std::string& path);
  LoggedFile* container(std::uint64_t id);
  std::string container_name(std::uint64_t id) const;
  void violation(const std::string& what);

  const std::string directory_;
  const FlushFault fault_;
  std::uint64_t faults_ = 0;  // points of the fault so far
  // (file, line) that the fault left; without those that are durable now
  std::set<std::pair<const LoggedFile*, std::uint64_t>> exposed_by_fault_;
  std::map<std::string, std::shared_ptr<LoggedFile>> files_;  // by path; links share one
  std::vector<DurableCall> late_;  // flushes that the fault puts behind the next drain
  bool stopped_ = false;
  std::uint64_t answered_record_ = 0;
  std::uint64_t image_at_ = 0;  // number of a drain; 0: none
  std::string image_;           // directory
  std::mt19937_64 random_;      // of the image
  std::optional<std::uint64_t> image_record_;
  std::string operation_ = "start";
  std::string violations_;
  Counts counts_;
  DurableCalls calls_;  // last: it calls hear()
};

}  // namespace efs::test
