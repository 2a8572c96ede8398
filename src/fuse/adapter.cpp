// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/adapter.hpp"

#include <cerrno>
#include <exception>
#include <new>
#include <type_traits>

#include "base/intercept_door.hpp"
#include "base/log.hpp"
#include "fuse/handlers/handlers.hpp"
#include "fuse/library.hpp"
#include "fuse/negotiation.hpp"
#include "fuse/request.hpp"

namespace efs::fuse {
namespace {

// An exception of a handler ends here. Memory may run out anywhere below, and then the client gets
// ENOMEM, not a dead mount.
void request_failed(Request& request, int code, const std::exception& problem) {
  if (request.replied()) {
    log::warn("event=request_not_finished reason=\"{}\"", problem.what());
    return;
  }
  if (code != ENOMEM) {
    log::error("event=request_failed reason=\"{}\"", problem.what());
  }
  request.reply_error(code);
}

// The door is no file of the file system. Only these operations know it.
constexpr bool serves_door(Operation operation) {
  switch (operation) {
    case Operation::forget:
    case Operation::getattr:
    case Operation::open:
    case Operation::read:
    case Operation::release:
    case Operation::statfs:
    case Operation::ioctl: return true;
    default: return false;
  }
}

// The first argument is the inode, except that of forget_multi().
template <typename... Rest>
constexpr fuse_ino_t inode_of(fuse_ino_t ino, const Rest&...) {
  return ino;
}

// symlink() begins with its target.
template <typename... Rest>
constexpr fuse_ino_t inode_of(const char*, const Rest&...) {
  return 0;
}

// The callback of a handler. Its target, a member of fuse_lowlevel_ops, chooses the arguments. A
// handler takes them as they are, or as one struct.
template <Operation operation, auto handler, typename... Arguments>
void callback(fuse_req_t handle, Arguments... arguments) {
  Request request(handle, operation);
  try {
    if (!serves_door(operation) && inode_of(arguments...) == door_inode) {
      handle::refuse_at_door(request, operation);
    } else if constexpr (std::is_invocable_v<decltype(handler), Request&, Arguments...>) {
      handler(request, arguments...);
    } else {
      handler(request, {arguments...});
    }
  } catch (const std::bad_alloc& problem) {
    request_failed(request, ENOMEM, problem);
  } catch (const std::exception& problem) {
    request_failed(request, EIO, problem);
  }
}

}  // namespace

// Locks are left out on purpose: the kernel manages them, which is right for one node.
fuse_lowlevel_ops adapter_operations() {
  fuse_lowlevel_ops ops{};
  ops.init = negotiate;
  ops.lookup = callback<Operation::lookup, handle::lookup>;
  ops.forget = callback<Operation::forget, handle::forget>;
  ops.forget_multi = callback<Operation::forget, handle::forget_multi>;
  ops.getattr = callback<Operation::getattr, handle::getattr>;
#if EFS_HAVE_STATX
  ops.statx = callback<Operation::getattr, handle::statx>;
#endif
  ops.setattr = callback<Operation::setattr, handle::setattr>;
  ops.readlink = callback<Operation::readlink, handle::readlink>;
  ops.mknod = callback<Operation::mknod, handle::mknod>;
  ops.mkdir = callback<Operation::mkdir, handle::mkdir>;
  ops.unlink = callback<Operation::unlink, handle::unlink>;
  ops.rmdir = callback<Operation::rmdir, handle::rmdir>;
  ops.symlink = callback<Operation::symlink, handle::symlink>;
  ops.rename = callback<Operation::rename, handle::rename>;
  ops.link = callback<Operation::link, handle::link>;
  ops.open = callback<Operation::open, handle::open>;
  ops.create = callback<Operation::create, handle::create>;
#if EFS_HAVE_PASSTHROUGH
  ops.tmpfile = callback<Operation::tmpfile, handle::tmpfile>;
#endif
  ops.read = callback<Operation::read, handle::read>;
  ops.write = callback<Operation::write, handle::write>;
  ops.release = callback<Operation::release, handle::release>;
  ops.fsync = callback<Operation::fsync, handle::fsync>;
  ops.opendir = callback<Operation::opendir, handle::opendir>;
  ops.readdir = callback<Operation::readdir, handle::readdir>;
  ops.readdirplus = callback<Operation::readdirplus, handle::readdirplus>;
  ops.releasedir = callback<Operation::releasedir, handle::releasedir>;
  ops.fsyncdir = callback<Operation::fsyncdir, handle::fsyncdir>;
  ops.statfs = callback<Operation::statfs, handle::statfs>;
  ops.getxattr = callback<Operation::getxattr, handle::getxattr>;
  ops.listxattr = callback<Operation::listxattr, handle::listxattr>;
  ops.setxattr = callback<Operation::setxattr, handle::setxattr>;
  ops.removexattr = callback<Operation::removexattr, handle::removexattr>;
  ops.fallocate = callback<Operation::fallocate, handle::fallocate>;
  ops.lseek = callback<Operation::lseek, handle::lseek>;
  ops.ioctl = callback<Operation::ioctl, handle::ioctl>;
  return ops;
}

}  // namespace efs::fuse
