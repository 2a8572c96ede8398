// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The recording of `efs record`: memory that libefs-record.so shares between the processes of the
// recorded program. Each process appends events; efs reads them when the program has ended. C and
// C++.
//
// The file has a `struct efs_recording`, then events one behind the other. A process reserves the
// space of an event by an atomic addition to `used`, stores `length`, then the rest, then `done`. A
// killed process can leave space of zeros, or an event that is not done; the next event follows it.

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// The variable of the environment that has the path of the recording.
#define EFS_RECORDING_VARIABLE "EFS_RECORDING"

enum {
  EFS_RECORDING_SEEN = 1 << 17,  // places for hashes of events; a power of two
  EFS_RECORDING_ALIGNMENT = 8    // of events, in bytes
};

#define EFS_RECORDING_MAGIC UINT64_C(0x31647265722d7366)

enum efs_event_kind {
  EFS_EVENT_READ = 1,       // opened only for reading, or loaded as a program or a library
  EFS_EVENT_UPDATE = 2,     // an existing file was opened for writing, and keeps its content
  EFS_EVENT_OVERWRITE = 3,  // an existing file was emptied
  EFS_EVENT_CREATE = 4,     // a name that did not exist
  EFS_EVENT_REMOVE = 5,
  EFS_EVENT_RENAME = 6,  // from the first name to the second one
  EFS_EVENT_MAKE_DIRECTORY = 7
};

struct efs_event {
  uint32_t length;  // of the event with its names, in bytes; a multiple of the alignment
  uint8_t kind;
  uint8_t done;
  uint16_t first_length, second_length;  // bytes of the names behind the event, without a NUL
  uint16_t unused[3];
  // A smaller number is earlier. An event that makes a name has its number before the name exists,
  // any other event has it when its call has returned.
  uint64_t order;
  uint64_t size;  // of a removed file
};

struct efs_recording {
  uint64_t magic;
  uint64_t capacity;                  // bytes of the file
  uint64_t used;                      // bytes of the file; may exceed the capacity
  uint64_t order;                     // the next number
  uint64_t lost;                      // events without space or without a name
  uint64_t processes;                 // that loaded the library
  uint64_t seen[EFS_RECORDING_SEEN];  // hashes of events, so that a repeated event has no entry
};

#ifdef __cplusplus
}
#endif
