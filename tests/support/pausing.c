/* A program that pauses: before its first umount2(2), its first flock(2) for an exclusive lock, or its first unlinkat(2), while the file
 * EFS_PAUSE_WHILE is there; when it does, it makes EFS_PAUSE_WHILE.reached. EFS_PAUSE_ON: at a lock, or the removal, of a file whose path
 * ends so.
 *   LD_PRELOAD=libefs-pausing.so EFS_PAUSE_AT=umount2|flock|unlinkat EFS_PAUSE_WHILE=/absolute/file efs clean ... */
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

/* `name`: in the directory fd, or "" for what fd is itself. */
static int is_meant(int fd, const char *name) {
  const char *end = getenv("EFS_PAUSE_ON");
  if (end == NULL) return 1;
  char link[64], path[PATH_MAX + NAME_MAX + 2];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, PATH_MAX);
  if (length < 0) return 0;
  snprintf(path + length, sizeof path - (size_t)length, "%s%s", *name != '\0' ? "/" : "", name);
  return strlen(path) >= strlen(end) && strcmp(path + strlen(path) - strlen(end), end) == 0;
}

int umount2(const char *target, int flags) {
  pause_at("umount2");
  int (*real)(const char *, int) = (int (*)(const char *, int))dlsym(RTLD_NEXT, "umount2");
  return real(target, flags);
}

int flock(int fd, int operation) {
  if ((operation & LOCK_EX) != 0 && is_meant(fd, "")) pause_at("flock");
  int (*real)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "flock");
  return real(fd, operation);
}

int unlinkat(int directory, const char *name, int flags) {
  if (is_meant(directory, name)) pause_at("unlinkat");
  int (*real)(int, const char *, int) = (int (*)(int, const char *, int))dlsym(RTLD_NEXT, "unlinkat");
  return real(directory, name, flags);
}
