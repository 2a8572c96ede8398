#include "fuse/adapter.hpp"

#include <sys/xattr.h>

#include <algorithm>
#include <vector>

#include "base/log.hpp"
#include "fuse/convert.hpp"
#include "fuse/library.hpp"
#include "fuse/mapped_pages.hpp"
#include "fuse/session.hpp"
#include "fuse/wire.hpp"

namespace efs::fuse {
namespace {

Door& door(fuse_req_t request) {
  return *static_cast<Door*>(fuse_req_userdata(request));
}

fs::Filesystem& files(fuse_req_t request) {
  return door(request).filesystem;
}

void refuse(fuse_req_t request, const Error& error) {
  fuse_reply_err(request, error.code);
}

void reply(fuse_req_t request, const Status& status) {
  fuse_reply_err(request, status ? 0 : status.error().code);
}

void reply(fuse_req_t request, const Result<fs::Entry>& entry) {
  if (!entry) {
    fuse_reply_err(request, entry.error().code);
    return;
  }
  const fuse_entry_param param = to_entry(*entry);
  fuse_reply_entry(request, &param);
}

void reply_attributes(fuse_req_t request, const Result<fs::Entry>& entry) {
  if (entry) {
    fuse_reply_attr(request, &entry->attributes, attribute_timeout(*entry));
  } else {
    fuse_reply_err(request, entry.error().code);
  }
}

// No object with a destructor: the first use of such a one on a thread takes memory, and without it
// the C library ends the process.
thread_local std::vector<std::byte>* answer_buffer = nullptr;

std::vector<std::byte>& buffer_of_thread(std::size_t size) {
  if (answer_buffer->size() < size) {
    answer_buffer->resize(size);
  }
  return *answer_buffer;
}

// What is left to do once a request is answered. An exception must not reach guarded(), which would
// answer again.
template <typename Work>
void after_reply(Work work) {
  try {
    work();
  } catch (const std::exception& problem) {
    log::warn("event=request_not_finished reason=\"{}\"", problem.what());
  }
}

void want(fuse_conn_info* connection, std::uint64_t capability, bool on = true) {
#if EFS_HAVE_PASSTHROUGH
  if (on) {
    fuse_set_feature_flag(connection, capability);
  } else {
    fuse_unset_feature_flag(connection, capability);
  }
#else
  if (on) {
    connection->want |= connection->capable & capability;
  } else {
    connection->want &= ~static_cast<unsigned>(capability);
  }
#endif
}

bool wanted(const fuse_conn_info* connection, std::uint64_t capability) {
#if EFS_HAVE_PASSTHROUGH
  return ((connection->want | connection->want_ext) & capability) != 0;
#else
  return (connection->want & capability) != 0;
#endif
}

void init(void* data, fuse_conn_info* connection) {
  auto& self = *static_cast<Door*>(data);
#ifdef FUSE_CAP_HANDLE_KILLPRIV_V2
  want(connection, FUSE_CAP_HANDLE_KILLPRIV_V2);
#endif
  want(connection, FUSE_CAP_POSIX_ACL);
  // a default ACL takes the umask's place, and only we know of it
  want(connection, FUSE_CAP_DONT_MASK);
  want(connection, FUSE_CAP_EXPORT_SUPPORT);  // file handles: numbers are never used twice
  want(connection, FUSE_CAP_PARALLEL_DIROPS);
  want(connection, FUSE_CAP_CACHE_SYMLINKS);
  want(connection, FUSE_CAP_EXPLICIT_INVAL_DATA);
  // nobody but the kernel changes a file behind its cache
  want(connection, FUSE_CAP_AUTO_INVAL_DATA, false);
  // a truncation is a SETATTR, with its privilege flag
  want(connection, FUSE_CAP_ATOMIC_O_TRUNC, false);
  want(connection, FUSE_CAP_SPLICE_READ, false);
  // Behind an asynchronous O_DIRECT write the kernel would leave in its cache what was there before
  // (Linux 6.18, fuse_aio_complete()).
  want(connection, FUSE_CAP_ASYNC_DIO, false);
  // never beside passthrough: two caches of one file, and times that only one of them knows
  want(connection, FUSE_CAP_WRITEBACK_CACHE, false);
  connection->max_write = largest_write;
  connection->max_readahead = 1u << 20;
  connection->max_background = 64;
  bool passthrough = false;
#if EFS_HAVE_PASSTHROUGH
  passthrough = self.backing.enabled() && fuse_set_feature_flag(connection, FUSE_CAP_PASSTHROUGH);
  // The kernel counts how many file systems lie on one another, and allows two. By 0 containers lie
  // on one that is not stacked, and an overlay may lie on the mount; by 1 containers may lie on an
  // overlay, and none may lie on the mount.
  if (passthrough) {
    connection->max_backing_stack_depth = self.stacked ? 1 : 0;
  }
#endif
  if (!passthrough) {
    self.backing.disable();
  }
#ifdef FUSE_CAP_DIRECT_IO_ALLOW_MMAP
  if (self.uncached) {
    want(connection, FUSE_CAP_DIRECT_IO_ALLOW_MMAP);
  }
  self.uncached = self.uncached && wanted(connection, FUSE_CAP_DIRECT_IO_ALLOW_MMAP);
#else
  self.uncached = false;
#endif
  log::info("event=mounted passthrough={} writeback_cache={} uncached={} protocol={}.{}",
            passthrough, wanted(connection, FUSE_CAP_WRITEBACK_CACHE), self.uncached,
            connection->proto_major, connection->proto_minor);
}

void lookup(fuse_req_t request, fuse_ino_t parent, const char* name) {
  const auto entry = files(request).lookup(parent, name);
  if (entry || entry.error().code != ENOENT) {
    return reply(request, entry);
  }
  const fuse_entry_param none = negative_entry();
  fuse_reply_entry(request, &none);
}

void forget_one(Door& self, fuse_ino_t ino, std::uint64_t count) {
  if (self.filesystem.forget(ino, count).ask) {
    free_if_forgotten(self, ino);
  }
}

void forget(fuse_req_t request, fuse_ino_t ino, std::uint64_t count) {
  forget_one(door(request), ino, count);
  fuse_reply_none(request);
}

void forget_multi(fuse_req_t request, std::size_t count, fuse_forget_data* forgets) {
  for (std::size_t i = 0; i < count; ++i) {
    forget_one(door(request), forgets[i].ino, forgets[i].nlookup);
  }
  fuse_reply_none(request);
}

void getattr(fuse_req_t request, fuse_ino_t ino, fuse_file_info*) {
  reply_attributes(request, attributes(door(request), ino));
}

#if EFS_HAVE_STATX
void statx(fuse_req_t request, fuse_ino_t ino, int, int, fuse_file_info*) {
  const auto entry = attributes(door(request), ino);
  if (!entry) {
    return refuse(request, entry.error());
  }
  struct statx result = to_statx(*entry);
  fuse_reply_statx(request, 0, &result, attribute_timeout(*entry));
}
#endif

void setattr(fuse_req_t request, fuse_ino_t ino, struct stat* attributes, int to_set,
             fuse_file_info*) {
  fs::Filesystem& filesystem = files(request);
  const fs::AttributeChange change = to_change(*attributes, to_set);
  reply_attributes(request, filesystem.with_room([&] {
    return filesystem.setattr(caller_of(request), ino, change);
  }));
}

void readlink(fuse_req_t request, fuse_ino_t ino) {
  const auto target = files(request).readlink(ino);
  if (target) {
    fuse_reply_readlink(request, target->c_str());
  } else {
    fuse_reply_err(request, target.error().code);
  }
}

Result<fs::Entry> make_node(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode,
                            dev_t rdev) {
  fs::Filesystem& filesystem = files(request);
  return filesystem.with_room(
      [&] { return filesystem.make_node(caller_of(request), parent, name, mode, rdev); });
}

void mknod(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, dev_t rdev) {
  reply(request, make_node(request, parent, name, mode, rdev));
}

void mkdir(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) {
  reply(request, make_node(request, parent, name, S_IFDIR | mode, 0));
}

void unlink(fuse_req_t request, fuse_ino_t parent, const char* name) {
  reply(request, files(request).unlink(caller_of(request), parent, name));
}

void rmdir(fuse_req_t request, fuse_ino_t parent, const char* name) {
  reply(request, files(request).rmdir(caller_of(request), parent, name));
}

void symlink(fuse_req_t request, const char* target, fuse_ino_t parent, const char* name) {
  fs::Filesystem& filesystem = files(request);
  reply(request, filesystem.with_room([&] {
    return filesystem.make_symlink(caller_of(request), parent, name, target);
  }));
}

void rename(fuse_req_t request, fuse_ino_t parent, const char* name, fuse_ino_t new_parent,
            const char* new_name, unsigned flags) {
  fs::Filesystem& filesystem = files(request);
  reply(request, filesystem.with_room([&] {
    return filesystem.rename(caller_of(request), parent, name, new_parent, new_name, flags);
  }));
}

void link(fuse_req_t request, fuse_ino_t ino, fuse_ino_t new_parent, const char* new_name) {
  fs::Filesystem& filesystem = files(request);
  reply(request, filesystem.with_room([&] {
    return filesystem.link(caller_of(request), ino, new_parent, new_name);
  }));
}

// What was just made is not to fail for want of a descriptor: the daemon's path needs none yet.
Result<BackingTable::Acquired> count_open(Door& self, fuse_ino_t ino, bool wanted,
                                          bool just_made) try {
  auto acquired = self.backing.acquire(ino, wanted, nullptr);
  if (!acquired || !acquired->needs_container) {
    return acquired;
  }
  const auto container = self.filesystem.container(ino);
  if (!container && !just_made) {
    return std::unexpected(container.error());
  }
  return self.backing.acquire(ino, container.has_value(), container ? container->get() : nullptr);
} catch (const std::bad_alloc&) {
  return just_made ? self.backing.acquire(ino, false, nullptr) : fail(ENOMEM);
}

// Opens for the filesystem and chooses the kernel's or the daemon's path for the I/O.
Result<BackingTable::Acquired> open_file(Door& self, const fs::Caller& caller, fuse_ino_t ino,
                                         fuse_file_info* info, bool just_made = false) {
  auto opened = self.filesystem.with_room(
      [&] { return self.filesystem.open(caller, ino, info->flags, just_made); });
  if (!opened) {
    return std::unexpected(opened.error());
  }
  const auto acquired = count_open(self, ino, opened->passthrough, just_made);
  if (!acquired) {
    self.filesystem.release(ino, info->flags);
    return std::unexpected(acquired.error());
  }
  const int id = acquired->id;
  // Attributes only (no offset): that takes no lock of the kernel's that a request may hold.
  if (opened->attributes_go_stale && self.session != nullptr) {
    fuse_lowlevel_notify_inval_inode(self.session, ino, -1, 0);
  }
  self.counters.opens.fetch_add(1, std::memory_order_relaxed);
  if (id != 0) {
    self.counters.passthrough_opens.fetch_add(1, std::memory_order_relaxed);
  }
#if EFS_HAVE_PASSTHROUGH
  info->backing_id = id;
#endif
  info->direct_io = self.uncached && id == 0 ? 1 : 0;
  // Passthrough writes would leave a kept cache stale; and what the kernel has, nobody asks us for.
  info->keep_cache =
      self.backing.enabled() || self.filesystem.read_moves_atime(ino, info->flags) ? 0 : 1;
  info->noflush = 1;
  return acquired;
}

void close_file(Door& self, fuse_ino_t ino, const fuse_file_info* info) {
  self.filesystem.release(ino, info->flags);
  self.backing.release(ino);
}

void open(fuse_req_t request, fuse_ino_t ino, fuse_file_info* info) {
  Door& self = door(request);
  const auto opened = open_file(self, caller_of(request), ino, info);
  if (!opened) {
    return refuse(request, opened.error());
  }
  // the caller was interrupted
  if (fuse_reply_open(request, info) == -ENOENT) {
    after_reply([&] { close_file(self, ino, info); });
  }
  // the next open asks for itself where it is faster
  if (opened->row) {
    after_reply([&] { self.rows.run(ino); });
  }
}

// After the reply: nobody waits for it.
void make_ahead(Door& self) {
  self.filesystem.fill_pool([&self](std::span<const fs::ContainerPool::Ready> containers) {
    self.backing.prepare(containers);
  });
}

// Opens what was made for the caller, and takes it back where he is gone. False where it could not
// be opened.
bool reply_created(fuse_req_t request, const Result<fs::Entry>& entry, fuse_file_info* info) {
  Door& self = door(request);
  const fs::Caller caller = caller_of(request);
  if (!entry) {
    return reply(request, entry), true;
  }
  if (const auto opened = open_file(self, caller, entry->ino, info, true); !opened) {
    refuse(request, opened.error());
    after_reply([&] { forget_one(self, entry->ino, 1); });
    return false;
  }
  fuse_entry_param param = to_entry(*entry);
  if ((info->flags & O_ACCMODE) == O_RDWR) {
    param.attr_timeout = keep_not;
  }
  if (fuse_reply_create(request, &param, info) != -ENOENT) {
    return true;
  }
  after_reply([&] {
    close_file(self, entry->ino, info);
    forget_one(self, entry->ino, 1);
  });
  return true;
}

void create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode,
            fuse_file_info* info) {
  Door& self = door(request);
  fs::Filesystem& filesystem = self.filesystem;
  auto made = make_node(request, parent, name, S_IFREG | (mode & 07777), 0);
  // A load has made the name since the kernel looked: it looks again, and asks then who may open
  // what is there.
  if (!made && made.error().code == EEXIST && (info->flags & O_EXCL) == 0) {
    made = fail(ESTALE);
  }
  // A create that fails must leave no name behind.
  if (!reply_created(request, made, info)) {
    after_reply([&] { (void)filesystem.unlink({}, parent, name); });
  }
  make_ahead(self);
}

#if EFS_HAVE_PASSTHROUGH
void tmpfile(fuse_req_t request, fuse_ino_t parent, mode_t mode, fuse_file_info* info) {
  Door& self = door(request);
  const auto entry = self.filesystem.with_room(
      [&] { return self.filesystem.make_nameless(caller_of(request), parent, mode); });
  reply_created(request, entry, info);
  make_ahead(self);
}
#endif

void read(fuse_req_t request, fuse_ino_t ino, std::size_t size, off_t offset,
          fuse_file_info* info) {
  auto& buffer = buffer_of_thread(size);
  const auto n = files(request).read(ino, std::span(buffer).first(size),
                                     static_cast<std::uint64_t>(offset), info->flags);
  if (!n) {
    return refuse(request, n.error());
  }
  door(request).counters.read_bytes.fetch_add(*n, std::memory_order_relaxed);
  fuse_reply_buf(request, reinterpret_cast<const char*>(buffer.data()), *n);
}

void write(fuse_req_t request, fuse_ino_t ino, const char* data, std::size_t size, off_t offset,
           fuse_file_info*) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  fs::Filesystem& filesystem = files(request);
  const auto n = filesystem.with_room([&] {
    return filesystem.write(caller_of(request), ino, bytes, static_cast<std::uint64_t>(offset));
  });
  if (!n) {
    return refuse(request, n.error());
  }
  door(request).counters.written_bytes.fetch_add(*n, std::memory_order_relaxed);
  fuse_reply_write(request, *n);
}

void release(fuse_req_t request, fuse_ino_t ino, fuse_file_info* info) {
  close_file(door(request), ino, info);
  fuse_reply_err(request, 0);
}

void fsync(fuse_req_t request, fuse_ino_t ino, int data_only, fuse_file_info*) {
  reply(request, files(request).fsync(ino, data_only != 0));
}

void fsyncdir(fuse_req_t request, fuse_ino_t, int, fuse_file_info*) {
  reply(request, files(request).fsync_metadata());
}

void opendir(fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
  info->cache_readdir = info->keep_cache = files(request).every_walk_counts() ? 0 : 1;
  fuse_reply_open(request, info);
}

void readdir(fuse_req_t request, fuse_ino_t ino, std::size_t size, off_t offset, fuse_file_info*) {
  const auto items = files(request).readdir(ino, static_cast<std::uint64_t>(offset), size / 32 + 1);
  if (!items) {
    return refuse(request, items.error());
  }
  auto* buffer = reinterpret_cast<char*>(buffer_of_thread(size).data());
  std::size_t used = 0;
  for (const auto& item : *items) {
    struct stat type{};
    type.st_ino = item.ino;
    type.st_mode = item.type;
    const std::size_t needed =
        fuse_add_direntry(request, buffer + used, size - used, item.name.c_str(), &type,
                          static_cast<off_t>(item.cookie));
    if (needed > size - used) {
      break;
    }
    used += needed;
  }
  fuse_reply_buf(request, buffer, used);
}

void statfs(fuse_req_t request, fuse_ino_t) {
  const struct statvfs result = files(request).statfs();
  fuse_reply_statfs(request, &result);
}

// getxattr(2) and listxattr(2): size 0 asks how much there is.
void reply_sized(fuse_req_t request, const std::string& value, std::size_t size) {
  if (size == 0) {
    fuse_reply_xattr(request, value.size());
  } else if (value.size() > size) {
    fuse_reply_err(request, ERANGE);
  } else {
    fuse_reply_buf(request, value.data(), value.size());
  }
}

void getxattr(fuse_req_t request, fuse_ino_t ino, const char* name, std::size_t size) {
  const auto value = files(request).getxattr(ino, name);
  if (value) {
    reply_sized(request, *value, size);
  } else {
    fuse_reply_err(request, value.error().code);
  }
}

void listxattr(fuse_req_t request, fuse_ino_t ino, std::size_t size) {
  const auto names = files(request).listxattr(ino);
  if (!names) {
    return refuse(request, names.error());
  }
  std::string list;
  for (const auto& name : *names) {
    if (fuse_req_ctx(request)->uid == 0 || !name.starts_with("trusted.")) {
      list.append(name).push_back('\0');
    }
  }
  reply_sized(request, list, size);
}

void setxattr(fuse_req_t request, fuse_ino_t ino, const char* name, const char* value,
              std::size_t size, int flags) {
  fs::Filesystem& filesystem = files(request);
  reply(request, filesystem.with_room([&] {
    return filesystem.setxattr(caller_of(request), ino, name, std::string(value, size), flags);
  }));
}

void removexattr(fuse_req_t request, fuse_ino_t ino, const char* name) {
  reply(request, files(request).removexattr(caller_of(request), ino, name));
}

void fallocate(fuse_req_t request, fuse_ino_t ino, int mode, off_t offset, off_t length,
               fuse_file_info*) {
  fs::Filesystem& filesystem = files(request);
  reply(request, filesystem.with_room([&] {
    return filesystem.allocate(caller_of(request), ino, mode, static_cast<std::uint64_t>(offset),
                               static_cast<std::uint64_t>(length));
  }));
}

void lseek(fuse_req_t request, fuse_ino_t ino, off_t offset, int whence, fuse_file_info*) {
  const auto at = seek(door(request), ino, static_cast<std::uint64_t>(offset), whence);
  if (at) {
    fuse_reply_lseek(request, static_cast<off_t>(*at));
  } else {
    fuse_reply_err(request, at.error().code);
  }
}

// The door of all exceptions: memory may end anywhere below, and then the caller gets ENOMEM, not a
// dead mount.
template <auto Callback, typename... Arguments>
void guarded(fuse_req_t request, Arguments... arguments) {
  try {
    Callback(request, arguments...);
  } catch (const std::bad_alloc&) {
    fuse_reply_err(request, ENOMEM);
  } catch (const std::exception& problem) {
    log::error("event=request_failed reason=\"{}\"", problem.what());
    fuse_reply_err(request, EIO);
  }
}

template <auto Callback>
struct Guard;

template <typename... Arguments, void (*Callback)(fuse_req_t, Arguments...)>
struct Guard<Callback> {
  static void call(fuse_req_t request, Arguments... arguments) {
    guarded<Callback>(request, arguments...);
  }
};

}  // namespace

LendAnswerBuffer::LendAnswerBuffer(std::vector<std::byte>& buffer) {
  answer_buffer = &buffer;
}

LendAnswerBuffer::~LendAnswerBuffer() {
  answer_buffer = nullptr;
}

// The kernel answers a notification about an inode that it does not know with ENOENT.
void free_if_forgotten(Door& self, std::uint64_t ino) {
  if (fuse_lowlevel_notify_inval_inode(self.session, ino, -1, 0) != -ENOENT) {
    return;
  }
  self.filesystem.forget_all(ino);
}

// Locks are left out on purpose: the kernel keeps them, which is right for one node.
fuse_lowlevel_ops adapter_operations() {
  fuse_lowlevel_ops ops{};
  ops.init = init;
  ops.lookup = Guard<lookup>::call;
  ops.forget = Guard<forget>::call;
  ops.forget_multi = Guard<forget_multi>::call;
  ops.getattr = Guard<getattr>::call;
  ops.setattr = Guard<setattr>::call;
  ops.readlink = Guard<readlink>::call;
  ops.mknod = Guard<mknod>::call;
  ops.mkdir = Guard<mkdir>::call;
  ops.unlink = Guard<unlink>::call;
  ops.rmdir = Guard<rmdir>::call;
  ops.symlink = Guard<symlink>::call;
  ops.rename = Guard<rename>::call;
  ops.link = Guard<link>::call;
  ops.open = Guard<open>::call;
  ops.create = Guard<create>::call;
#if EFS_HAVE_PASSTHROUGH
  ops.tmpfile = Guard<tmpfile>::call;
#endif
#if EFS_HAVE_STATX
  ops.statx = Guard<statx>::call;
#endif
  ops.read = Guard<read>::call;
  ops.write = Guard<write>::call;
  ops.release = Guard<release>::call;
  ops.fsync = Guard<fsync>::call;
  ops.fsyncdir = Guard<fsyncdir>::call;
  ops.opendir = Guard<opendir>::call;
  ops.readdir = Guard<readdir>::call;
  ops.statfs = Guard<statfs>::call;
  ops.getxattr = Guard<getxattr>::call;
  ops.listxattr = Guard<listxattr>::call;
  ops.setxattr = Guard<setxattr>::call;
  ops.removexattr = Guard<removexattr>::call;
  ops.fallocate = Guard<fallocate>::call;
  ops.lseek = Guard<lseek>::call;
  return ops;
}

}  // namespace efs::fuse
