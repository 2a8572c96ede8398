// SPDX-License-Identifier: BSD-3-Clause
// The calls that make, share and close descriptors. <fcntl.h> would declare what is defined here
// with other arguments.
#include <sys/socket.h>
#include <sys/types.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>

#include "intercept/descriptors.hpp"
#include "intercept/next.hpp"

struct termios;
struct winsize;

namespace {

namespace in = efs::intercept;

constexpr int creates = 0100, temporary = 020000000;  // O_CREAT, __O_TMPFILE
constexpr int dupfd = 0, setfl = 4, dupfd_cloexec = 1030;
constexpr int only_close_on_exec = 4;  // CLOSE_RANGE_CLOEXEC

int opened(int fd) {
  if (fd >= 0) {
    in::Descriptors::made(fd);
  }
  return fd;
}

void forget_three() {
  in::Descriptors::forget_range(0, 2);
}

void share_rights(const msghdr* message) {
  if (message->msg_control == nullptr || message->msg_controllen == 0) {
    return;
  }
  auto* head = const_cast<msghdr*>(message);
  for (cmsghdr* part = CMSG_FIRSTHDR(head); part != nullptr; part = CMSG_NXTHDR(head, part)) {
    if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS) {
      const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int fd = -1;
        __builtin_memcpy(&fd, CMSG_DATA(part) + (i * sizeof fd), sizeof fd);
        in::Descriptors::share(fd);
      }
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
    if (command == dupfd || command == dupfd_cloexec) {       \
      in::Descriptors::share(fd);                             \
    }                                                         \
    const int result = EFS_NEXT(name)(fd, command, argument); \
    if (command == setfl) {                                   \
      in::Descriptors::look_again(fd);                        \
    }                                                         \
    return result;                                            \
  }
EFS_FCNTL(fcntl)
EFS_FCNTL(fcntl64)

EFS_HOOK ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  share_rights(message);
  return EFS_NEXT(sendmsg)(socket, message, flags);
}

EFS_HOOK int sendmmsg(int socket, mmsghdr* messages, unsigned count, int flags) {
  for (unsigned i = 0; i < count; ++i) {
    share_rights(&messages[i].msg_hdr);
  }
  return EFS_NEXT(sendmmsg)(socket, messages, count, flags);
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
