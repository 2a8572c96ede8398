// SPDX-License-Identifier: BSD-3-Clause
// The hooks of libefs-record.so: one function for each of the C library that opens, makes, removes
// or renames a file by its name. See recorder.c.
#include "recorder/hooks.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// Hooks for programs that were compiled with _FORTIFY_SOURCE.
int __open_2(const char* path, int flags);
int __open64_2(const char* path, int flags);
int __openat_2(int at, const char* path, int flags);
int __openat64_2(int at, const char* path, int flags);

// Declares `next`, the function that the program would have called.
#define NEXT(name)        \
  __typeof__(&name) next; \
  *(void**)(&next) = next_of(hook_##name)

static int exists(struct name name) {
  return syscall(SYS_faccessat, name.at, name.path, F_OK) == 0;
}

static enum efs_event_kind kind_of_open(struct name name, int flags) {
  const int writes = (flags & O_ACCMODE) != O_RDONLY;
  if ((flags & O_CREAT) != 0 && ((flags & O_EXCL) != 0 || !exists(name))) {
    return EFS_EVENT_CREATE;
  }
  if (writes && (flags & O_TRUNC) != 0) {
    return EFS_EVENT_OVERWRITE;
  }
  return writes ? EFS_EVENT_UPDATE : EFS_EVENT_READ;
}

// Returns the event that an open with these flags will be; its kind is 0 if it will be none.
static struct noted about_to_open(struct name name, int flags) {
  struct noted noted = {.first = name};
  const int has_no_name = (flags & O_TMPFILE) == O_TMPFILE || (flags & O_PATH) != 0;
  if (!is_recording() || name.path == NULL || has_no_name) {
    return noted;
  }
  const int saved = errno;
  noted.order = next_order();
  noted.kind = kind_of_open(name, flags);
  errno = saved;
  return noted;
}

static int opened(struct noted noted, int fd) {
  if (fd >= 0 && noted.kind != 0) {
    note(noted);
  }
  return fd;
}

static FILE* opened_stream(struct noted noted, FILE* file) {
  if (file != NULL && noted.kind != 0) {
    note(noted);
  }
  return file;
}

// The flags of fopen's mode.
static int flags_of(const char* mode) {
  const int both = strchr(mode, '+') != NULL, is_new = strchr(mode, 'x') != NULL;
  const int access = both ? O_RDWR : mode[0] == 'r' ? O_RDONLY : O_WRONLY;
  const int makes = mode[0] == 'w' ? O_CREAT | O_TRUNC : mode[0] == 'a' ? O_CREAT | O_APPEND : 0;
  return access | makes | (is_new ? O_EXCL : 0);
}

// Sets `mode` to the argument that an open with these flags has, else to 0.
#define TAKE_MODE(flags, mode)                                          \
  mode_t mode = 0;                                                      \
  if (((flags) & O_CREAT) != 0 || ((flags) & O_TMPFILE) == O_TMPFILE) { \
    va_list more;                                                       \
    va_start(more, flags);                                              \
    mode = va_arg(more, mode_t);                                        \
    va_end(more);                                                       \
  }

int open(const char* path, int flags, ...) {
  NEXT(open);
  TAKE_MODE(flags, mode)
  const struct noted noted = about_to_open(here(path), flags);
  return opened(noted, next(path, flags, mode));
}

int open64(const char* path, int flags, ...) {
  NEXT(open64);
  TAKE_MODE(flags, mode)
  const struct noted noted = about_to_open(here(path), flags);
  return opened(noted, next(path, flags, mode));
}

int openat(int at, const char* path, int flags, ...) {
  NEXT(openat);
  TAKE_MODE(flags, mode)
  const struct noted noted = about_to_open(in(at, path), flags);
  return opened(noted, next(at, path, flags, mode));
}

int openat64(int at, const char* path, int flags, ...) {
  NEXT(openat64);
  TAKE_MODE(flags, mode)
  const struct noted noted = about_to_open(in(at, path), flags);
  return opened(noted, next(at, path, flags, mode));
}

int __open_2(const char* path, int flags) {
  NEXT(__open_2);
  const struct noted noted = about_to_open(here(path), flags);
  return opened(noted, next(path, flags));
}

int __open64_2(const char* path, int flags) {
  NEXT(__open64_2);
  const struct noted noted = about_to_open(here(path), flags);
  return opened(noted, next(path, flags));
}

int __openat_2(int at, const char* path, int flags) {
  NEXT(__openat_2);
  const struct noted noted = about_to_open(in(at, path), flags);
  return opened(noted, next(at, path, flags));
}

int __openat64_2(int at, const char* path, int flags) {
  NEXT(__openat64_2);
  const struct noted noted = about_to_open(in(at, path), flags);
  return opened(noted, next(at, path, flags));
}

int creat(const char* path, mode_t mode) {
  NEXT(creat);
  const struct noted noted = about_to_open(here(path), O_CREAT | O_WRONLY | O_TRUNC);
  return opened(noted, next(path, mode));
}

int creat64(const char* path, mode_t mode) {
  NEXT(creat64);
  const struct noted noted = about_to_open(here(path), O_CREAT | O_WRONLY | O_TRUNC);
  return opened(noted, next(path, mode));
}

FILE* fopen(const char* path, const char* mode) {
  NEXT(fopen);
  const struct noted noted = about_to_open(here(path), flags_of(mode));
  return opened_stream(noted, next(path, mode));
}

FILE* fopen64(const char* path, const char* mode) {
  NEXT(fopen64);
  const struct noted noted = about_to_open(here(path), flags_of(mode));
  return opened_stream(noted, next(path, mode));
}

FILE* freopen(const char* path, const char* mode, FILE* file) {
  NEXT(freopen);
  const struct noted noted = about_to_open(here(path), flags_of(mode));
  return opened_stream(noted, next(path, mode, file));
}

FILE* freopen64(const char* path, const char* mode, FILE* file) {
  NEXT(freopen64);
  const struct noted noted = about_to_open(here(path), flags_of(mode));
  return opened_stream(noted, next(path, mode, file));
}

// A temporary file or directory gets its name in `path` by the call.
static struct noted about_to_make(enum efs_event_kind kind, struct name name) {
  const struct noted noted = {
      .kind = kind, .order = is_recording() ? next_order() : 0, .first = name};
  return noted;
}

int mkstemp(char* path) {
  NEXT(mkstemp);
  const struct noted noted = about_to_make(EFS_EVENT_CREATE, here(path));
  return opened(noted, next(path));
}

int mkstemp64(char* path) {
  NEXT(mkstemp64);
  const struct noted noted = about_to_make(EFS_EVENT_CREATE, here(path));
  return opened(noted, next(path));
}

int mkostemp(char* path, int flags) {
  NEXT(mkostemp);
  const struct noted noted = about_to_make(EFS_EVENT_CREATE, here(path));
  return opened(noted, next(path, flags));
}

int mkostemp64(char* path, int flags) {
  NEXT(mkostemp64);
  const struct noted noted = about_to_make(EFS_EVENT_CREATE, here(path));
  return opened(noted, next(path, flags));
}

int mkstemps(char* path, int suffix) {
  NEXT(mkstemps);
  const struct noted noted = about_to_make(EFS_EVENT_CREATE, here(path));
  return opened(noted, next(path, suffix));
}

int mkstemps64(char* path, int suffix) {
  NEXT(mkstemps64);
  const struct noted noted = about_to_make(EFS_EVENT_CREATE, here(path));
  return opened(noted, next(path, suffix));
}

int mkostemps(char* path, int suffix, int flags) {
  NEXT(mkostemps);
  const struct noted noted = about_to_make(EFS_EVENT_CREATE, here(path));
  return opened(noted, next(path, suffix, flags));
}

int mkostemps64(char* path, int suffix, int flags) {
  NEXT(mkostemps64);
  const struct noted noted = about_to_make(EFS_EVENT_CREATE, here(path));
  return opened(noted, next(path, suffix, flags));
}

char* mkdtemp(char* path) {
  NEXT(mkdtemp);
  const struct noted noted = about_to_make(EFS_EVENT_MAKE_DIRECTORY, here(path));
  char* made = next(path);
  opened(noted, made == NULL ? -1 : 0);
  return made;
}

int mkdir(const char* path, mode_t mode) {
  NEXT(mkdir);
  const struct noted noted = about_to_make(EFS_EVENT_MAKE_DIRECTORY, here(path));
  return opened(noted, next(path, mode));
}

int mkdirat(int at, const char* path, mode_t mode) {
  NEXT(mkdirat);
  const struct noted noted = about_to_make(EFS_EVENT_MAKE_DIRECTORY, in(at, path));
  return opened(noted, next(at, path, mode));
}

// The kind is 0 for a directory.
static struct noted about_to_remove(struct name name) {
  struct noted noted = {.first = name};
  struct stat st;
  const int saved = errno;
  if (is_recording() && name.path != NULL &&
      fstatat(name.at, name.path, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode)) {
    noted.kind = EFS_EVENT_REMOVE;
    noted.size = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
  }
  errno = saved;
  return noted;
}

int unlink(const char* path) {
  NEXT(unlink);
  const struct noted noted = about_to_remove(here(path));
  return opened(noted, next(path));
}

int unlinkat(int at, const char* path, int flags) {
  NEXT(unlinkat);
  const struct noted noted = about_to_remove(in(at, path));
  return opened(noted, next(at, path, flags));
}

int remove(const char* path) {
  NEXT(remove);
  const struct noted noted = about_to_remove(here(path));
  return opened(noted, next(path));
}

static struct noted about_to_rename(struct name from, struct name to) {
  struct noted noted = about_to_make(EFS_EVENT_RENAME, from);
  noted.second = to;
  return noted;
}

int rename(const char* from, const char* to) {
  NEXT(rename);
  const struct noted noted = about_to_rename(here(from), here(to));
  return opened(noted, next(from, to));
}

int renameat(int from_at, const char* from, int to_at, const char* to) {
  NEXT(renameat);
  const struct noted noted = about_to_rename(in(from_at, from), in(to_at, to));
  return opened(noted, next(from_at, from, to_at, to));
}

int renameat2(int from_at, const char* from, int to_at, const char* to, unsigned flags) {
  NEXT(renameat2);
  const struct noted noted = about_to_rename(in(from_at, from), in(to_at, to));
  return opened(noted, next(from_at, from, to_at, to, flags));
}

// A hard link reads the file and makes a name.
static int linked(struct noted made, struct name from, int result) {
  if (result == 0) {
    const struct noted read = {.kind = EFS_EVENT_READ, .first = from};
    note(read);
    note(made);
  }
  return result;
}

int link(const char* from, const char* to) {
  NEXT(link);
  const struct noted noted = about_to_make(EFS_EVENT_CREATE, here(to));
  return linked(noted, here(from), next(from, to));
}

int linkat(int from_at, const char* from, int to_at, const char* to, int flags) {
  NEXT(linkat);
  const struct noted noted = about_to_make(EFS_EVENT_CREATE, in(to_at, to));
  return linked(noted, in(from_at, from), next(from_at, from, to_at, to, flags));
}

int symlink(const char* target, const char* path) {
  NEXT(symlink);
  const struct noted noted = about_to_make(EFS_EVENT_CREATE, here(path));
  return opened(noted, next(target, path));
}

int symlinkat(const char* target, int at, const char* path) {
  NEXT(symlinkat);
  const struct noted noted = about_to_make(EFS_EVENT_CREATE, in(at, path));
  return opened(noted, next(target, at, path));
}

int truncate(const char* path, off_t size) {
  NEXT(truncate);
  const struct noted noted = about_to_make(EFS_EVENT_UPDATE, here(path));
  return opened(noted, next(path, size));
}

int truncate64(const char* path, off64_t size) {
  NEXT(truncate64);
  const struct noted noted = about_to_make(EFS_EVENT_UPDATE, here(path));
  return opened(noted, next(path, size));
}
