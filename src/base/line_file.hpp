#pragma once
// A file of lines that many threads append to, for traces and logs of events. It must never disturb
// what it describes: who appends waits for no file, and after an error nothing more is written, and
// failure() says why.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/mutex.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace efs {

/// Thread-safe. A thread of its own writes what was appended, within a second; without one, where
/// none can be had, flush() does, or who appends when there is much of it.
class LineFile {
 public:
  /// Opens `path` for appending; what is there stays. Only a regular file is taken, and no symbolic
  /// link. `header` is the first line of what we write. `most`: bytes, 0 for no bound; with one, a
  /// file of half that size is renamed to PATH.1, in the place of an older one, and a new one
  /// begun.
  static Result<std::unique_ptr<LineFile>> open(const std::string& path, std::string_view header,
                                                std::uint64_t most = 0);
  /// The same without a look at `path`: it is tried again each second, or flush(), until it can be
  /// opened. Lines are kept for it until the first time that it fails, and 1 MiB of them at most.
  static std::unique_ptr<LineFile> open_later(const std::string& path, std::string_view header,
                                              std::uint64_t most = 0);
  /// Writes what is left, and waits for that.
  ~LineFile();

  /// `line` without its newline. Lost where 16 MiB wait for a file that takes them too slowly.
  void append(std::string_view line);
  /// Waits until what was appended is in the file.
  void flush();
  /// What ended the writing, or why it has not begun; a Status of ok while all is well.
  Status failure() const;
  bool is_open() const;

  /// Else somebody has to flush() it now and then.
  bool has_thread() const { return has_thread_; }

  /// How many lines were lost, for it was not open yet, or took them too slowly.
  std::uint64_t lost() const;

  const std::string& path() const { return path_; }

 private:
  LineFile(std::string path, std::string_view header, std::uint64_t most)
      : path_(std::move(path)), header_(header), most_(most) {}

  static Result<UniqueFd> open_path(const std::string& path, std::uint64_t& size);
  void begin();
  void work() noexcept;
  bool wait();
  Status open_file() EFS_REQUIRES(file_mutex_);
  void take(UniqueFd fd, std::uint64_t size) EFS_REQUIRES(file_mutex_);
  void open_if_due();
  std::uint64_t most_buffered(std::uint64_t bytes) const;
  Status rotate() EFS_REQUIRES(file_mutex_);
  Status write_out(std::string_view lines) EFS_REQUIRES(file_mutex_);
  Status put(std::string_view text) EFS_REQUIRES(file_mutex_);

  const std::string path_, header_;
  const std::uint64_t most_;
  Mutex file_mutex_;  // rank 89: held while the file is written to, which may hang
  UniqueFd fd_ EFS_GUARDED_BY(file_mutex_);
  std::uint64_t size_ EFS_GUARDED_BY(file_mutex_) = 0;  // of the file, bytes
  mutable Mutex mutex_;                                 // rank 90
  Condition changed_;
  std::string buffer_ EFS_GUARDED_BY(mutex_);
  Status failure_ EFS_GUARDED_BY(mutex_);
  std::uint64_t lost_ EFS_GUARDED_BY(mutex_) = 0;  // lines
  bool is_due_ EFS_GUARDED_BY(mutex_) = false;     // is yet to be opened
  bool is_open_ EFS_GUARDED_BY(mutex_) = false;
  bool is_told_ EFS_GUARDED_BY(mutex_) = false;  // the thread: that there is much to be written
  bool ended_ EFS_GUARDED_BY(mutex_) = false;
  bool has_thread_ = false;  // after open() or open_later() it does not change
  std::jthread thread_;      // last: it uses the others
};

/// `text` on one line and without `separator`: control characters, backslashes and the separator
/// become \NNN (octal), as in /proc/mounts.
std::string escape_line(std::string_view text, char separator);

}  // namespace efs
