// SPDX-License-Identifier: BSD-3-Clause
// libefs-record.so: `efs record` preloads it into a program. It notes the names of the files that
// the program opens, makes, removes and renames; see recording.h.
//
// A hook calls the next function of its name and returns the result unchanged, with its errno. It
// allocates nothing and takes no lock, so that it may run in a signal handler, between vfork and
// exec, and in several threads. It keeps no descriptor open.
#include "recorder/recording.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// Hooks for programs that were compiled with _FORTIFY_SOURCE.
int __open_2(const char* path, int flags);
int __open64_2(const char* path, int flags);
int __openat_2(int at, const char* path, int flags);
int __openat64_2(int at, const char* path, int flags);

// clang-format off: its result would change with each run
#define HOOKS(X) \
  X(open) X(open64) X(openat) X(openat64) X(__open_2) X(__open64_2) X(__openat_2) \
  X(__openat64_2) X(creat) X(creat64) X(fopen) X(fopen64) X(freopen) X(freopen64) \
  X(mkstemp) X(mkstemp64) X(mkostemp) X(mkostemp64) X(mkstemps) X(mkstemps64) \
  X(mkostemps) X(mkostemps64) X(mkdtemp) X(mkdir) X(mkdirat) X(unlink) X(unlinkat) \
  X(remove) X(rename) X(renameat) X(renameat2) X(link) X(linkat) X(symlink) X(symlinkat) \
  X(truncate) X(truncate64)
// clang-format on

#define AS_INDEX(name) hook_##name,
#define AS_TEXT(name) #name,

enum hook { HOOKS(AS_INDEX) hook_count };

static const char* const hook_names[] = {HOOKS(AS_TEXT)};

// Constant after begin().
static struct efs_recording* recording;
static void* next_functions[hook_count];

// Before begin() has run, another library may call a hook.
static void* next_of(enum hook hook) {
  void* next = __atomic_load_n(&next_functions[hook], __ATOMIC_RELAXED);
  if (next == NULL) {
    next = dlsym(RTLD_NEXT, hook_names[hook]);
    __atomic_store_n(&next_functions[hook], next, __ATOMIC_RELAXED);
  }
  return next;
}

// Declares `next`, the function that the program would have called.
#define NEXT(name)        \
  __typeof__(&name) next; \
  *(void**)(&next) = next_of(hook_##name)

// A name as a call has it: relative to the directory `at`.
struct name {
  int at;
  const char* path;  // NULL: no name
};

struct noted {
  enum efs_event_kind kind;
  uint64_t order, size;
  struct name first, second;
};

static uint64_t next_order(void) {
  return __atomic_fetch_add(&recording->order, 1, __ATOMIC_SEQ_CST);
}

static uint64_t hash_text(uint64_t hash, const char* text) {
  for (; *text != '\0'; ++text) {
    hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
  }
  return (hash ^ 0x100) * UINT64_C(0x100000001b3);
}

// Returns whether the recording has the event already; marks it as present.
static int is_seen(uint64_t hash) {
  enum { most_probes = 16 };

  hash = hash == 0 ? 1 : hash;
  for (unsigned probe = 0; probe < most_probes; ++probe) {
    uint64_t* place = &recording->seen[(hash + probe) % EFS_RECORDING_SEEN];
    uint64_t found = 0;
    if (__atomic_compare_exchange_n(place, &found, hash, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
      return 0;
    }
    if (found == hash) {
      return 1;
    }
  }
  return 0;
}

static void lose(void) {
  __atomic_fetch_add(&recording->lost, 1, __ATOMIC_RELAXED);
}

// Returns new space in the recording, with its length set; NULL: there is none.
static struct efs_event* reserve(size_t names) {
  const size_t rounding = EFS_RECORDING_ALIGNMENT - 1;
  const size_t length = (sizeof(struct efs_event) + names + rounding) & ~rounding;
  const uint64_t at = __atomic_fetch_add(&recording->used, length, __ATOMIC_RELAXED);
  if (at + length > recording->capacity) {
    lose();
    return NULL;
  }
  struct efs_event* event = (struct efs_event*)(void*)((char*)recording + at);
  __atomic_store_n(&event->length, (uint32_t)length, __ATOMIC_RELEASE);
  return event;
}

static size_t length_of(const char* directory, const char* path) {
  return path == NULL ? 0 : strlen(directory) + (*directory == '\0' ? 0 : 1) + strlen(path);
}

static char* append(char* to, const char* directory, const char* path) {
  if (path == NULL) {
    return to;
  }
  const size_t length = strlen(directory);
  memcpy(to, directory, length);
  to += length;
  if (length > 0) {
    *to++ = '/';
  }
  memcpy(to, path, strlen(path));
  return to + strlen(path);
}

// Appends the event, with each name behind its directory; "": the name is absolute.
static void put(const struct noted* noted, const char* first, const char* second) {
  uint64_t hash = hash_text(UINT64_C(0xcbf29ce484222325) + (uint64_t)noted->kind, first);
  hash = hash_text(hash, noted->first.path);
  if (noted->second.path != NULL) {
    hash = hash_text(hash_text(hash, second), noted->second.path);
  }
  if (is_seen(hash)) {
    return;
  }
  const size_t first_length = length_of(first, noted->first.path),
               second_length = length_of(second, noted->second.path);
  if (first_length > UINT16_MAX || second_length > UINT16_MAX) {
    lose();
    return;
  }
  struct efs_event* event = reserve(first_length + second_length);
  if (event == NULL) {
    return;
  }
  event->kind = (uint8_t)noted->kind;
  event->first_length = (uint16_t)first_length;
  event->second_length = (uint16_t)second_length;
  event->order = noted->order;
  event->size = noted->size;
  append(append((char*)(event + 1), first, noted->first.path), second, noted->second.path);
  __atomic_store_n(&event->done, 1, __ATOMIC_RELEASE);
}

static int is_absolute(struct name name) {
  return name.path == NULL || name.path[0] == '/';
}

// Stores the path of a link of /proc in `text`.
static void descriptor_path(int fd, char* text) {
  char digits[16];
  size_t count = 0;
  for (unsigned rest = (unsigned)fd; count == 0 || rest > 0; rest /= 10) {
    digits[count++] = (char)('0' + rest % 10);
  }
  memcpy(text, "/proc/self/fd/", 14);
  for (text += 14; count > 0; ++text) {
    *text = digits[--count];
  }
  *text = '\0';
}

// Stores the directory to which the name is relative; "" for an absolute name. Returns 0 if it is
// unknown.
static int find_directory(struct name name, char* directory) {
  directory[0] = '\0';
  if (is_absolute(name)) {
    return 1;
  }
  if (name.at == AT_FDCWD) {
    return syscall(SYS_getcwd, directory, PATH_MAX) > 0 && directory[0] == '/';
  }
  char link[32];
  descriptor_path(name.at, link);
  const ssize_t length = readlink(link, directory, PATH_MAX - 1);
  directory[length < 0 ? 0 : length] = '\0';
  return length > 0 && directory[0] == '/';
}

// Room for the directories of two names. A signal handler's stack has none, and a handler must not
// allocate. A thread that a fork leaves behind keeps its slot in the child.
enum { slot_count = 64 };

static struct {
  char first[PATH_MAX], second[PATH_MAX];
} slots[slot_count];

static uint64_t taken_slots;  // a bit for each

// Returns -1 if all are taken.
static int take_slot(void) {
  uint64_t taken = __atomic_load_n(&taken_slots, __ATOMIC_RELAXED);
  while (~taken != 0) {
    const int slot = __builtin_ctzll(~taken);
    if (__atomic_compare_exchange_n(&taken_slots, &taken, taken | UINT64_C(1) << slot, 0,
                                    __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
      return slot;
    }
  }
  return -1;
}

static void note_relative(const struct noted* noted) {
  const int slot = take_slot();
  if (slot < 0) {
    lose();
    return;
  }
  if (find_directory(noted->first, slots[slot].first) &&
      find_directory(noted->second, slots[slot].second)) {
    put(noted, slots[slot].first, slots[slot].second);
  } else {
    lose();
  }
  __atomic_fetch_and(&taken_slots, ~(UINT64_C(1) << slot), __ATOMIC_RELEASE);
}

// Appends an event. Without an order the event gets the current one.
static void note(struct noted noted) {
  if (recording == NULL || noted.first.path == NULL || noted.first.path[0] == '\0') {
    return;
  }
  const int saved = errno;
  if (noted.kind == EFS_EVENT_READ || noted.kind == EFS_EVENT_REMOVE) {
    noted.order = next_order();
  }
  if (is_absolute(noted.first) && is_absolute(noted.second)) {
    put(&noted, "", "");
  } else {
    note_relative(&noted);
  }
  errno = saved;
}

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
  if (recording == NULL || name.path == NULL || has_no_name) {
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

static struct name here(const char* path) {
  const struct name name = {.at = AT_FDCWD, .path = path};
  return name;
}

static struct name in(int at, const char* path) {
  const struct name name = {.at = at, .path = path};
  return name;
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
      .kind = kind, .order = recording == NULL ? 0 : next_order(), .first = name};
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
  if (recording != NULL && name.path != NULL &&
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

static int note_object(struct dl_phdr_info* object, size_t size, void* unused) {
  (void)size;
  (void)unused;
  const int has_path = object->dlpi_name != NULL && strchr(object->dlpi_name, '/') != NULL;
  if (has_path && strstr(object->dlpi_name, "/libefs-record.so") == NULL) {
    const struct noted noted = {.kind = EFS_EVENT_READ, .first = here(object->dlpi_name)};
    note(noted);
  }
  return 0;
}

// The loader opens libraries without a hook.
static void note_objects(void) {
  dl_iterate_phdr(note_object, NULL);
}

static void note_program(void) {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length > 0) {
    path[length] = '\0';
    const struct noted noted = {.kind = EFS_EVENT_READ, .first = here(path)};
    note(noted);
  }
}

// Maps the recording; NULL: there is none, and this process records nothing.
static struct efs_recording* map_recording(const char* path) {
  // When efs has ended, its number may be that of another process with any file there.
  const int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return NULL;
  }
  struct stat st;
  void* mapped = MAP_FAILED;
  if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
      (size_t)st.st_size > sizeof(struct efs_recording)) {
    mapped = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped != MAP_FAILED) {
      (void)madvise(mapped, (size_t)st.st_size, MADV_DONTDUMP);
    }
  }
  close(fd);
  struct efs_recording* found = mapped;
  return mapped == MAP_FAILED || found->magic != EFS_RECORDING_MAGIC ? NULL : found;
}

__attribute__((constructor)) static void begin(void) {
  const int saved = errno;
  for (int hook = 0; hook < hook_count; ++hook) {
    (void)next_of((enum hook)hook);
  }
  const char* path = getenv(EFS_RECORDING_VARIABLE);
  recording = path == NULL ? NULL : map_recording(path);
  if (recording != NULL) {
    __atomic_fetch_add(&recording->processes, 1, __ATOMIC_RELAXED);
    note_program();
    note_objects();
  }
  errno = saved;
}

__attribute__((destructor)) static void end(void) {
  if (recording != NULL) {
    note_objects();
  }
}
