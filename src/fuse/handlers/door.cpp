// SPDX-License-Identifier: BSD-3-Clause
// The door (base/intercept_door.hpp), and what its clients ask of files.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "base/slow_work.hpp"
#include "fuse/connection.hpp"
#include "fuse/handlers/handlers.hpp"

namespace efs::fuse::handle {

void refuse_at_door(Request& request, Operation operation) {
  request.observe({.ino = door_inode});
  switch (operation) {
    case Operation::fsync: return request.reply_error(0);
    case Operation::getxattr: return request.reply_error(ENODATA);
    case Operation::listxattr: return request.reply_error(EOPNOTSUPP);
    case Operation::lseek: return request.reply_error(EINVAL);
    default: return request.reply_error(EPERM);
  }
}

// The kernel keeps its pages of the door over a close: an epoch that is older than the client's
// question is as good as that of now, because each later one differs.
void open_door(Request& request, fuse_file_info* info) {
  request.observe({.ino = door_inode});
  Connection& connection = request.connection();
  if ((info->flags & O_ACCMODE) != O_RDONLY) {
    return request.reply_error(EACCES);
  }
  const auto acquired =
      connection.backing.acquire(door_inode, connection.backing.enabled(),
                                 std::optional(connection.door.memory().descriptor()));
  if (!acquired) {
    return request.reply_error(acquired.error().code);
  }
#if EFS_HAVE_PASSTHROUGH
  info->backing_id = acquired->id;
#endif
  info->keep_cache = acquired->id == 0 ? 1 : 0;
  info->noflush = 1;
  info->fh = connection.door.clients().opened(request.pid());
  if (!request.reply_open(*info)) {
    connection.door.clients().closed(info->fh);
    connection.backing.release(door_inode);
  }
}

void read_door(Request& request, std::size_t size, off_t offset) {
  request.observe({.ino = door_inode, .offset = static_cast<std::uint64_t>(offset), .size = size});
  const auto buffer = request.buffer(size);
  const ssize_t got =
      ::pread(request.connection().door.memory().descriptor(), buffer.data(), size, offset);
  if (got < 0) {
    return request.reply_error(errno);
  }
  request.reply_buffer(buffer.first(static_cast<std::size_t>(got)));
}

void release_door(Request& request, const fuse_file_info* info) {
  request.observe({.ino = door_inode});
  Connection& connection = request.connection();
  if (connection.door.clients().closed(info->fh)) {
    connection.backing.release(door_inode);
  }
  request.reply_error(0);
}

namespace {

void take_report(Request& request, const Ioctl& call) {
  DoorCounts counts{};
  if (call.in_size < sizeof counts) {
    return request.reply_error(EINVAL);
  }
  std::memcpy(&counts, call.in, sizeof counts);
  request.connection().door.clients().reported(call.info->fh, request.pid(), counts);
  request.reply_ioctl({});
}

// A mapping shows what other opens write, unless the open has no pages.
std::uint32_t flags_of(Connection& connection, std::uint64_t ino, bool carries_privilege) {
  const bool passes_through = connection.backing.passes_through(ino);
  std::uint32_t flags = 0;
  if (passes_through || !connection.uncached) {
    flags |= door_map_read;
  }
  if (passes_through && !carries_privilege) {
    flags |= door_map_read | door_map_write;
  }
  return flags;
}

struct Run {
  std::uint64_t begin, end;
};

// Only a file that the kernel passes through is mapped itself: a load from any other asks the
// daemon, which leaves holes as they are. A file with as many blocks as bytes has no hole, so that
// nothing is searched; the search takes some 25 ms for each GiB of a tmpfs. But room behind the end
// has blocks, too.
Run run_at(fs::Filesystem& filesystem, const struct stat& file, std::uint64_t offset) {
  constexpr std::uint64_t soon_searched = std::uint64_t{16} << 20;
  constexpr std::uint64_t block = 512, page = 4096;
  const auto size = static_cast<std::uint64_t>(file.st_size);
  const std::uint64_t held = static_cast<std::uint64_t>(file.st_blocks) * block;
  if (held >= size && held < size + page && !filesystem.room().has(file.st_ino)) {
    return {.begin = 0, .end = size};
  }
  if (size > soon_searched) {
    slow_work_begins();
  }
  const auto data = filesystem.seek(file.st_ino, offset, SEEK_DATA);
  if (!data || *data != offset) {
    return {.begin = offset, .end = offset};
  }
  return {.begin = offset, .end = filesystem.seek(file.st_ino, offset, SEEK_HOLE).value_or(offset)};
}

void answer_about(Request& request, const Ioctl& call) {
  DoorFile answer{};
  if (call.out_size < sizeof answer || call.in_size < sizeof answer) {
    return request.reply_error(EINVAL);
  }
  std::memcpy(&answer, call.in, sizeof answer);
  fs::Filesystem& filesystem = request.filesystem();
  const auto entry = filesystem.getattr(call.ino);
  if (!entry) {
    return request.reply_error(entry.error().code);
  }
  if (!S_ISREG(entry->attributes.st_mode)) {
    return request.reply_error(ENOTTY);
  }
  const auto size = static_cast<std::uint64_t>(entry->attributes.st_size);
  Connection& connection = request.connection();
  const Run run = connection.backing.passes_through(call.ino)
                      ? run_at(filesystem, entry->attributes, answer.offset)
                      : Run{.begin = 0, .end = size};
  answer = {.offset = answer.offset,
            .magic = door_magic,
            .inode = call.ino,
            .size = size,
            .data_begin = run.begin,
            .data_end = run.end,
            .mode = entry->attributes.st_mode,
            .flags = flags_of(connection, call.ino, filesystem.carries_privilege(call.ino))};
  request.reply_ioctl(std::as_bytes(std::span(&answer, 1)));
}

// The kernel does not say how the descriptor is open. So who reads can make no more than this room
// for somebody else who writes.
void take_room(Request& request, const Ioctl& call) {
  DoorAhead wanted{};
  if (call.in_size < sizeof wanted) {
    return request.reply_error(EINVAL);
  }
  std::memcpy(&wanted, call.in, sizeof wanted);
  const auto room = request.filesystem().room().take(call.ino, wanted.bytes);
  if (!room) {
    return request.reply_error(room.error().code == EINVAL ? ENOTTY : room.error().code);
  }
  request.reply_ioctl({});
}

}  // namespace

void ioctl(Request& request, const Ioctl& call) {
  request.observe({.ino = call.ino});
  const bool is_door = call.ino == door_inode;
  if (!request.connection().door.exists() || (call.flags & FUSE_IOCTL_DIR) != 0) {
    return request.reply_error(ENOTTY);
  }
  if (is_door && call.command == door_report) {
    return take_report(request, call);
  }
  if (!is_door && call.command == door_ask) {
    return answer_about(request, call);
  }
  if (!is_door && call.command == door_ahead) {
    return take_room(request, call);
  }
  request.reply_error(ENOTTY);
}

}  // namespace efs::fuse::handle
