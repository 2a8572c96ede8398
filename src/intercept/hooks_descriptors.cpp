// SPDX-License-Identifier: BSD-3-Clause
// The calls that make, share and close descriptors. <fcntl.h> would declare what is defined here
// with other arguments.
#include <dirent.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>

#include "intercept/copy.hpp"
#include "intercept/descriptors.hpp"
#include "intercept/next.hpp"

struct termios;
struct winsize;

namespace {

namespace in = efs::intercept;

constexpr int creates = 0100, temporary = 020000000;  // O_CREAT, __O_TMPFILE
constexpr int dupfd = 0, setfl = 4, dupfd_cloexec = 1030;
constexpr int only_close_on_exec = 4;  // CLOSE_RANGE_CLOEXEC

// A duplicate shares the offset, and a lock may be relative to it (F_GETLK to F_SETLKW, F_OFD_*).
bool uses_offset(int command) {
  return command == dupfd || command == dupfd_cloexec || (command >= 5 && command <= 7) ||
         (command >= 36 && command <= 38);
}

int opened(int fd) {
  if (fd >= 0) {
    in::Descriptors::made(fd);
  }
  return fd;
}

void forget_three() {
  in::Descriptors::forget_range(0, 2);
}

// The receiver of a descriptor shares its offset. All offsets are given back, because a look into
// the message may meet a bad pointer.
void before_message(const msghdr* message) {
  msghdr head{};
  if (in::Descriptors::any_private() && in::copy(&head, message, sizeof head) &&
      head.msg_controllen != 0) {
    in::Descriptors::share_all();
  }
}

// The sender may keep the descriptors of a message, and so their offsets.
void after_message(const msghdr* message) {
  auto* head = const_cast<msghdr*>(message);
  for (cmsghdr* part = CMSG_FIRSTHDR(head); part != nullptr; part = CMSG_NXTHDR(head, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    for (std::size_t at = CMSG_LEN(0); at + sizeof(int) <= part->cmsg_len; at += sizeof(int)) {
      int fd = -1;
      __builtin_memcpy(&fd, reinterpret_cast<const char*>(part) + at, sizeof fd);
      in::Descriptors::forget(fd);
    }
  }
}

}  // namespace

// The mode is there only where a file may be made.
#define EFS_MODE(flags)                         \
  mode_t mode = 0;                              \
  if (((flags) & (creates | temporary)) != 0) { \
    va_list rest;                               \
    va_start(rest, flags);                      \
    mode = va_arg(rest, mode_t);                \
    va_end(rest);                               \
  }
#define EFS_OPEN(name)                                  \
  EFS_HOOK int name(const char* path, int flags, ...) { \
    EFS_MODE(flags)                                     \
    return opened(EFS_NEXT(name)(path, flags, mode));   \
  }
#define EFS_OPENAT(name)                                        \
  EFS_HOOK int name(int at, const char* path, int flags, ...) { \
    EFS_MODE(flags)                                             \
    return opened(EFS_NEXT(name)(at, path, flags, mode));       \
  }

EFS_OPEN(open)
EFS_OPEN(open64)
EFS_OPENAT(openat)
EFS_OPENAT(openat64)

EFS_HOOK int __open_2(const char* path, int flags) {
  return opened(EFS_NEXT(__open_2)(path, flags));
}

EFS_HOOK int __open64_2(const char* path, int flags) {
  return opened(EFS_NEXT(__open64_2)(path, flags));
}

EFS_HOOK int __openat_2(int at, const char* path, int flags) {
  return opened(EFS_NEXT(__openat_2)(at, path, flags));
}

EFS_HOOK int __openat64_2(int at, const char* path, int flags) {
  return opened(EFS_NEXT(__openat64_2)(at, path, flags));
}

EFS_HOOK int creat(const char* path, mode_t mode) {
  return opened(EFS_NEXT(creat)(path, mode));
}

EFS_HOOK int creat64(const char* path, mode_t mode) {
  return opened(EFS_NEXT(creat64)(path, mode));
}

// Rule 8: nothing is known of a descriptor before the kernel closes it.
EFS_HOOK int close(int fd) {
  if (in::Mount::has_door(fd)) {
    errno = EBADF;  // as without the library: the program has not opened it
    return -1;
  }
  in::Descriptors::forget(fd);
  return EFS_NEXT(close)(fd);
}

EFS_HOOK int close_range(unsigned first, unsigned last, int flags) {
  if ((flags & only_close_on_exec) == 0) {
    in::Descriptors::forget_range(first, last);
  }
  return EFS_NEXT(close_range)(first, last, flags);
}

EFS_HOOK void closefrom(int first) {
  in::Descriptors::forget_range(first < 0 ? 0 : static_cast<unsigned>(first), ~0U);
  EFS_NEXT(closefrom)(first);
}

EFS_HOOK int dup(int fd) {
  in::Descriptors::share(fd);
  return EFS_NEXT(dup)(fd);
}

// A call that fails leaves `to` open.
EFS_HOOK int dup2(int fd, int to) {
  in::Descriptors::share(fd);
  if (fd != to) {
    in::Descriptors::replace(to);
  }
  return EFS_NEXT(dup2)(fd, to);
}

EFS_HOOK int dup3(int fd, int to, int flags) {
  in::Descriptors::share(fd);
  if (fd != to) {
    in::Descriptors::replace(to);
  }
  return EFS_NEXT(dup3)(fd, to, flags);
}

#define EFS_FCNTL(name)                                       \
  EFS_HOOK int name(int fd, int command, ...) {               \
    va_list rest;                                             \
    va_start(rest, command);                                  \
    void* argument = va_arg(rest, void*);                     \
    va_end(rest);                                             \
    if (uses_offset(command)) {                               \
      in::Descriptors::share(fd);                             \
    }                                                         \
    const int result = EFS_NEXT(name)(fd, command, argument); \
    if (command == setfl) {                                   \
      in::Descriptors::look_again();                          \
    }                                                         \
    return result;                                            \
  }
EFS_FCNTL(fcntl)
EFS_FCNTL(fcntl64)

EFS_HOOK ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  before_message(message);
  return EFS_NEXT(sendmsg)(socket, message, flags);
}

EFS_HOOK int sendmmsg(int socket, mmsghdr* messages, unsigned count, int flags) {
  if (in::Descriptors::any_private()) {
    in::Descriptors::share_all();
  }
  return EFS_NEXT(sendmmsg)(socket, messages, count, flags);
}

EFS_HOOK ssize_t recvmsg(int socket, msghdr* message, int flags) {
  const ssize_t got = EFS_NEXT(recvmsg)(socket, message, flags);
  if (got >= 0) {
    after_message(message);
  }
  return got;
}

EFS_HOOK int recvmmsg(int socket, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
  const int got = EFS_NEXT(recvmmsg)(socket, messages, count, flags, timeout);
  for (int i = 0; i < got; ++i) {
    after_message(&messages[i].msg_hdr);
  }
  return got;
}

EFS_HOOK int lockf(int fd, int command, off_t bytes) {
  in::Descriptors::share(fd);
  return EFS_NEXT(lockf)(fd, command, bytes);
}

EFS_HOOK int lockf64(int fd, int command, off64_t bytes) {
  in::Descriptors::share(fd);
  return EFS_NEXT(lockf64)(fd, command, bytes);
}

// Streams read and write inside the C library, by the kernel's offset.
EFS_HOOK FILE* fdopen(int fd, const char* mode) {
  in::Descriptors::share(fd);
  return EFS_NEXT(fdopen)(fd, mode);
}

EFS_HOOK int fclose(FILE* stream) {
  if (stream != nullptr) {
    in::Descriptors::forget(fileno_unlocked(stream));
  }
  return EFS_NEXT(fclose)(stream);
}

EFS_HOOK int closedir(DIR* directory) {
  asm("" : "+r"(directory));  // the C library takes null, which its header denies
  if (directory != nullptr) {
    in::Descriptors::forget(dirfd(directory));
  }
  return EFS_NEXT(closedir)(directory);
}

EFS_HOOK int vdprintf(int fd, const char* format, va_list rest) {
  in::Descriptors::share(fd);
  return EFS_NEXT(vdprintf)(fd, format, rest);
}

EFS_HOOK int __vdprintf_chk(int fd, int flag, const char* format, va_list rest) {
  in::Descriptors::share(fd);
  return EFS_NEXT(__vdprintf_chk)(fd, flag, format, rest);
}

EFS_HOOK int dprintf(int fd, const char* format, ...) {
  va_list rest;
  va_start(rest, format);
  const int written = vdprintf(fd, format, rest);
  va_end(rest);
  return written;
}

EFS_HOOK int __dprintf_chk(int fd, int flag, const char* format, ...) {
  va_list rest;
  va_start(rest, format);
  const int written = __vdprintf_chk(fd, flag, format, rest);
  va_end(rest);
  return written;
}

EFS_HOOK FILE* freopen(const char* path, const char* mode, FILE* stream) {
  in::Descriptors::forget(fileno_unlocked(stream));
  return EFS_NEXT(freopen)(path, mode, stream);
}

EFS_HOOK FILE* freopen64(const char* path, const char* mode, FILE* stream) {
  in::Descriptors::forget(fileno_unlocked(stream));
  return EFS_NEXT(freopen64)(path, mode, stream);
}

// They replace the descriptors 0, 1 and 2.
EFS_HOOK int login_tty(int fd) {
  forget_three();
  return EFS_NEXT(login_tty)(fd);
}

EFS_HOOK int daemon(int keep_directory, int keep_descriptors) {
  const int result = EFS_NEXT(daemon)(keep_directory, keep_descriptors);
  forget_three();
  return result;
}

EFS_HOOK pid_t forkpty(int* controller, char* name, const termios* settings, const winsize* size) {
  const pid_t pid = EFS_NEXT(forkpty)(controller, name, settings, size);
  if (pid == 0) {
    forget_three();
  }
  return pid;
}
