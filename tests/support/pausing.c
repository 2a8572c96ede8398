/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes a program pause while the file EFS_PAUSE_WHILE exists, and create
 * EFS_PAUSE_WHILE.reached then. The pause is before the first umount2(2), flock(2) for an
 * exclusive lock, unlinkat(2), renameat(2), rmdir(2) or connect(2), before taking over a FUSE
 * session (session), or before notifying the kernel of a changed or removed name (notify).
 * EFS_PAUSE_ON limits a lock, a removal or a rename to files whose path has this end.
 *   LD_PRELOAD=libefs-pausing.so EFS_PAUSE_AT=umount2|flock|... EFS_PAUSE_WHILE=/absolute/file
 *   efs clean ... */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static void pause_at(const char* call) {
  static int paused = 0;
  const char *at = getenv("EFS_PAUSE_AT"), *sign = getenv("EFS_PAUSE_WHILE");
  if (paused || at == NULL || sign == NULL || strcmp(at, call) != 0 || access(sign, F_OK) != 0) {
    return;
  }
  paused = 1;
  char reached[PATH_MAX];
  snprintf(reached, sizeof reached, "%s.reached", sign);
  close(open(reached, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  while (access(sign, F_OK) == 0) {
    usleep(10000);
  }
}

/* Returns whether the call's file is selected. `name`: in the directory fd, or "" for fd itself. */
static int is_meant(int fd, const char* name) {
  const char* end = getenv("EFS_PAUSE_ON");
  if (end == NULL) {
    return 1;
  }
  char link[64], path[PATH_MAX + NAME_MAX + 2];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, PATH_MAX);
  if (length < 0) {
    return 0;
  }
  snprintf(path + length, sizeof path - (size_t)length, "%s%s", *name != '\0' ? "/" : "", name);
  return strlen(path) >= strlen(end) && strcmp(path + strlen(path) - strlen(end), end) == 0;
}

int umount2(const char* target, int flags) {
  pause_at("umount2");
  int (*real)(const char*, int) = (int (*)(const char*, int))dlsym(RTLD_NEXT, "umount2");
  return real(target, flags);
}

int flock(int fd, int operation) {
  if ((operation & LOCK_EX) != 0 && is_meant(fd, "")) {
    pause_at("flock");
  }
  int (*real)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "flock");
  return real(fd, operation);
}

int unlinkat(int directory, const char* name, int flags) {
  if (is_meant(directory, name)) {
    pause_at("unlinkat");
  }
  int (*real)(int, const char*, int) = (int (*)(int, const char*, int))dlsym(RTLD_NEXT, "unlinkat");
  return real(directory, name, flags);
}

int renameat(int from, const char* name, int to, const char* new_name) {
  if (is_meant(from, name)) {
    pause_at("renameat");
  }
  int (*real)(int, const char*, int, const char*) =
      (int (*)(int, const char*, int, const char*))dlsym(RTLD_NEXT, "renameat");
  return real(from, name, to, new_name);
}

int rmdir(const char* path) {
  const char* end = getenv("EFS_PAUSE_ON");
  if (end == NULL ||
      (strlen(path) >= strlen(end) && strcmp(path + strlen(path) - strlen(end), end) == 0)) {
    pause_at("rmdir");
  }
  int (*real)(const char*) = (int (*)(const char*))dlsym(RTLD_NEXT, "rmdir");
  return real(path);
}

int connect(int fd, const struct sockaddr* address, socklen_t length) {
  pause_at("connect");
  int (*real)(int, const struct sockaddr*, socklen_t) =
      (int (*)(int, const struct sockaddr*, socklen_t))dlsym(RTLD_NEXT, "connect");
  return real(fd, address, length);
}

int fdatasync(int fd) {
  if (is_meant(fd, "")) {
    pause_at("sync");
  }
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
  return real(fd);
}

int fsync(int fd) {
  if (is_meant(fd, "")) {
    pause_at("sync");
  }
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  return real(fd);
}

int fuse_session_mount(void* session, const char* mountpoint) {
  pause_at("session");
  int (*real)(void*, const char*) =
      (int (*)(void*, const char*))dlsym(RTLD_NEXT, "fuse_session_mount");
  return real(session, mountpoint);
}

/* struct fuse_out_header of linux/fuse.h; if `unique` is 0, `error` is the kind of a
 * notification. */
struct out_header {
  uint32_t length;
  int32_t error;
  uint64_t unique;
};

enum { inval_entry = 3, delete_entry = 6 };

ssize_t writev(int fd, const struct iovec* parts, int count) {
  if (count > 0 && parts[0].iov_len >= sizeof(struct out_header)) {
    struct out_header header;
    memcpy(&header, parts[0].iov_base, sizeof header);
    if (header.unique == 0 && (header.error == inval_entry || header.error == delete_entry)) {
      pause_at("notify");
    }
  }
  ssize_t (*real)(int, const struct iovec*, int) =
      (ssize_t(*)(int, const struct iovec*, int))dlsym(RTLD_NEXT, "writev");
  return real(fd, parts, count);
}
