/* SPDX-License-Identifier: BSD-3-Clause */
/* A failing medium. While the file EFS_FAIL_WHILE exists, no space can be allocated for a
 * journal (EIO). While the file EFS_FAIL_SYNC_WHILE exists, no journal can be synced. While the
 * file EFS_FAIL_READ exists, the file that its text names cannot be read.
 *   LD_PRELOAD=libefs-failing-store.so EFS_FAIL_WHILE=/absolute/file efs start ... */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_journal(int fd) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) {
    return 0;
  }
  path[length] = '\0';
  const char* name = strrchr(path, '/');
  return name != NULL && (strcmp(name, "/journal") == 0 || strcmp(name, "/journal.new") == 0);
}

static int fails(int fd, const char* variable) {
  const char* sign = getenv(variable);
  return sign != NULL && access(sign, F_OK) == 0 && is_journal(fd);
}

int fallocate64(int fd, int mode, off64_t offset, off64_t length) {
  if (fails(fd, "EFS_FAIL_WHILE")) {
    errno = EIO;
    return -1;
  }
  int (*real)(int, int, off64_t, off64_t) =
      (int (*)(int, int, off64_t, off64_t))dlsym(RTLD_NEXT, "fallocate64");
  return real(fd, mode, offset, length);
}

int fallocate(int fd, int mode, off_t offset, off_t length) {
  return fallocate64(fd, mode, offset, length);
}

static int sync_by(const char* name, int fd) {
  if (fails(fd, "EFS_FAIL_SYNC_WHILE")) {
    errno = EIO;
    return -1;
  }
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  return real(fd);
}

int fsync(int fd) {
  return sync_by("fsync", fd);
}

int fdatasync(int fd) {
  return sync_by("fdatasync", fd);
}

static int cannot_be_read(int fd) {
  const char* sign = getenv("EFS_FAIL_READ");
  FILE* file = sign != NULL && access(sign, F_OK) == 0 ? fopen(sign, "r") : NULL;
  if (file == NULL) {
    return 0;
  }
  char link[64], path[PATH_MAX], wanted[PATH_MAX];
  const size_t named = fread(wanted, 1, sizeof wanted, file);
  fclose(file);
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path);
  return length > 0 && (size_t)length == named && memcmp(path, wanted, named) == 0;
}

ssize_t pread64(int fd, void* into, size_t size, off64_t offset) {
  if (cannot_be_read(fd)) {
    errno = EIO;
    return -1;
  }
  ssize_t (*real)(int, void*, size_t, off64_t) =
      (ssize_t(*)(int, void*, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
  return real(fd, into, size, offset);
}

ssize_t pread(int fd, void* into, size_t size, off_t offset) {
  return pread64(fd, into, size, offset);
}
