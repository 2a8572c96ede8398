// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The handlers: each turns one request into a call of Filesystem, and its result into the reply.
// names.cpp, attributes.cpp, data.cpp and door.cpp define them. Arguments are libfuse's, in its
// order; a handler of more than four takes a struct.
//
// A handler may throw: fuse/adapter.cpp replies then, unless the handler has replied.

#include <exception>

#include "base/log.hpp"
#include "fuse/library.hpp"
#include "fuse/request.hpp"

namespace efs::fuse::handle {

struct Rename {
  fuse_ino_t parent;
  const char* name;
  fuse_ino_t new_parent;
  const char* new_name;
  unsigned flags;
};

struct Write {
  fuse_ino_t ino;
  const char* data;
  std::size_t size;
  off_t offset;
  fuse_file_info* info;
};

struct Fallocate {
  fuse_ino_t ino;
  int mode;
  off_t offset;
  off_t length;
  fuse_file_info* info;
};

struct Setxattr {
  fuse_ino_t ino;
  const char* name;
  const char* value;
  std::size_t size;
  int flags;
};

struct Ioctl {
  fuse_ino_t ino;
  unsigned command;
  void* argument;
  fuse_file_info* info;
  unsigned flags;
  const void* in;
  std::size_t in_size;
  std::size_t out_size;
};

// door.cpp
/// Answers an operation that the door does not have.
void refuse_at_door(Request& request, Operation operation);
void open_door(Request& request, fuse_file_info* info);
void read_door(Request& request, std::size_t size, off_t offset);
void release_door(Request& request, const fuse_file_info* info);
void ioctl(Request& request, const Ioctl& call);

// names.cpp
void lookup(Request& request, fuse_ino_t parent, const char* name);
void forget(Request& request, fuse_ino_t ino, std::uint64_t count);
void forget_multi(Request& request, std::size_t count, fuse_forget_data* forgets);
void mknod(Request& request, fuse_ino_t parent, const char* name, mode_t mode, dev_t rdev);
void mkdir(Request& request, fuse_ino_t parent, const char* name, mode_t mode);
void symlink(Request& request, const char* target, fuse_ino_t parent, const char* name);
void readlink(Request& request, fuse_ino_t ino);
void link(Request& request, fuse_ino_t ino, fuse_ino_t new_parent, const char* new_name);
void unlink(Request& request, fuse_ino_t parent, const char* name);
void rmdir(Request& request, fuse_ino_t parent, const char* name);
void rename(Request& request, const Rename& rename);
void opendir(Request& request, fuse_ino_t ino, fuse_file_info* info);
void readdir(Request& request, fuse_ino_t ino, std::size_t size, off_t offset,
             fuse_file_info* info);
void readdirplus(Request& request, fuse_ino_t ino, std::size_t size, off_t offset,
                 fuse_file_info* info);
void releasedir(Request& request, fuse_ino_t ino, fuse_file_info* info);
void fsyncdir(Request& request, fuse_ino_t ino, int data_only, fuse_file_info* info);

// attributes.cpp
void getattr(Request& request, fuse_ino_t ino, fuse_file_info* info);
#if EFS_HAVE_STATX
void statx(Request& request, fuse_ino_t ino, int flags, int mask, fuse_file_info* info);
#endif
void setattr(Request& request, fuse_ino_t ino, struct stat* attributes, int to_set,
             fuse_file_info* info);
void statfs(Request& request, fuse_ino_t ino);
void getxattr(Request& request, fuse_ino_t ino, const char* name, std::size_t size);
void listxattr(Request& request, fuse_ino_t ino, std::size_t size);
void setxattr(Request& request, const Setxattr& attribute);
void removexattr(Request& request, fuse_ino_t ino, const char* name);

// data.cpp
void open(Request& request, fuse_ino_t ino, fuse_file_info* info);
void create(Request& request, fuse_ino_t parent, const char* name, mode_t mode,
            fuse_file_info* info);
#if EFS_HAVE_PASSTHROUGH
void tmpfile(Request& request, fuse_ino_t parent, mode_t mode, fuse_file_info* info);
#endif
void read(Request& request, fuse_ino_t ino, std::size_t size, off_t offset, fuse_file_info* info);
void write(Request& request, const Write& write);
void release(Request& request, fuse_ino_t ino, fuse_file_info* info);
void fsync(Request& request, fuse_ino_t ino, int data_only, fuse_file_info* info);
void fallocate(Request& request, const Fallocate& range);
void lseek(Request& request, fuse_ino_t ino, off_t offset, int whence, fuse_file_info* info);

/// True if the operation must wait for the content of a remote file: Request::wait_for_content().
inline bool needs_content(const Error& error) {
  return error.code == fs::not_here_code;
}

/// Makes a node for the client of the request. No reply.
Result<fs::Entry> make_node(const Request& request, fuse_ino_t parent, const char* name,
                            mode_t mode, dev_t rdev);

/// Does the work that a request leaves after its reply. An exception is logged, and the handler
/// goes on.
template <typename Work>
void after_reply(Work work) {
  try {
    work();
  } catch (const std::exception& problem) {
    log::warn("event=request_not_finished reason=\"{}\"", problem.what());
  }
}

}  // namespace efs::fuse::handle
