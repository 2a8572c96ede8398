// SPDX-License-Identifier: BSD-3-Clause
#include "objects/joined.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>

#include "objects/leftovers.hpp"
#include "objects/name.hpp"

namespace efs::objects {

namespace {

constexpr std::size_t most_joins = 1U << 20U;

/// Tries a lock without waiting; 0 or the errno.
int try_lock(int fd, int operation) {
  while (::flock(fd, operation | LOCK_NB) != 0) {
    if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

std::unexpected<Failure> no_flock() {
  return fail(ENOTSUP, "the file system has no flock", "Use a store on a local file system");
}

std::unexpected<Failure> gone() {
  return fail(ESTALE, "the process that began it has discarded it or is dead", "Begin it again");
}

Status check_owner(int fd) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) {
    return fail(errno);
  }
  return status.st_uid == ::geteuid()
             ? Status()
             : fail(EPERM, "it belongs to another user", "Join only what this user has begun");
}

Status append(int fd, char byte) {
  while (true) {
    const auto written = ::write(fd, &byte, 1);
    if (written == 1) {
      return {};
    }
    if (written == 0 || errno != EINTR) {
      return fail(written == 0 ? EIO : errno);
    }
  }
}

Fd open_joins(int directory, const std::string& name, int flags) {
  constexpr int always = O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  return Fd(::openat(directory, name.c_str(), always | flags, 0600));
}

}  // namespace

Result<JoinFile> create_join_file(int directory, std::string_view token) {
  JoinFile file{{}, join_name(token)};
  file.fd = open_joins(directory, file.name, O_CREAT | O_EXCL);
  if (!file) {
    return fail(errno);
  }
  const int error = try_lock(file.fd.get(), LOCK_EX);
  if (error != 0 && error != EWOULDBLOCK) {
    ::unlinkat(directory, file.name.c_str(), 0);
    return no_flock();
  }
  ::flock(file.fd.get(), LOCK_UN);
  return file;
}

Result<JoinFile> open_join_file(int directory, std::string_view token) {
  JoinFile file{{}, join_name(token)};
  file.fd = open_joins(directory, file.name, 0);
  if (!file) {
    return errno == ENOENT ? gone() : fail(errno);
  }
  EO_TRY(check_owner(file.fd.get()));
  const int error = try_lock(file.fd.get(), LOCK_SH);
  if (error != 0) {
    return error == EWOULDBLOCK ? fail(EBUSY, "it is being published", "Join it before that")
                                : no_flock();
  }
  if (!is_named(file.fd.get(), directory, file.name)) {
    return gone();
  }
  return file;
}

Status enter(const JoinFile& joined) {
  return append(joined.fd.get(), '+');
}

Status leave(const JoinFile& joined, int directory) {
  if (!is_named(joined.fd.get(), directory, joined.name)) {
    return gone();
  }
  EO_TRY(append(joined.fd.get(), '-'));
  // Children that this process has forked have the descriptor, too.
  ::flock(joined.fd.get(), LOCK_UN);
  return {};
}

Result<JoinsClosed> JoinsClosed::of(const JoinFile& file) {
  if (!file) {
    return JoinsClosed(-1);
  }
  if (try_lock(file.fd.get(), LOCK_EX) != 0) {
    return fail(EBUSY, "a process that joined it has not left", "Wait for eo_leave of all");
  }
  JoinsClosed closed(file.fd.get());
  const auto counts = read_head(file.fd.get(), most_joins);
  if (!counts) {
    return std::unexpected(counts.error());
  }
  if (std::ranges::count(*counts, '+') != std::ranges::count(*counts, '-')) {
    return fail(EOWNERDEAD, "a process that joined it ended without leaving",
                "Begin it again; its content may have holes");
  }
  return closed;
}

JoinsClosed::~JoinsClosed() {
  if (fd_ >= 0) {
    ::flock(fd_, LOCK_UN);
  }
}

Status check_alive(int fd) {
  EO_TRY(check_owner(fd));
  const int error = try_lock(fd, LOCK_SH);
  if (error == EWOULDBLOCK) {
    return {};
  }
  return error == 0 ? gone() : no_flock();
}

}  // namespace efs::objects
