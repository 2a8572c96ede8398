// SPDX-License-Identifier: BSD-3-Clause
#include "config/read_file.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <string_view>

#include "base/unique_fd.hpp"

namespace efs::config {

Result<std::string> read_file(const std::string& file, const std::string& what, bool trusted) {
  // O_NONBLOCK: a FIFO without a writer must not hang the command.
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) {
    return fail_errno("cannot read " + what);
  }
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) {
    return fail_errno("cannot read " + what);
  }
  if (!S_ISREG(status.st_mode)) {
    return fail(EINVAL, what + " is not a regular file");
  }
  if (trusted &&
      ((status.st_uid != 0 && status.st_uid != ::geteuid()) || (status.st_mode & 022) != 0)) {
    return fail(EPERM, what +
                           " can be changed by others: it must belong to root, and only root may "
                           "write it (chown root, chmod go-w)");
  }
  return read_stream(fd.get(), what);
}

std::optional<int> stream_of(const std::string& file) {
  if (file == standard_input || file == "/dev/stdin") {
    return 0;
  }
  for (const std::string_view directory : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!file.starts_with(directory)) {
      continue;
    }
    int fd = -1;
    const char* const end = file.data() + file.size();
    const auto [stop, error] = std::from_chars(file.data() + directory.size(), end, fd);
    if (error == std::errc{} && stop == end && fd >= 0) {
      return fd;
    }
  }
  return std::nullopt;
}

Result<std::string> read_stream(int fd, const std::string& what) {
  std::string text(largest_file + 1, '\0');
  std::size_t length = 0;
  while (length < text.size()) {
    const auto count = ::read(fd, text.data() + length, text.size() - length);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0 && errno == EAGAIN) {
      pollfd waits{.fd = fd, .events = POLLIN, .revents = 0};
      (void)::poll(&waits, 1, -1);
      continue;
    }
    if (count < 0) {
      return fail_errno("cannot read " + what);
    }
    if (count == 0) {
      break;
    }
    length += static_cast<std::size_t>(count);
  }
  text.resize(length);
  return text;
}

}  // namespace efs::config
