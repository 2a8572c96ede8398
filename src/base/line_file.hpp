#pragma once
// A file of lines that many threads append to, for traces and logs of events. It must never disturb what it describes:
// after an error nothing more is written, and failure() says why.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace efs {

/// Thread-safe. Buffered: what was appended is in the file after flush() and at the end.
class LineFile {
 public:
  /// Opens `path` for appending; what is there stays. Only a regular file is taken, and no symbolic link. `header` is
  /// the first line of what we write. `most`: bytes, 0 for no bound; with one, a file of half that size is renamed to
  /// PATH.1, in the place of an older one, and a new one begun.
  static Result<std::unique_ptr<LineFile>> open(const std::string& path, std::string_view header, std::uint64_t most = 0);
  /// The same without a look at `path`: each flush() tries to open it until it succeeds, while nobody who appends waits for that. Lines are
  /// kept for it until the first time that it fails, and 1 MiB of them at most.
  static std::unique_ptr<LineFile> open_later(const std::string& path, std::string_view header, std::uint64_t most = 0);
  ~LineFile();

  /// `line` without its newline.
  void append(std::string_view line);
  void flush();
  /// What ended the writing, or why it has not begun; a Status of ok while all is well.
  Status failure() const;
  bool is_open() const;
  const std::string& path() const { return path_; }

 private:
  LineFile(std::string path, std::string_view header, std::uint64_t most) : path_(std::move(path)), header_(header), most_(most) {}
  static Result<UniqueFd> open_path(const std::string& path, std::uint64_t& size);
  Status open_file() EFS_REQUIRES(mutex_);
  void take(UniqueFd fd, std::uint64_t size) EFS_REQUIRES(mutex_);
  void open_if_due();
  std::uint64_t most_buffered(std::uint64_t bytes) const;
  void rotate() EFS_REQUIRES(mutex_);
  void write_out() EFS_REQUIRES(mutex_);

  const std::string path_, header_;
  const std::uint64_t most_;
  mutable Mutex mutex_;  // rank 90
  UniqueFd fd_ EFS_GUARDED_BY(mutex_);
  std::string buffer_ EFS_GUARDED_BY(mutex_);
  std::uint64_t size_ EFS_GUARDED_BY(mutex_) = 0;  // of the file, bytes
  Status failure_ EFS_GUARDED_BY(mutex_);
  bool is_due_ EFS_GUARDED_BY(mutex_) = false;  // is yet to be opened
};

/// `text` on one line and without `separator`: control characters, backslashes and the separator become \NNN (octal), as
/// in /proc/mounts.
std::string escape_line(std::string_view text, char separator);

}  // namespace efs
