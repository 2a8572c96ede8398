// SPDX-License-Identifier: BSD-3-Clause
// Names and directories.
#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "fuse/connection.hpp"
#include "fuse/convert.hpp"
#include "fuse/handlers/handlers.hpp"

namespace efs::fuse::handle {
namespace {

// For the report: the job looked for this name in vain. No report lists a name that it makes later.
void note_missed(const Request& request, fuse_ino_t parent, const char* name) {
  if (Usage* usage = request.connection().usage; usage != nullptr) {
    usage->missed.add(parent, name);
  }
}

void note_made(const Request& request, fuse_ino_t parent, const char* name) {
  if (Usage* usage = request.connection().usage; usage != nullptr) {
    usage->missed.remove(parent, name);
  }
}

// A rename of a directory waits for one file after the other. All are fetched at once, in this
// order.
void wait_for_contents(Request& request, const std::vector<std::uint64_t>& remote) {
  if (PutAside* aside = request.connection().put_aside) {
    aside->want_all(std::span(remote).first(remote.size() - 1));
  }
  request.wait_for_content(remote.back());
}

}  // namespace

void lookup(Request& request, fuse_ino_t parent, const char* name) {
  request.observe({.ino = parent, .name = name});
  if (request.connection().door.is_called(name)) {
    return request.reply_entry(Door::entry());
  }
  const auto entry = request.filesystem().lookup(parent, name);
  if (!entry && entry.error().code == ENOENT) {
    note_missed(request, parent, name);
    return request.reply_no_entry();
  }
  if (entry && entry->is_new && !S_ISDIR(entry->attributes.st_mode)) {
    request.connection().walks.looked_up();
  }
  request.reply_entry(entry);
}

void forget(Request& request, fuse_ino_t ino, std::uint64_t count) {
  request.observe_forget(ino, count);
  forget_references(request.connection(), ino, count);
  request.reply_none();
}

void forget_multi(Request& request, std::size_t count, fuse_forget_data* forgets) {
  for (const auto& one : std::span(forgets, count)) {
    request.observe_forget(one.ino, one.nlookup);
    forget_references(request.connection(), one.ino, one.nlookup);
  }
  request.reply_none();
}

Result<fs::Entry> make_node(const Request& request, fuse_ino_t parent, const char* name,
                            mode_t mode, dev_t rdev) {
  note_made(request, parent, name);
  fs::Filesystem& filesystem = request.filesystem();
  return filesystem.with_room(
      [&] { return filesystem.make_node(request.caller(), parent, name, mode, rdev); });
}

void mknod(Request& request, fuse_ino_t parent, const char* name, mode_t mode, dev_t rdev) {
  request.observe({.ino = parent, .name = name});
  request.reply_entry(make_node(request, parent, name, mode, rdev));
}

void mkdir(Request& request, fuse_ino_t parent, const char* name, mode_t mode) {
  request.observe({.ino = parent, .name = name});
  request.reply_entry(make_node(request, parent, name, S_IFDIR | mode, 0));
}

void symlink(Request& request, const char* target, fuse_ino_t parent, const char* name) {
  request.observe({.ino = parent, .name = name, .new_name = target});
  note_made(request, parent, name);
  fs::Filesystem& filesystem = request.filesystem();
  request.reply_entry(filesystem.with_room(
      [&] { return filesystem.make_symlink(request.caller(), parent, name, target); }));
}

void readlink(Request& request, fuse_ino_t ino) {
  request.observe({.ino = ino});
  const auto target = request.filesystem().readlink(ino);
  if (!target) {
    return request.reply_error(target.error().code);
  }
  request.reply_readlink(*target);
}

void link(Request& request, fuse_ino_t ino, fuse_ino_t new_parent, const char* new_name) {
  request.observe({.ino = ino, .new_parent = new_parent, .new_name = new_name});
  note_made(request, new_parent, new_name);
  fs::Filesystem& filesystem = request.filesystem();
  const auto linked = filesystem.with_room(
      [&] { return filesystem.link(request.caller(), ino, new_parent, new_name); });
  if (!linked && needs_content(linked.error())) {
    return request.wait_for_content(ino);
  }
  request.reply_entry(linked);
}

void unlink(Request& request, fuse_ino_t parent, const char* name) {
  request.observe({.ino = parent, .name = name});
  if (request.connection().door.is_called(name)) {
    return request.reply_error(EPERM);
  }
  request.reply(request.filesystem().unlink(request.caller(), parent, name));
}

void rmdir(Request& request, fuse_ino_t parent, const char* name) {
  request.observe({.ino = parent, .name = name});
  request.reply(request.filesystem().rmdir(request.caller(), parent, name));
}

void rename(Request& request, const Rename& rename) {
  request.observe({.ino = rename.parent,
                   .name = rename.name,
                   .new_parent = rename.new_parent,
                   .new_name = rename.new_name});
  const Door& door = request.connection().door;
  if (door.is_called(rename.name) || door.is_called(rename.new_name)) {
    return request.reply_error(EPERM);
  }
  note_made(request, rename.new_parent, rename.new_name);
  fs::Filesystem& filesystem = request.filesystem();
  const std::string name = rename.name, new_name = rename.new_name;
  const auto do_rename = [&] {
    return filesystem.rename(request.caller(), {rename.parent, name}, {rename.new_parent, new_name},
                             rename.flags);
  };
  Status renamed = filesystem.with_room(do_rename);
  while (!renamed && needs_content(renamed.error())) {
    const auto remote = filesystem.remote_in_rename({rename.parent, name},
                                                    {rename.new_parent, new_name}, rename.flags);
    if (!remote.empty() && !filesystem.fit_at_once({rename.parent, name},
                                                   {rename.new_parent, new_name}, rename.flags)) {
      return request.reply_error(ENOSPC);
    }
    if (!remote.empty()) {
      return wait_for_contents(request, remote);
    }
    renamed = filesystem.with_room(do_rename);  // the last one was fetched meanwhile
  }
  request.reply(renamed);
}

// An open directory has no state here. After ENOSYS the kernel opens and closes directories without
// a request, and keeps what it has read of them. A trace has each of these requests.
void opendir(Request& request, fuse_ino_t ino, fuse_file_info* info) {
  request.observe({.ino = ino});
  const Connection& connection = request.connection();
  const bool is_kept = !request.filesystem().every_walk_counts();
  if (is_kept && connection.opens_directories_itself && !connection.observer.listens()) {
    return request.reply_error(ENOSYS);
  }
  info->cache_readdir = info->keep_cache = is_kept ? 1 : 0;
  (void)request.reply_open(*info);
}

void readdir(Request& request, fuse_ino_t ino, std::size_t size, off_t offset, fuse_file_info*) {
  request.observe({.ino = ino, .offset = static_cast<std::uint64_t>(offset), .size = size});
  const auto items =
      request.filesystem().readdir(ino, static_cast<std::uint64_t>(offset), size / 32 + 1);
  if (!items) {
    return request.reply_error(items.error().code);
  }
  const auto buffer = request.buffer(size);
  std::size_t used = 0;
  for (const auto& item : *items) {
    const std::size_t needed = request.add_entry(buffer.subspan(used), item);
    if (needed > size - used) {
      break;
    }
    used += needed;
  }
  request.reply_buffer(buffer.first(used));
}

namespace {

// What the kernel should be told of an entry, with a reference; nothing if it knows the file or
// does not need to. Sinks would miss the name of a file that the kernel does not look up.
fuse_entry_param told_of(Connection& connection, const fs::Filesystem::DirectoryItem& item) try {
  const bool is_self = item.name == "." || item.name == "..";
  if (is_self || item.known || connection.observer.listens() ||
      (item.type != S_IFDIR && !connection.walks.tells())) {
    return {};
  }
  const auto entry = connection.filesystem.introduce(item.ino);
  return entry ? to_entry(as_cached(connection, *entry)) : fuse_entry_param{};
} catch (const std::bad_alloc&) {  // the reply must not be lost: it has references

  return {};
}

}  // namespace

void readdirplus(Request& request, fuse_ino_t ino, std::size_t size, off_t offset,
                 fuse_file_info*) {
  constexpr std::size_t smallest_entry = 152;
  request.observe({.ino = ino, .offset = static_cast<std::uint64_t>(offset), .size = size});
  Connection& connection = request.connection();
  if (offset == 0) {
    connection.walks.begin();
  }
  const auto items = request.filesystem().readdir(ino, static_cast<std::uint64_t>(offset),
                                                  size / smallest_entry + 1);
  if (!items) {
    return request.reply_error(items.error().code);
  }
  const auto buffer = request.buffer(size);
  std::size_t used = 0;
  for (const auto& item : *items) {
    const auto rest = buffer.subspan(used);
    const std::size_t needed = request.size_of_entry_plus(item);
    if (needed > rest.size()) {
      break;
    }
    request.add_entry_plus(rest, item, told_of(connection, item));
    used += needed;
  }
  request.reply_buffer(buffer.first(used));
}

void releasedir(Request& request, fuse_ino_t ino, fuse_file_info*) {
  request.observe({.ino = ino});
  request.reply_error(0);
}

void fsyncdir(Request& request, fuse_ino_t ino, int, fuse_file_info*) {
  request.observe({.ino = ino});
  if (request.filesystem().needs_no_sync()) {
    return request.reply_error(ENOSYS);  // as fsync()
  }
  request.reply(request.filesystem().fsync_metadata());
}

}  // namespace efs::fuse::handle
