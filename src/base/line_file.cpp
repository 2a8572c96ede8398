#include "base/line_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace efs {
namespace {

constexpr std::size_t buffer_bytes = 64u << 10;
constexpr std::size_t waiting_bytes = 1u << 20;  // for a file that is not open yet

}  // namespace

Result<std::unique_ptr<LineFile>> LineFile::open(const std::string& path, std::string_view header, std::uint64_t most) {
  std::unique_ptr<LineFile> file(new LineFile(path, header, most));
  MutexLock lock(file->mutex_);
  EFS_TRY(file->open_file());
  return file;
}

std::unique_ptr<LineFile> LineFile::open_later(const std::string& path, std::string_view header, std::uint64_t most) {
  std::unique_ptr<LineFile> file(new LineFile(path, header, most));
  MutexLock lock(file->mutex_);
  file->is_due_ = true;
  return file;
}

LineFile::~LineFile() { flush(); }

Result<UniqueFd> LineFile::open_path(const std::string& path, std::uint64_t& size) {
  // O_NONBLOCK: a FIFO without a reader must not hang us.
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  struct stat st {};
  if (!fd || ::fstat(fd.get(), &st) != 0) return fail_errno(path);
  if (!S_ISREG(st.st_mode)) return fail(EINVAL, path + " is no regular file");
  size = static_cast<std::uint64_t>(st.st_size);
  return fd;
}

void LineFile::take(UniqueFd fd, std::uint64_t size) {
  fd_ = std::move(fd);
  size_ = size;
  if (!header_.empty()) buffer_.insert(0, header_ + "\n");
}

Status LineFile::open_file() {
  std::uint64_t size = 0;
  auto fd = open_path(path_, size);
  if (!fd) return std::unexpected(fd.error());
  take(std::move(*fd), size);
  return {};
}

// Without the lock: the file's place may hang, and who appends must not.
void LineFile::open_if_due() {
  {
    MutexLock lock(mutex_);
    if (!is_due_) return;
  }
  std::uint64_t size = 0;
  auto fd = open_path(path_, size);
  MutexLock lock(mutex_);
  if (!is_due_) return;  // somebody else's flush was faster
  is_due_ = !fd;
  failure_ = fd ? Status{} : std::unexpected(fd.error());
  if (fd) take(std::move(*fd), size);
}

// With a bound, small enough that the file and what is to come stay below its half.
std::uint64_t LineFile::most_buffered(std::uint64_t bytes) const { return most_ == 0 ? bytes : std::min<std::uint64_t>(bytes, most_ / 4); }

void LineFile::append(std::string_view line) {
  MutexLock lock(mutex_);
  if (!failure_ || (!fd_ && buffer_.size() + line.size() >= most_buffered(waiting_bytes))) return;
  buffer_.append(line).append("\n");
  if (fd_ && buffer_.size() >= most_buffered(buffer_bytes)) write_out();
}

void LineFile::flush() {
  open_if_due();
  MutexLock lock(mutex_);
  if (failure_ && fd_) write_out();
}

bool LineFile::is_open() const {
  MutexLock lock(mutex_);
  return static_cast<bool>(fd_);
}

Status LineFile::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

void LineFile::rotate() {
  if (::rename(path_.c_str(), (path_ + ".1").c_str()) != 0) failure_ = fail_errno(path_ + ".1");
  std::string lines;
  lines.swap(buffer_);
  if (failure_) failure_ = open_file();
  buffer_ += lines;
}

void LineFile::write_out() {
  if (most_ != 0 && size_ > 0 && size_ + buffer_.size() > most_ / 2) rotate();
  for (std::size_t done = 0; failure_ && done < buffer_.size();) {
    const ssize_t n = ::write(fd_.get(), buffer_.data() + done, buffer_.size() - done);
    if (n > 0) done += static_cast<std::size_t>(n), size_ += static_cast<std::uint64_t>(n);
    else if (n < 0 && errno != EINTR) failure_ = fail_errno(path_);
  }
  buffer_.clear();
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
