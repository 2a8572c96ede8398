// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the hooks (hooks.c) and the recording (recorder.c) of libefs-record.so share.

#include "recorder/recording.h"

#include <fcntl.h>
#include <stddef.h>

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

// The library exports the hooks alone.
#pragma GCC visibility push(hidden)

// A name as a call has it: relative to the directory `at`.
struct name {
  int at;
  const char* path;  // NULL: no name
};

// An event before it is recorded.
struct noted {
  enum efs_event_kind kind;
  uint64_t order, size;
  struct name first, second;
};

/// The next function of the name of a hook.
void* next_of(enum hook hook);

/// Returns whether this process records.
int is_recording(void);

/// Returns the number of the next event. The process must record.
uint64_t next_order(void);

/// Appends an event if the process records. A read and a removal get the current number. Keeps
/// errno.
void note(struct noted noted);

static inline struct name in(int at, const char* path) {
  const struct name name = {.at = at, .path = path};
  return name;
}

static inline struct name here(const char* path) {
  return in(AT_FDCWD, path);
}

#pragma GCC visibility pop
