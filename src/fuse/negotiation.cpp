// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/negotiation.hpp"

#include "base/log.hpp"
#include "fuse/connection.hpp"
#include "fuse/library.hpp"
#include "fuse/wire.hpp"

namespace efs::fuse {
namespace {

void want(fuse_conn_info* info, std::uint64_t capability, bool on = true) {
#if EFS_HAVE_PASSTHROUGH
  if (on) {
    fuse_set_feature_flag(info, capability);
  } else {
    fuse_unset_feature_flag(info, capability);
  }
#else
  if (on) {
    info->want |= info->capable & capability;
  } else {
    info->want &= ~static_cast<unsigned>(capability);
  }
#endif
}

bool wanted(const fuse_conn_info* info, std::uint64_t capability) {
#if EFS_HAVE_PASSTHROUGH
  return ((info->want | info->want_ext) & capability) != 0;
#else
  return (info->want & capability) != 0;
#endif
}

void choose_features(const Connection& connection, fuse_conn_info* info) {
#ifdef FUSE_CAP_HANDLE_KILLPRIV_V2
  want(info, FUSE_CAP_HANDLE_KILLPRIV_V2);
#endif
  want(info, FUSE_CAP_POSIX_ACL, connection.xattr);
  // a default ACL replaces the umask, and only the daemon knows the ACL
  want(info, FUSE_CAP_DONT_MASK);
  want(info, FUSE_CAP_EXPORT_SUPPORT);  // file handles: inode numbers are never used twice
  want(info, FUSE_CAP_PARALLEL_DIROPS);
  want(info, FUSE_CAP_CACHE_SYMLINKS);
  // Always, since programs read a directory before they look at its files: WalkPolicy. Sinks have
  // READDIR, and a LOOKUP of each name.
  want(info, FUSE_CAP_READDIRPLUS, !connection.observer.listens());
  want(info, FUSE_CAP_READDIRPLUS_AUTO, false);
  want(info, FUSE_CAP_EXPLICIT_INVAL_DATA);
  // only the kernel changes a file behind its cache
  want(info, FUSE_CAP_AUTO_INVAL_DATA, false);
  // a truncation is a SETATTR, with its privilege flag
  want(info, FUSE_CAP_ATOMIC_O_TRUNC, false);
  want(info, FUSE_CAP_SPLICE_READ, false);
  // Behind an asynchronous O_DIRECT write the kernel would keep the old data in its cache
  // (Linux 6.18, fuse_aio_complete()).
  want(info, FUSE_CAP_ASYNC_DIO, false);
  // never beside passthrough, which the kernel would turn off without a word
  want(info, FUSE_CAP_WRITEBACK_CACHE, connection.writeback);
}

bool choose_passthrough([[maybe_unused]] Connection& connection,
                        [[maybe_unused]] fuse_conn_info* info) {
  bool passthrough = false;
#if EFS_HAVE_PASSTHROUGH
  passthrough = connection.backing.enabled() && fuse_set_feature_flag(info, FUSE_CAP_PASSTHROUGH);
  // The kernel counts how many file systems lie on one another, and allows two. With 0, containers
  // lie on a file system that is not stacked, and an overlay may lie on the mount. With 1,
  // containers may lie on an overlay, and no overlay may lie on the mount.
  if (passthrough) {
    info->max_backing_stack_depth = connection.stacked ? 1 : 0;
  }
#endif
  return passthrough;
}

bool choose_uncached([[maybe_unused]] const Connection& connection,
                     [[maybe_unused]] fuse_conn_info* info) {
#ifdef FUSE_CAP_DIRECT_IO_ALLOW_MMAP
  if (connection.uncached) {
    want(info, FUSE_CAP_DIRECT_IO_ALLOW_MMAP);
  }
  return connection.uncached && wanted(info, FUSE_CAP_DIRECT_IO_ALLOW_MMAP);
#else
  return false;
#endif
}

}  // namespace

void negotiate(void* data, fuse_conn_info* info) {
  auto& connection = *static_cast<Connection*>(data);
  choose_features(connection, info);
  info->max_write = largest_write;
  info->max_readahead = 1u << 20;
  info->max_background = 64;
  const bool passthrough = choose_passthrough(connection, info);
  if (!passthrough) {
    connection.backing.disable();
  }
  connection.uncached = choose_uncached(connection, info);
  connection.opens_directories_itself = (info->capable & FUSE_CAP_NO_OPENDIR_SUPPORT) != 0;
  connection.writeback = wanted(info, FUSE_CAP_WRITEBACK_CACHE);
  log::info("event=mounted passthrough={} writeback_cache={} uncached={} protocol={}.{}",
            passthrough, connection.writeback.load(), connection.uncached, info->proto_major,
            info->proto_minor);
}

}  // namespace efs::fuse
