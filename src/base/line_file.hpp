// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A file of lines that many threads append to, for traces and event logs. A LineFile never disturbs
// the work it describes: an append waits for no file. After an error the LineFile writes nothing
// more, and failure() returns the reason.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/mutex.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace efs {

/// Thread-safe. A background thread writes the appended lines within a second. If no thread can be
/// started, flush() writes them, or append() once there are many.
class LineFile {
 public:
  /// Opens `path` for appending and keeps its content. Accepts only a regular file, and follows no
  /// symbolic link. `header` is the first line that this object writes. `most` is the size limit in
  /// bytes; 0 means no limit. With a limit, a file of half that size is renamed to PATH.1,
  /// replacing an older one, and a new file is begun.
  static Result<std::unique_ptr<LineFile>> open(const std::string& path, std::string_view header,
                                                std::uint64_t most = 0);
  /// The same without opening `path` now. The thread, or flush(), retries each second until the
  /// file opens. The object buffers lines until the first failure to open, at most 1 MiB.
  static std::unique_ptr<LineFile> open_later(const std::string& path, std::string_view header,
                                              std::uint64_t most = 0);
  /// Writes the remaining lines and waits for the write.
  ~LineFile();

  /// Appends `line`, without its newline. Drops the line while 16 MiB wait for a slow file.
  void append(std::string_view line);
  /// Waits until all appended lines are in the file.
  void flush();
  /// The error that ended the writing, or that prevents its start; ok if there is none.
  Status failure() const;
  bool is_open() const;

  /// Without a thread, the caller must flush() now and then.
  bool has_thread() const { return has_thread_; }

  /// The number of lines that were dropped because the file was not open yet or too slow.
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
  bool buffer(std::string_view line) EFS_REQUIRES(mutex_);
  Status rotate() EFS_REQUIRES(file_mutex_);
  Status write_out(std::string_view lines) EFS_REQUIRES(file_mutex_);
  Status put(std::string_view text) EFS_REQUIRES(file_mutex_);

  const std::string path_, header_;
  const std::uint64_t most_;
  Mutex file_mutex_;  // rank 89: held during writes to the file, which may hang
  UniqueFd fd_ EFS_GUARDED_BY(file_mutex_);
  std::uint64_t size_ EFS_GUARDED_BY(file_mutex_) = 0;  // of the file, bytes
  mutable Mutex mutex_;                                 // rank 90
  Condition changed_;
  std::string buffer_ EFS_GUARDED_BY(mutex_);
  Status failure_ EFS_GUARDED_BY(mutex_);
  std::uint64_t lost_ EFS_GUARDED_BY(mutex_) = 0;  // lines
  bool is_due_ EFS_GUARDED_BY(mutex_) = false;     // the file is still to be opened
  bool is_open_ EFS_GUARDED_BY(mutex_) = false;
  bool is_told_ EFS_GUARDED_BY(mutex_) = false;  // the thread knows that there is much to write
  bool ended_ EFS_GUARDED_BY(mutex_) = false;
  bool has_thread_ = false;  // constant after open() or open_later()
  std::jthread thread_;      // last: it uses the members above
};

/// Returns `text` as one line without `separator`. Control characters, backslashes and the
/// separator become \NNN (octal), as in /proc/mounts.
std::string escape_line(std::string_view text, char separator);

}  // namespace efs
