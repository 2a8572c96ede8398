// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The results that unloads exported while the job ran. The receipt of the stop includes them, so it
// lists all exports of the job.

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "base/unique_fd.hpp"
#include "stage/export/receipt.hpp"

namespace efs::daemon {

/// Thread-safe. `book` is a file of JSON lines that passes the entries to a successor. It is never
/// synced. If it cannot be written or read, the successor's receipt lacks these entries. It is
/// written anew when most of its lines are out of date.
class Unloaded {
 public:
  /// The book is not written anew before it has so many lines.
  static constexpr std::size_t most_lines = 10'000;

  explicit Unloaded(std::string book) : path_(std::move(book)) {}

  /// Call this before all other functions. If `successor` is false, the file belongs to an earlier
  /// instance and is ignored.
  void inherit(bool successor);

  /// Records an unload. If a path was unloaded several times, its last entry counts.
  void remember(const stage::Receipt& unloaded);

  /// Records that these files were dropped from the buffer after their export.
  void remember_dropped(const std::vector<stage::ReceiptEntry>& dropped);

  /// Completes the entries of an export and adds entries for files that the export does not know.
  /// `has`: is the file still in the buffer? `dropped`: names that efs removed from the buffer,
  /// which the book may not know if the predecessor died. Reads the book of a predecessor: time and
  /// memory grow with its number of lines.
  void add_to(stage::Receipt& receipt, const std::function<bool(const std::string& path)>& has,
              const std::set<std::string>& dropped) const;

 private:
  using Entries = std::map<std::string, stage::ReceiptEntry>;
  Entries all() const EFS_REQUIRES(mutex_);
  void add(const std::vector<stage::ReceiptEntry>& entries) EFS_EXCLUDES(mutex_);
  void append(const std::string& lines) EFS_REQUIRES(mutex_);
  void write_anew() EFS_REQUIRES(mutex_);

  const std::string path_;
  mutable Mutex mutex_;  // rank 90 (leaf): the book is written under it
  UniqueFd book_ EFS_GUARDED_BY(mutex_);
  std::size_t lines_ EFS_GUARDED_BY(mutex_) = 0;  // of this process in the book
  bool has_past_ EFS_GUARDED_BY(mutex_) = false;
  Entries entries_ EFS_GUARDED_BY(mutex_);  // of this process only
};

}  // namespace efs::daemon
