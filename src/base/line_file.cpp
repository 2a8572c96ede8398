#include "base/line_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace efs {
namespace {

constexpr std::size_t buffer_bytes = 64u << 10;

}  // namespace

Result<std::unique_ptr<LineFile>> LineFile::open(const std::string& path, std::string_view header, std::uint64_t most) {
  std::unique_ptr<LineFile> file(new LineFile(path, header, most));
  MutexLock lock(file->mutex_);
  EFS_TRY(file->open_file());
  return file;
}

LineFile::~LineFile() { flush(); }

Status LineFile::open_file() {
  // O_NONBLOCK: a FIFO without a reader must not hang us.
  fd_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  struct stat st {};
  if (!fd_ || ::fstat(fd_.get(), &st) != 0) return fail_errno(path_);
  if (!S_ISREG(st.st_mode)) return fail(EINVAL, path_ + " is no regular file");
  size_ = static_cast<std::uint64_t>(st.st_size);
  if (!header_.empty()) buffer_.append(header_).append("\n");
  return {};
}

void LineFile::append(std::string_view line) {
  MutexLock lock(mutex_);
  if (!failure_) return;
  buffer_.append(line).append("\n");
  // With a bound, small enough that the file and what is to come stay below its half.
  if (buffer_.size() >= (most_ == 0 ? buffer_bytes : std::min<std::uint64_t>(buffer_bytes, most_ / 4))) write_out();
}

void LineFile::flush() {
  MutexLock lock(mutex_);
  if (failure_) write_out();
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
