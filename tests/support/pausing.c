/* A program that pauses: before its first umount2(2), or its first flock(2) for an exclusive lock, while the file EFS_PAUSE_WHILE is
 * there; when it does, it makes EFS_PAUSE_WHILE.reached. EFS_PAUSE_ON: at a lock of a file whose path ends so.
 *   LD_PRELOAD=libefs-pausing.so EFS_PAUSE_AT=umount2|flock EFS_PAUSE_WHILE=/absolute/file efs clean ... */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <unistd.h>

static void pause_at(const char *call) {
  static int paused = 0;
  const char *at = getenv("EFS_PAUSE_AT"), *sign = getenv("EFS_PAUSE_WHILE");
  if (paused || at == NULL || sign == NULL || strcmp(at, call) != 0 || access(sign, F_OK) != 0) return;
  paused = 1;
  char reached[PATH_MAX];
  snprintf(reached, sizeof reached, "%s.reached", sign);
  close(open(reached, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  while (access(sign, F_OK) == 0) usleep(10000);
}

static int is_meant(int fd) {
  const char *end = getenv("EFS_PAUSE_ON");
  if (end == NULL) return 1;
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0 || (size_t)length < strlen(end)) return 0;
  path[length] = '\0';
  return strcmp(path + length - strlen(end), end) == 0;
}

int umount2(const char *target, int flags) {
  pause_at("umount2");
  int (*real)(const char *, int) = (int (*)(const char *, int))dlsym(RTLD_NEXT, "umount2");
  return real(target, flags);
}

int flock(int fd, int operation) {
  if ((operation & LOCK_EX) != 0 && is_meant(fd)) pause_at("flock");
  int (*real)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "flock");
  return real(fd, operation);
}
