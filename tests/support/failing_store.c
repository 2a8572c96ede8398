/* A medium that fails: while the file EFS_FAIL_WHILE is there, no space can be allocated for a journal (EIO); while the file
 * EFS_FAIL_SYNC_WHILE is there, none can be synced.
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
  if (length < 0) return 0;
  path[length] = '\0';
  const char *name = strrchr(path, '/');
  return name != NULL && (strcmp(name, "/journal") == 0 || strcmp(name, "/journal.new") == 0);
}

static int fails(int fd, const char *variable) {
  const char *sign = getenv(variable);
  return sign != NULL && access(sign, F_OK) == 0 && is_journal(fd);
}

int fallocate64(int fd, int mode, off64_t offset, off64_t length) {
  if (fails(fd, "EFS_FAIL_WHILE")) {
    errno = EIO;
    return -1;
  }
  int (*real)(int, int, off64_t, off64_t) = (int (*)(int, int, off64_t, off64_t))dlsym(RTLD_NEXT, "fallocate64");
  return real(fd, mode, offset, length);
}
int fallocate(int fd, int mode, off_t offset, off_t length) { return fallocate64(fd, mode, offset, length); }

static int sync_by(const char *name, int fd) {
  if (fails(fd, "EFS_FAIL_SYNC_WHILE")) {
    errno = EIO;
    return -1;
  }
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  return real(fd);
}
int fsync(int fd) { return sync_by("fsync", fd); }
int fdatasync(int fd) { return sync_by("fdatasync", fd); }
