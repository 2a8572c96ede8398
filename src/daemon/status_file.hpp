// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The status file, which a scheduler can read without a request to the daemon. It is a complete
// JSON document at all times: the daemon writes a temporary file and renames it. efsd(8) describes
// the fields.

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>

#include "base/mutex.hpp"
#include "base/result.hpp"

namespace efs::daemon {

/// Writes the file in its own thread. Writes at once after poke(). Otherwise writes once a second
/// if the document has changed and its state is not "running".
class StatusFile {
 public:
  /// Returns the current document. The thread of the status file calls it; it may lock mutexes of
  /// rank 5 and above.
  using Snapshot = std::function<nlohmann::json()>;

  /// Writes the first document. `every_second` may be empty. Fails if the file cannot be written.
  /// The file gets `mode` less the umask.
  static Result<std::unique_ptr<StatusFile>> open(const std::string& path, Snapshot snapshot,
                                                  std::function<void()> every_second,
                                                  mode_t mode = 0600);
  /// The same for callers that must not block or fail because of the file. The thread calls
  /// `every_second` and writes the first document. It retries a failed write like any later one. If
  /// no thread can start, this is logged and only the last document is written.
  static std::unique_ptr<StatusFile> open_later(const std::string& path, Snapshot snapshot,
                                                std::function<void()> every_second,
                                                mode_t mode = 0600);
  /// Writes the last document.
  ~StatusFile();

  /// Reports a change. Does not block.
  void poke();

  const std::string& path() const { return path_; }

 private:
  StatusFile(std::string path, Snapshot snapshot, std::function<void()> every_second, mode_t mode)
      : path_(std::move(path)),
        snapshot_(std::move(snapshot)),
        every_second_(std::move(every_second)),
        mode_(mode) {}

  Status begin(bool with_the_others);
  Status write();
  bool write_or_say() noexcept;
  bool wait();
  void tick() noexcept;
  void work() noexcept;

  const std::string path_;
  const Snapshot snapshot_;
  const std::function<void()> every_second_;
  const mode_t mode_;
  nlohmann::json written_;   // used by the thread, after open()
  bool is_running_ = false;  // likewise: the state in the file
  bool failed_ = false;      // likewise: the failure is logged
  bool try_again_ = false;   // likewise: in one second
  Mutex mutex_;              // rank 90 (leaf)
  Condition changed_;
  bool poked_ EFS_GUARDED_BY(mutex_) = false;
  bool ended_ EFS_GUARDED_BY(mutex_) = false;
  std::jthread thread_;
};

/// Replaces `path` atomically with a file that contains `text`. Not durable: a status is useless
/// after a crash.
Status replace_file(const std::string& path, const std::string& text, mode_t mode = 0600);

}  // namespace efs::daemon
