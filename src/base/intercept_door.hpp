// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The contract of the daemon and the preloaded library (libefs-intercept). The door is a regular
// file that every directory of a mount has under one name that no listing shows. A process opens
// it for reading and maps it: it holds a DoorTable. The open door is the process's session; it
// ends with the process. This header includes nothing of ours and needs no run-time library.

#include <sys/ioctl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace efs {

inline constexpr char door_name[] = ".efs-door";
// Taken from the end of the range that the namespace never reaches.
inline constexpr std::uint64_t door_inode = 0xEF5D'0000'0000'0001;
inline constexpr std::uint64_t door_magic = 0x3130'524F'4F44'4645;  // "EFDOOR01"
inline constexpr std::size_t door_slots = 8192;

// An epoch counts what makes untrue what a client knows of a file: a truncation to any size, a
// punched hole (FALLOCATE), a set-ID bit, a file capability, an mtime that was
// set (a client would set it later for its last store). The daemon adds one after the
// change and before it answers the request. A client loads the epoch before it asks for the file
// (door_ask); as long as the epoch is the same, the answer holds. Two inodes may share a slot. A
// successor adds one to every epoch before it serves.
struct DoorTable {
  std::uint64_t magic;
  std::uint64_t slots;
  std::uint64_t reserved[510];
  std::atomic<std::uint64_t> epochs[door_slots];
};

static_assert(sizeof(DoorTable) == 4096 + (8 * door_slots));
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, 6.4).
constexpr std::size_t door_slot(std::uint64_t inode) {
  return static_cast<std::size_t>((inode * 0x9E37'79B9'7F4A'7C15U) >> (64 - 13));
}

static_assert(door_slots == std::size_t{1} << 13);

// The answer of a regular file on a mount. Any other file system answers ENOTTY. A client serves
// only bytes that the container holds: a load from a mapping of a hole would allocate a page. So
// the answer has the run of data (lseek(2), SEEK_DATA and SEEK_HOLE) that begins at or before
// `offset` and ends where the next hole or the file ends. data_begin may be `offset` itself where
// the begin of the run is not known; data_end <= offset: a hole is there.
struct DoorFile {
  std::uint64_t offset;  // the question
  std::uint64_t magic;   // the rest is the answer
  std::uint64_t inode;
  std::uint64_t size;
  std::uint64_t data_begin;
  std::uint64_t data_end;
  std::uint32_t mode;   // st_mode
  std::uint32_t flags;  // DoorFlags
};

enum DoorFlags : std::uint32_t {
  door_map_read = 1,   // reads may be served from a mapping of this descriptor
  door_map_write = 2,  // and writes: the kernel passes this open through to the container
};

// The calls that a client served since its last report, and those that it left to the kernel.
struct DoorCounts {
  std::uint64_t reads;
  std::uint64_t read_bytes;
  std::uint64_t writes;
  std::uint64_t written_bytes;
  std::uint64_t kernel_calls;
  std::uint64_t mapped_files;  // now, not since the last report
};

// Room for `bytes` behind the end of this file, which appends will need. The daemon reserves as
// much as its rule allows (EAGAIN: none) and gives back what is left at the last close.
struct DoorAhead {
  std::uint64_t bytes;
};

inline constexpr auto door_ask = static_cast<unsigned>(_IOWR(0xEF, 1, DoorFile));      // a file
inline constexpr auto door_report = static_cast<unsigned>(_IOW(0xEF, 2, DoorCounts));  // the door
inline constexpr auto door_ahead = static_cast<unsigned>(_IOW(0xEF, 3, DoorAhead));    // a file

}  // namespace efs
