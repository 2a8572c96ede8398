/* SPDX-License-Identifier: BSD-3-Clause */
/* Simulates a distant PFS: every call on a path below a directory takes a millisecond longer.
 * Preload it into both cp and efs:
 *   LD_PRELOAD=libefs-slow-pfs.so EFS_SLOW_PFS=/absolute/directory [EFS_SLOW_US=1000]
 *   [EFS_SLOW_REPORT=FILE]
 * Each process that ends by exit() adds a line to the report: pid, program and number of slowed
 * calls. Paths count by their text, descriptors by the path of their open; descriptors from
 * dup() do not count. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { most_fds = 1 << 16 };

static atomic_bool is_slow[most_fds];
static atomic_ulong calls;
static const char* place;
static size_t place_length;
static long delay_ns = 1000000;

__attribute__((constructor)) static void begin(void) {
  place = getenv("EFS_SLOW_PFS");
  place_length = place == NULL ? 0 : strlen(place);
  if (getenv("EFS_SLOW_US") != NULL) {
    delay_ns = atol(getenv("EFS_SLOW_US")) * 1000;
  }
}

__attribute__((destructor)) static void end(void) {
  const char* file = getenv("EFS_SLOW_REPORT");
  FILE* out = file == NULL || calls == 0 ? NULL : fopen(file, "a");
  if (out == NULL) {
    return;
  }
  fprintf(out, "%d %s %lu\n", (int)getpid(), program_invocation_short_name, (unsigned long)calls);
  fclose(out);
}

static int slow_fd(int fd) {
  return fd >= 0 && fd < most_fds && is_slow[fd];
}

static int slow_at(int at, const char* path) {
  if (place_length == 0 || path == NULL) {
    return 0;
  }
  if (path[0] != '/') {
    return slow_fd(at);
  }
  return strncmp(path, place, place_length) == 0 &&
         (path[place_length] == '/' || path[place_length] == '\0');
}

static void pause_if(int slow) {
  if (!slow) {
    return;
  }
  const int saved = errno;
  atomic_fetch_add(&calls, 1);
  struct timespec left = {delay_ns / 1000000000, delay_ns % 1000000000};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
  errno = saved;
}

static int opened(int fd, int slow) {
  if (fd >= 0 && fd < most_fds) {
    is_slow[fd] = slow;
  }
  return fd;
}

/* The next definition of a function: that of libc. */
#define REAL(name) ((__typeof__(&name))real(&real_##name, #name))

static void* real(void* _Atomic* known, const char* name) {
  void* found = *known;
  if (found == NULL) {
    *known = found = dlsym(RTLD_NEXT, name);
  }
  return found;
}

/* WRAP(result, name, parameters, arguments, slow): calls the same function after the pause. */
#define WRAP(result, name, parameters, arguments, slow) \
  static void* _Atomic real_##name;                     \
  result name parameters {                              \
    pause_if(slow);                                     \
    return REAL(name) arguments;                        \
  }

#define OPEN_AT(name)                                                                 \
  static void* _Atomic real_##name;                                                   \
  int name(int at, const char* path, int flags, ...) {                                \
    va_list rest;                                                                     \
    va_start(rest, flags);                                                            \
    const mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) ? va_arg(rest, mode_t) : 0; \
    va_end(rest);                                                                     \
    const int slow = slow_at(at, path);                                               \
    pause_if(slow);                                                                   \
    return opened(REAL(name)(at, path, flags, mode), slow);                           \
  }
#define OPEN(name)                                                                    \
  static void* _Atomic real_##name;                                                   \
  int name(const char* path, int flags, ...) {                                        \
    va_list rest;                                                                     \
    va_start(rest, flags);                                                            \
    const mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) ? va_arg(rest, mode_t) : 0; \
    va_end(rest);                                                                     \
    const int slow = slow_at(AT_FDCWD, path);                                         \
    pause_if(slow);                                                                   \
    return opened(REAL(name)(path, flags, mode), slow);                               \
  }
OPEN(open)
OPEN(open64)
OPEN_AT(openat)
OPEN_AT(openat64)

/* With _FORTIFY_SOURCE, a compiler calls these instead. */
int __open_2(const char* path, int flags) {
  return open(path, flags);
}

int __open64_2(const char* path, int flags) {
  return open(path, flags);
}

int __openat_2(int at, const char* path, int flags) {
  return openat(at, path, flags);
}

int __openat64_2(int at, const char* path, int flags) {
  return openat(at, path, flags);
}

static void* _Atomic real_close;

int close(int fd) {
  opened(fd, 0);
  return REAL(close)(fd);
}

/* openat2(2) has no function. */
static void* _Atomic real_syscall;

long syscall(long number, ...) {
  long a[6];
  va_list rest;
  va_start(rest, number);
  for (int i = 0; i < 6; ++i) {
    a[i] = va_arg(rest, long);
  }
  va_end(rest);
  const int slow = number == SYS_openat2 && slow_at((int)a[0], (const char*)a[1]);
  pause_if(slow);
  const long result = REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  if (number == SYS_openat2) {
    opened((int)result, slow);
  }
  return result;
}

static void* _Atomic real_opendir;

DIR* opendir(const char* path) {
  const int slow = slow_at(AT_FDCWD, path);
  pause_if(slow);
  DIR* stream = REAL(opendir)(path);
  if (stream != NULL) {
    opened(dirfd(stream), slow);
  }
  return stream;
}

static void* _Atomic real_fdopendir;

DIR* fdopendir(int fd) { /* counted in place of readdir() */
  pause_if(slow_fd(fd));
  return REAL(fdopendir)(fd);
}

WRAP(int, stat, (const char* path, struct stat* into), (path, into), slow_at(AT_FDCWD, path))
WRAP(int, lstat, (const char* path, struct stat* into), (path, into), slow_at(AT_FDCWD, path))
WRAP(int, fstat, (int fd, struct stat* into), (fd, into), slow_fd(fd))
WRAP(int, fstatat, (int at, const char* path, struct stat* into, int flags),
     (at, path, into, flags), slow_at(at, path))
WRAP(int, stat64, (const char* path, struct stat64* into), (path, into), slow_at(AT_FDCWD, path))
WRAP(int, lstat64, (const char* path, struct stat64* into), (path, into), slow_at(AT_FDCWD, path))
WRAP(int, fstat64, (int fd, struct stat64* into), (fd, into), slow_fd(fd))
WRAP(int, fstatat64, (int at, const char* path, struct stat64* into, int flags),
     (at, path, into, flags), slow_at(at, path))
WRAP(int, statx, (int at, const char* path, int flags, unsigned mask, struct statx* into),
     (at, path, flags, mask, into), slow_at(at, path))
WRAP(int, faccessat, (int at, const char* path, int mode, int flags), (at, path, mode, flags),
     slow_at(at, path))
WRAP(ssize_t, readlinkat, (int at, const char* path, char* into, size_t size),
     (at, path, into, size), slow_at(at, path))

WRAP(ssize_t, read, (int fd, void* into, size_t size), (fd, into, size), slow_fd(fd))
WRAP(ssize_t, write, (int fd, const void* from, size_t size), (fd, from, size), slow_fd(fd))
WRAP(ssize_t, pread, (int fd, void* into, size_t size, off_t at), (fd, into, size, at), slow_fd(fd))
WRAP(ssize_t, pread64, (int fd, void* into, size_t size, off64_t at), (fd, into, size, at),
     slow_fd(fd))
WRAP(ssize_t, pwrite, (int fd, const void* from, size_t size, off_t at), (fd, from, size, at),
     slow_fd(fd))
WRAP(ssize_t, pwrite64, (int fd, const void* from, size_t size, off64_t at), (fd, from, size, at),
     slow_fd(fd))
WRAP(ssize_t, copy_file_range,
     (int in, off64_t* in_at, int out, off64_t* out_at, size_t size, unsigned flags),
     (in, in_at, out, out_at, size, flags), slow_fd(in) || slow_fd(out))
WRAP(int, ftruncate, (int fd, off_t size), (fd, size), slow_fd(fd))
WRAP(int, ftruncate64, (int fd, off64_t size), (fd, size), slow_fd(fd))

WRAP(int, mkdir, (const char* path, mode_t mode), (path, mode), slow_at(AT_FDCWD, path))
WRAP(int, mkdirat, (int at, const char* path, mode_t mode), (at, path, mode), slow_at(at, path))
WRAP(int, symlinkat, (const char* target, int at, const char* path), (target, at, path),
     slow_at(at, path))
WRAP(int, linkat, (int from_at, const char* from, int at, const char* path, int flags),
     (from_at, from, at, path, flags), slow_at(at, path))
WRAP(int, rename, (const char* from, const char* to), (from, to), slow_at(AT_FDCWD, to))
WRAP(int, renameat, (int from_at, const char* from, int at, const char* to),
     (from_at, from, at, to), slow_at(at, to))
WRAP(int, renameat2, (int from_at, const char* from, int at, const char* to, unsigned flags),
     (from_at, from, at, to, flags), slow_at(at, to))
WRAP(int, unlinkat, (int at, const char* path, int flags), (at, path, flags), slow_at(at, path))

WRAP(int, fchmod, (int fd, mode_t mode), (fd, mode), slow_fd(fd))
WRAP(int, fchmodat, (int at, const char* path, mode_t mode, int flags), (at, path, mode, flags),
     slow_at(at, path))
WRAP(int, chmod, (const char* path, mode_t mode), (path, mode), slow_at(AT_FDCWD, path))
WRAP(int, fchown, (int fd, uid_t uid, gid_t gid), (fd, uid, gid), slow_fd(fd))
WRAP(int, fchownat, (int at, const char* path, uid_t uid, gid_t gid, int flags),
     (at, path, uid, gid, flags), slow_at(at, path))
WRAP(int, lchown, (const char* path, uid_t uid, gid_t gid), (path, uid, gid),
     slow_at(AT_FDCWD, path))
WRAP(int, futimens, (int fd, const struct timespec times[2]), (fd, times), slow_fd(fd))
WRAP(int, utimensat, (int at, const char* path, const struct timespec times[2], int flags),
     (at, path, times, flags), slow_at(at, path))
WRAP(ssize_t, flistxattr, (int fd, char* into, size_t size), (fd, into, size), slow_fd(fd))
WRAP(ssize_t, fgetxattr, (int fd, const char* name, void* into, size_t size),
     (fd, name, into, size), slow_fd(fd))
WRAP(int, fsetxattr, (int fd, const char* name, const void* from, size_t size, int flags),
     (fd, name, from, size, flags), slow_fd(fd))
WRAP(ssize_t, llistxattr, (const char* path, char* into, size_t size), (path, into, size),
     slow_at(AT_FDCWD, path))
WRAP(ssize_t, listxattr, (const char* path, char* into, size_t size), (path, into, size),
     slow_at(AT_FDCWD, path))
WRAP(ssize_t, getxattr, (const char* path, const char* name, void* into, size_t size),
     (path, name, into, size), slow_at(AT_FDCWD, path))
WRAP(ssize_t, lgetxattr, (const char* path, const char* name, void* into, size_t size),
     (path, name, into, size), slow_at(AT_FDCWD, path))

WRAP(int, fsync, (int fd), (fd), slow_fd(fd))
WRAP(int, fdatasync, (int fd), (fd), slow_fd(fd))
WRAP(int, syncfs, (int fd), (fd), slow_fd(fd))
