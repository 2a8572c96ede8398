// SPDX-License-Identifier: BSD-3-Clause
// libefs-record.so: `efs record` preloads it into a program. It notes the names of the files that
// the program opens, makes, removes and renames; see recording.h.
//
// A hook calls the next function of its name and returns the result unchanged, with its errno. It
// allocates nothing and takes no lock, so that it may run in a signal handler, between vfork and
// exec, and in several threads. It keeps no descriptor open.
#include "recorder/hooks.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char* const hook_names[] = {HOOKS(AS_TEXT)};

// Constant after begin().
static struct efs_recording* recording;
static void* next_functions[hook_count];

// Before begin() has run, another library may call a hook.
void* next_of(enum hook hook) {
  void* next = __atomic_load_n(&next_functions[hook], __ATOMIC_RELAXED);
  if (next == NULL) {
    next = dlsym(RTLD_NEXT, hook_names[hook]);
    __atomic_store_n(&next_functions[hook], next, __ATOMIC_RELAXED);
  }
  return next;
}

int is_recording(void) {
  return recording != NULL;
}

uint64_t next_order(void) {
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

void note(struct noted noted) {
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
