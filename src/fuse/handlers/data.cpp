// SPDX-License-Identifier: BSD-3-Clause
// Open files and their bytes.
#include <fcntl.h>

#include <cerrno>
#include <new>
#include <span>
#include <utility>

#include "fuse/connection.hpp"
#include "fuse/convert.hpp"
#include "fuse/handlers/handlers.hpp"
#include "fuse/mapped_pages.hpp"

namespace efs::fuse::handle {
namespace {

struct Opening {
  fuse_ino_t ino;
  fuse_file_info* info;
  bool just_made = false;  // by the same request
};

// The kernel may serve a small file from its own pages while no program can write past them. If
// each read counts for the access time, none may be served so.
bool suits_pages(const Connection& connection, fuse_ino_t ino, int flags) {
  fs::Filesystem& filesystem = connection.filesystem;
  if ((flags & (O_ACCMODE | O_TRUNC | O_DIRECT)) != O_RDONLY || connection.uncached ||
      filesystem.every_walk_counts() || !filesystem.is_counted_quiet(ino)) {
    return false;
  }
  const auto entry = filesystem.getattr(ino);
  const bool has_container = entry && !entry->may_change_unseen;
  return has_container &&
         static_cast<std::uint64_t>(entry->attributes.st_size) <= FullTablePolicy::most_bytes;
}

// From acquire_unregistered() on every open takes the daemon's path. A mapping of an open before it
// could still change the file unseen: then the open counts as not made.
Result<BackingTable::Acquired> count_small(Connection& connection, fuse_ino_t ino) {
  const auto acquired = connection.backing.acquire_unregistered(ino);
  if (acquired && acquired->unregistered && !connection.filesystem.is_counted_quiet(ino)) {
    connection.backing.release(ino);
    return BackingTable::Acquired{.needs_container = true};
  }
  return acquired;
}

// The open of a new file does not fail if no descriptor is available: the daemon's path needs no
// descriptor yet.
Result<BackingTable::Acquired> count_open(Connection& connection, const Opening& opening,
                                          bool wanted) try {
  const auto [ino, info, just_made] = opening;
  auto acquired = connection.backing.acquire(ino, wanted, nullptr);
  if (acquired && acquired->small_without && suits_pages(connection, ino, info->flags)) {
    acquired = count_small(connection, ino);
  }
  if (!acquired || !acquired->needs_container) {
    return acquired;
  }
  const auto container = connection.filesystem.container(ino);
  if (!container && !just_made) {
    return std::unexpected(container.error());
  }
  return connection.backing.acquire(ino, container.has_value(),
                                    container ? container->get() : nullptr);
} catch (const std::bad_alloc&) {
  return opening.just_made ? connection.backing.acquire(opening.ino, false, nullptr) : fail(ENOMEM);
}

// The kernel's caches of an open file. A mapping with passthrough would leave kept pages stale, but
// not those of an unregistered open: there is no such mapping, and each open with passthrough drops
// all pages. The daemon does not see reads that the kernel serves from its cache.
void choose_caching(const Connection& connection, fuse_ino_t ino,
                    const BackingTable::Acquired& acquired, fuse_file_info& info) {
#if EFS_HAVE_PASSTHROUGH
  info.backing_id = acquired.id;
#endif
  info.direct_io = connection.uncached && acquired.id == 0 ? 1 : 0;
  // Not parallel_direct_writes: two writes that overlap would mix, one of several requests always,
  // and each on persistent memory. On other file systems the inode's lock keeps them apart.
  const bool stay_right = !connection.backing.enabled() || acquired.unregistered;
  info.keep_cache = stay_right && !connection.filesystem.read_moves_atime(ino, info.flags) ? 1 : 0;
  info.noflush = 1;
}

// The kernel has cached that this file has no blocks, and will hold its data now: as_cached().
bool gets_first_blocks(fs::Filesystem& filesystem, fuse_ino_t ino, int flags) try {
  if ((flags & O_ACCMODE) == O_RDONLY) {
    return false;
  }
  const auto entry = filesystem.getattr(ino);
  return entry && entry->attributes.st_blocks == 0;
} catch (const std::bad_alloc&) {  // not further up: the open is counted

  return true;
}

// Opens a file for the client and chooses the kernel's or the daemon's path for the I/O.
Result<BackingTable::Acquired> open_file(const Request& request, const Opening& opening) {
  Connection& connection = request.connection();
  fs::Filesystem& filesystem = connection.filesystem;
  const auto [ino, info, just_made] = opening;
  if ((info->flags & O_ACCMODE) != O_RDONLY) {
    filesystem.keep_reserve();  // writes by passthrough ask for no room
  }
  auto opened = filesystem.with_room(
      [&] { return filesystem.open(request.caller(), ino, info->flags, just_made); });
  if (!opened) {
    return std::unexpected(opened.error());
  }
  const auto acquired = count_open(connection, opening, opened->passthrough);
  if (!acquired) {
    filesystem.release(opened->handle);
    return std::unexpected(acquired.error());
  }
  info->fh = opened->handle;
  if (acquired->id == 0) {
    filesystem.note_daemon_path(opened->handle);
  }
  // Invalidates attributes only (no offset), because this takes no lock of the kernel that a
  // request may hold.
  const bool stale = connection.writeback ? gets_first_blocks(filesystem, ino, info->flags)
                                          : opened->attributes_go_stale;
  if (stale && !just_made && connection.session != nullptr) {
    fuse_lowlevel_notify_inval_inode(connection.session, ino, -1, 0);
  }
  connection.counters.opens.fetch_add(1, std::memory_order_relaxed);
  if (connection.usage != nullptr) {
    connection.usage->opened.mark(ino);
  }
  if (connection.put_aside != nullptr) {
    connection.put_aside->opened(ino);
  }
  if (acquired->id != 0) {
    connection.counters.passthrough_opens.fetch_add(1, std::memory_order_relaxed);
  }
  choose_caching(connection, ino, *acquired, *info);
  return acquired;
}

// A repeated request may release what an earlier worker has released.
void close_file(Connection& connection, fuse_ino_t ino, const fuse_file_info* info) {
  if (connection.filesystem.release(info->fh)) {
    connection.backing.release(ino);
  }
}

// Opens the new file and replies. Revokes the open and the reference if the client was interrupted.
// If the file cannot be opened, calls remove_name(ino) before the reply.
template <typename RemoveName>
void reply_created(Request& request, const Result<fs::Entry>& entry, fuse_file_info* info,
                   const RemoveName& remove_name) {
  Connection& connection = request.connection();
  if (!entry) {
    return request.reply_error(entry.error().code);
  }
  const fuse_ino_t ino = entry->ino;
  if (const auto opened = open_file(request, {.ino = ino, .info = info, .just_made = true});
      !opened) {
    try {
      remove_name(ino);
    } catch (const std::bad_alloc&) {
    }  // an empty file stays
    request.reply_error(opened.error().code);
    return after_reply([&] { forget_references(connection, ino, 1); });
  }
  fs::Entry made = *entry;
  made.written_now = (info->flags & O_ACCMODE) != O_RDONLY;
  made.may_change_now = (info->flags & O_ACCMODE) == O_RDWR;
  const fuse_entry_param param = to_entry(as_cached(connection, made));
  if (!request.reply_create(param, *info)) {
    after_reply([&] {
      close_file(connection, ino, info);
      forget_references(connection, ino, 1);
    });
  }
}

}  // namespace

void open(Request& request, fuse_ino_t ino, fuse_file_info* info) {
  if (ino == door_inode) {
    return open_door(request, info);
  }
  request.observe({.ino = ino});
  Connection& connection = request.connection();
  // The kernel then looks the name up again. Without that it appends at the end of the old version.
  if (request.has_waited_for_another()) {
    return request.reply_error(ESTALE);
  }
  const auto opened = open_file(request, {.ino = ino, .info = info});
  if (!opened && needs_content(opened.error())) {
    return request.wait_for_content(ino);
  }
  if (!opened) {
    return request.reply_error(opened.error().code);
  }
  if (!request.reply_open(*info)) {
    after_reply([&] { close_file(connection, ino, info); });
  }
  // if the next open comes before the batch is registered, that open registers its own file
  if (opened->row) {
    after_reply([&] { connection.batch_registrar.run(ino); });
  }
}

void create(Request& request, fuse_ino_t parent, const char* name, mode_t mode,
            fuse_file_info* info) {
  request.observe({.ino = parent, .name = name});
  auto made = make_node(request, parent, name, S_IFREG | (mode & 07777), 0);
  // A load has made the name since the kernel's lookup: after ESTALE the kernel looks the name up
  // again, and checks whether the client may open the file.
  if (!made && made.error().code == EEXIST && (info->flags & O_EXCL) == 0) {
    made = fail(ESTALE);
  }
  // A create that fails must leave no name behind. Until the reply the kernel holds the directory,
  // so no program can have opened the file; only a load can have replaced it.
  reply_created(request, made, info,
                [&](fuse_ino_t ino) { (void)request.filesystem().unlink_only(parent, name, ino); });
  fill_pool(request.connection());
}

#if EFS_HAVE_PASSTHROUGH
void tmpfile(Request& request, fuse_ino_t parent, mode_t mode, fuse_file_info* info) {
  request.observe({.ino = parent});
  fs::Filesystem& filesystem = request.filesystem();
  const auto entry = filesystem.with_room(
      [&] { return filesystem.make_nameless(request.caller(), parent, mode); });
  reply_created(request, entry, info, [](fuse_ino_t) {});
  fill_pool(request.connection());
}
#endif

namespace {

// A limit counts the bytes of the answer, not those that were asked for.
void give_back(Request& request, Limited what, std::size_t asked, const Result<std::size_t>& done) {
  const std::size_t served = done.value_or(0);
  if (request.connection().paced && served < asked) {
    request.connection().paced->give_back(what, asked - served);
  }
}

}  // namespace

void read(Request& request, fuse_ino_t ino, std::size_t size, off_t offset, fuse_file_info* info) {
  if (ino == door_inode) {
    return read_door(request, size, offset);
  }
  const auto from = static_cast<std::uint64_t>(offset);
  request.observe({.ino = ino, .offset = from, .size = size});
  const auto buffer = request.buffer(size);
  // The kernel completes a page for a write: this is no access.
  const bool completes = (info->flags & O_ACCMODE) == O_WRONLY;
  const auto n = request.filesystem().read(ino, buffer, from,
                                           completes ? info->flags | O_NOATIME : info->flags);
  give_back(request, Limited::read, size, n);
  if (!n) {
    return request.reply_error(n.error().code);
  }
  request.connection().counters.read_bytes.fetch_add(*n, std::memory_order_relaxed);
  request.reply_buffer(buffer.first(*n));
}

void write(Request& request, const Write& write) {
  const auto from = static_cast<std::uint64_t>(write.offset);
  request.observe({.ino = write.ino, .offset = from, .size = write.size});
  const auto bytes = std::as_bytes(std::span(write.data, write.size));
  fs::Filesystem& filesystem = request.filesystem();
  const auto store = [&](std::size_t done) -> Result<std::size_t> {
    try {
      return filesystem.with_room([&] {
        return filesystem.write(request.caller(), write.ino, bytes.subspan(done), from + done);
      });
    } catch (const std::bad_alloc&) {  // not further up: the write may have to be recorded as lost
      return fail(ENOMEM);
    }
  };
  auto n = store(0);
  // The kernel ignores a short count for its own pages, and the rest would be lost without an
  // error.
  while (n && write.info->writepage != 0 && *n < bytes.size()) {
    const auto more = store(*n);
    n = more && *more == 0 ? fail(ENOSPC) : more ? Result<std::size_t>(*n + *more) : more;
  }
  give_back(request, Limited::write, write.size, n);
  if (!n && write.info->writepage != 0 && filesystem.record_lost_write(write.ino)) {
    log::error("event=write_lost ino={} reason=\"{}\" note=\"a stop will not export the file\"",
               write.ino, describe(n.error()));
  }
  if (!n) {
    return request.reply_error(n.error().code);
  }
  request.connection().counters.written_bytes.fetch_add(*n, std::memory_order_relaxed);
  request.reply_write(*n);
}

void release(Request& request, fuse_ino_t ino, fuse_file_info* info) {
  if (ino == door_inode) {
    return release_door(request, info);
  }
  request.observe({.ino = ino});
  close_file(request.connection(), ino, info);
  request.reply_error(0);
}

// After ENOSYS the kernel answers all later calls itself, with success. It has written the file's
// mapped pages before it asks.
void fsync(Request& request, fuse_ino_t ino, int data_only, fuse_file_info*) {
  request.observe({.ino = ino});
  if (request.filesystem().needs_no_sync()) {
    return request.reply_error(ENOSYS);
  }
  request.reply(request.filesystem().fsync(ino, data_only != 0));
}

void fallocate(Request& request, const Fallocate& range) {
  const auto offset = static_cast<std::uint64_t>(range.offset);
  const auto length = static_cast<std::uint64_t>(range.length);
  request.observe({.ino = range.ino, .offset = offset, .size = length});
  fs::Filesystem& filesystem = request.filesystem();
  const Status done = filesystem.with_room(
      [&] { return filesystem.allocate(request.caller(), range.ino, range.mode, offset, length); });
  Door& door = request.connection().door;
  if (fs::makes_holes(range.mode) && door.has_cached_pages(request.connection())) {
    return door.pages().store_then(
        range.ino, [done, request = std::move(request)]() mutable { request.reply(done); });
  }
  request.reply(done);
}

void lseek(Request& request, fuse_ino_t ino, off_t offset, int whence, fuse_file_info*) {
  const auto from = static_cast<std::uint64_t>(offset);
  request.observe({.ino = ino, .offset = from});
  // The container lacks what the kernel has collected. After ENOSYS the kernel reports each whole
  // file as data, of the size that it has.
  if (request.connection().writeback) {
    return request.reply_error(ENOSYS);
  }
  const auto at = seek(request.connection(), ino, from, whence);
  if (!at) {
    return request.reply_error(at.error().code);
  }
  request.reply_lseek(*at);
}

}  // namespace efs::fuse::handle
