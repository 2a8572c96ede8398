#pragma once
// What unloads have brought out while the job ran, for the receipt of the stop, which tells the
// whole story.

#include <functional>
#include <map>
#include <string>

#include "base/mutex.hpp"
#include "base/unique_fd.hpp"
#include "stage/export/receipt.hpp"

namespace efs::daemon {

/// Thread-safe. Known to this process, and by `book`, a file of JSON lines that nobody syncs, to
/// one that takes over from it; where that cannot be written, or read, the successor's receipt has
/// less.
class Unloaded {
 public:
  explicit Unloaded(std::string book) : path_(std::move(book)) {}

  /// To be called before anything else. `successor` false: what the file says is of an instance
  /// that is gone.
  void inherit(bool successor);

  /// The last of each path counts.
  void remember(const stage::Receipt& unloaded);

  /// Completes the entries of a stage-out, and adds those of what it does not know. `has`: is it in
  /// the buffer still? Reads what a predecessor wrote: takes time and memory by the number of
  /// lines.
  void add_to(stage::Receipt& receipt,
              const std::function<bool(const std::string& path)>& has) const;

 private:
  using Entries = std::map<std::string, stage::ReceiptEntry>;
  Entries all() const;

  const std::string path_;
  mutable Mutex mutex_;  // rank 90 (leaf): a line is written under it
  UniqueFd book_ EFS_GUARDED_BY(mutex_);
  bool has_past_ EFS_GUARDED_BY(mutex_) = false;
  Entries entries_ EFS_GUARDED_BY(mutex_);  // of this process
};

}  // namespace efs::daemon
