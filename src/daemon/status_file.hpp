#pragma once
// The status file: what a scheduler can read without asking the daemon. A whole JSON document at
// any moment: written beside it and renamed over it. efsd(8) describes its fields.

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>

#include "base/mutex.hpp"
#include "base/result.hpp"

namespace efs::daemon {

/// Writes on a thread of its own, at once after poke(), and else once a second where something has
/// changed while the document's state is another one than "running".
class StatusFile {
 public:
  /// The document now; called on the thread, may take locks of rank 5 and above.
  using Snapshot = std::function<nlohmann::json()>;

  /// `every_second` may be empty. Writes the first document. An error: the place cannot be written.
  /// `mode` less the umask.
  static Result<std::unique_ptr<StatusFile>> open(const std::string& path, Snapshot snapshot,
                                                  std::function<void()> every_second,
                                                  mode_t mode = 0600);
  /// The same for whoever must not wait for the place, nor fail for it: `every_second` is called
  /// and the first document written on the thread, and tried again like any later one. Without a
  /// thread, which is said in the log, there is the last document only.
  static std::unique_ptr<StatusFile> open_later(const std::string& path, Snapshot snapshot,
                                                std::function<void()> every_second,
                                                mode_t mode = 0600);
  /// Writes the last document.
  ~StatusFile();

  /// Something has changed. Waits for nothing.
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
  nlohmann::json written_;   // of the thread, after open()
  bool is_running_ = false;  // likewise: the state that it tells
  bool failed_ = false;      // likewise: it was said in the log
  bool try_again_ = false;   // likewise: in a second
  Mutex mutex_;              // rank 90 (leaf)
  Condition changed_;
  bool poked_ EFS_GUARDED_BY(mutex_) = false;
  bool ended_ EFS_GUARDED_BY(mutex_) = false;
  std::jthread thread_;
};

/// Replaces `path` by a file that holds `text`, whole or not at all. Not durable: a status is of no
/// use after a crash.
Status replace_file(const std::string& path, const std::string& text, mode_t mode = 0600);

}  // namespace efs::daemon
