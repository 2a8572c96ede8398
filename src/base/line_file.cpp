// SPDX-License-Identifier: BSD-3-Clause
#include "base/line_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <new>
#include <utility>

#include "base/thread.hpp"

namespace efs {
namespace {

constexpr std::size_t much = 64u << 10;          // bytes: more is written at once
constexpr std::size_t waiting_bytes = 1u << 20;  // limit while the file is not open yet
constexpr std::size_t most_bytes = 16u << 20;    // limit while the file accepts no data
constexpr auto interval = std::chrono::seconds(1);

}  // namespace

Result<std::unique_ptr<LineFile>> LineFile::open(const std::string& path, std::string_view header,
                                                 std::uint64_t most) {
  std::unique_ptr<LineFile> file(new LineFile(path, header, most));
  {
    const MutexLock writing(file->file_mutex_);
    EFS_TRY(file->open_file());
  }
  file->begin();
  return file;
}

std::unique_ptr<LineFile> LineFile::open_later(const std::string& path, std::string_view header,
                                               std::uint64_t most) {
  std::unique_ptr<LineFile> file(new LineFile(path, header, most));
  {
    const MutexLock lock(file->mutex_);
    file->is_due_ = true;
  }
  file->begin();
  return file;
}

LineFile::~LineFile() {
  {
    const MutexLock lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
  flush();
}

void LineFile::begin() {
  auto thread = start_thread([this] { work(); });
  if (!thread) {
    return;
  }
  thread_ = std::move(*thread);
  has_thread_ = true;
}

void LineFile::work() noexcept {
  while (wait()) {
    try {
      flush();
    } catch (const std::bad_alloc&) {  // retry next time
    }
  }
}

// Waits until there is work; an idle node causes no wakeups. Returns false at the end.
bool LineFile::wait() {
  const MutexLock lock(mutex_);
  while (!ended_ && buffer_.empty() && !is_due_) {
    changed_.wait(mutex_);
  }
  for (const auto end = std::chrono::steady_clock::now() + interval; !ended_ && !is_told_;) {
    if (!changed_.wait_until(mutex_, end)) {
      break;
    }
  }
  is_told_ = false;
  return !ended_;
}

Result<UniqueFd> LineFile::open_path(const std::string& path, std::uint64_t& size) {
  // O_NONBLOCK: a FIFO without a reader must not hang us.
  UniqueFd fd(::open(path.c_str(),
                     O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  struct stat st{};
  if (!fd || ::fstat(fd.get(), &st) != 0) {
    return fail_errno(path);
  }
  if (!S_ISREG(st.st_mode)) {
    return fail(EINVAL, path + " is not a regular file");
  }
  size = static_cast<std::uint64_t>(st.st_size);
  return fd;
}

void LineFile::take(UniqueFd fd, std::uint64_t size) {
  fd_ = std::move(fd);
  size_ = size;
  const MutexLock lock(mutex_);
  is_open_ = true;
  if (!header_.empty()) {
    buffer_.insert(0, header_ + "\n");
  }
}

Status LineFile::open_file() {
  std::uint64_t size = 0;
  auto fd = open_path(path_, size);
  if (!fd) {
    return std::unexpected(fd.error());
  }
  take(std::move(*fd), size);
  return {};
}

// Called without the locks: opening may hang, and append() must not.
void LineFile::open_if_due() {
  const auto is_due = [this] {
    const MutexLock lock(mutex_);
    return is_due_;
  };
  if (!is_due()) {
    return;
  }
  std::uint64_t size = 0;
  auto fd = open_path(path_, size);
  const MutexLock writing(file_mutex_);
  if (!is_due()) {
    return;  // another thread's flush opened the file
  }
  const bool is_there = fd.has_value();
  if (is_there) {
    take(std::move(*fd), size);
  }
  const MutexLock lock(mutex_);
  is_due_ = !is_there;
  failure_ = is_there ? Status{} : std::unexpected(fd.error());
}

// With a size limit, the buffer stays small enough that the file and the buffer fit half the limit.
std::uint64_t LineFile::most_buffered(std::uint64_t bytes) const {
  return most_ == 0 ? bytes : std::min<std::uint64_t>(bytes, most_ / 4);
}

// Adds the line to the buffer. Returns false if the line is lost.
bool LineFile::buffer(std::string_view line) {
  if (!failure_) {
    if (is_due_) {
      ++lost_;
    }
    return false;
  }
  if (buffer_.size() + line.size() >= (is_open_ ? most_bytes : most_buffered(waiting_bytes))) {
    ++lost_;
    return false;
  }
  buffer_.append(line).append("\n");
  return true;
}

void LineFile::append(std::string_view line) {
  {
    const MutexLock lock(mutex_);
    const bool is_first = buffer_.empty();
    if (!buffer(line)) {
      return;
    }
    const bool is_much = is_open_ && buffer_.size() >= much && !is_told_;
    if (!is_first && !is_much) {
      return;
    }
    is_told_ = is_much;
    if (has_thread_) {
      return changed_.notify_all();
    }
    if (!is_much) {
      return;
    }
    is_told_ = false;
  }
  flush();
}

void LineFile::flush() {
  open_if_due();
  const MutexLock writing(file_mutex_);
  std::string lines;
  {
    const MutexLock lock(mutex_);
    if (!failure_ || !fd_) {
      return;
    }
    lines.swap(buffer_);
  }
  const Status written = write_out(lines);
  if (written) {
    return;
  }
  const MutexLock lock(mutex_);
  failure_ = written;
  buffer_.clear();
}

bool LineFile::is_open() const {
  const MutexLock lock(mutex_);
  return is_open_;
}

Status LineFile::failure() const {
  const MutexLock lock(mutex_);
  return failure_;
}

std::uint64_t LineFile::lost() const {
  const MutexLock lock(mutex_);
  return lost_;
}

Status LineFile::rotate() {
  if (::rename(path_.c_str(), (path_ + ".1").c_str()) != 0) {
    return fail_errno(path_ + ".1");
  }
  auto fd = open_path(path_, size_);
  if (!fd) {
    return std::unexpected(fd.error());
  }
  fd_ = std::move(*fd);
  return {};
}

// Writes whole lines, in pieces below the size limit.
Status LineFile::write_out(std::string_view lines) {
  while (!lines.empty()) {
    const auto most = most_buffered(lines.size());
    const auto end = most >= lines.size() ? lines.size() : lines.rfind('\n', most - 1) + 1;
    const auto piece = lines.substr(0, end > 0 ? end : lines.find('\n') + 1);
    if (most_ != 0 && size_ > 0 && size_ + piece.size() > most_ / 2) {
      EFS_TRY(rotate());
      if (!header_.empty() && !piece.starts_with(header_)) {
        EFS_TRY(put(header_ + "\n"));
      }
    }
    EFS_TRY(put(piece));
    lines.remove_prefix(piece.size());
  }
  return {};
}

Status LineFile::put(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd_.get(), text.data(), text.size());
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return fail_errno(path_);
    }
    size_ += static_cast<std::uint64_t>(n);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

std::string escape_line(std::string_view text, char separator) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7F && c != '\\' && c != separator) {
      result += c;
      continue;
    }
    char octal[8];
    std::snprintf(octal, sizeof octal, "\\%03o", byte);
    result += octal;
  }
  return result;
}

}  // namespace efs
