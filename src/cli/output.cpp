// SPDX-License-Identifier: BSD-3-Clause
#include "cli/output.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cli/cli.hpp"

namespace efs::cli {

OutputBuffer::int_type OutputBuffer::overflow(int_type c) {
  if (sync() != 0) {
    return traits_type::eof();
  }
  if (!traits_type::eq_int_type(c, traits_type::eof())) {
    *pptr() = traits_type::to_char_type(c);
    pbump(1);
  }
  return traits_type::not_eof(c);
}

int OutputBuffer::sync() {
  const char* next = pbase();
  while (error_ == 0 && next != pptr()) {
    has_written_ = true;
    const ssize_t n = ::write(fd_, next, static_cast<std::size_t>(pptr() - next));
    if (n > 0) {
      next += n;
    } else if (n == 0) {
      error_ = EIO;
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
  setp(buffer_.data(), buffer_.data() + buffer_.size());
  return error_ == 0 ? 0 : -1;
}

int OutputBuffer::finish() {
  (void)sync();
  if (has_written_ && error_ == 0 && ::close(fd_) != 0) {
    error_ = errno;
  }
  return error_;
}

int finish_output(World& world, int code) {
  auto* buffer = dynamic_cast<OutputBuffer*>(world.out.rdbuf());
  const int lost = buffer != nullptr ? buffer->finish() : 0;
  if (lost == 0) {
    return code;
  }
  world.err << "efs: cannot write to standard output: " << std::strerror(lost)
            << (code == exit_good ? ". The command itself has done its work\n" : "\n");
  return code == exit_good ? int{exit_failure} : code;
}

}  // namespace efs::cli
