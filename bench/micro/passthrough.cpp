// SPDX-License-Identifier: BSD-3-Clause
// A file system that leaves all work to the kernel.
//   usage: efs-bench-passthrough DIRECTORY MOUNTPOINT     (as root; until it is unmounted)
//
// bench.py compares efs with this server for work that the kernel does. It maps names to DIRECTORY,
// gives passthrough to every open at once, and lets the kernel cache names and attributes for ever.
// It never forgets an inode, and no other process may change DIRECTORY. No server on this kernel
// can make passthrough I/O or stat faster.
#define FUSE_USE_VERSION 317
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <vector>

namespace {

constexpr double for_ever = 1e9;  // seconds

/// Inode n + 1 is names[n], below the directory; the first inode is the directory itself.
struct Mirror {
  int directory = -1;
  std::vector<std::string> names{"."};

  const std::string& name(fuse_ino_t ino) const { return names[ino - 1]; }

  std::string below(fuse_ino_t parent, const char* leaf) const { return name(parent) + "/" + leaf; }
};

Mirror& mirror(fuse_req_t request) {
  return *static_cast<Mirror*>(fuse_req_userdata(request));
}

void begin(void*, fuse_conn_info* connection) {
  if (fuse_set_feature_flag(connection, FUSE_CAP_PASSTHROUGH)) {
    connection->max_backing_stack_depth = 1;
  }
  // otherwise each write looks for set-user-ID bits
  (void)fuse_set_feature_flag(connection, FUSE_CAP_HANDLE_KILLPRIV_V2);
}

/// Looks `path` up as a new inode. Returns 0 or an errno.
int enter(Mirror& all, const std::string& path, fuse_entry_param& entry) {
  if (::fstatat(all.directory, path.c_str(), &entry.attr, AT_SYMLINK_NOFOLLOW) != 0) {
    return errno;
  }
  all.names.push_back(path);
  entry.ino = entry.attr.st_ino = all.names.size();
  entry.attr_timeout = entry.entry_timeout = for_ever;
  return 0;
}

void reply_entry(fuse_req_t request, int done, fuse_ino_t parent, const char* name) {
  fuse_entry_param entry{};
  const int code =
      done != 0 ? errno : enter(mirror(request), mirror(request).below(parent, name), entry);
  if (code != 0) {
    fuse_reply_err(request, code);
  } else {
    fuse_reply_entry(request, &entry);
  }
}

void lookup(fuse_req_t request, fuse_ino_t parent, const char* name) {
  reply_entry(request, 0, parent, name);
}

void getattr(fuse_req_t request, fuse_ino_t ino, fuse_file_info*) {
  struct stat now{};
  if (::fstatat(mirror(request).directory, mirror(request).name(ino).c_str(), &now,
                AT_SYMLINK_NOFOLLOW) != 0) {
    fuse_reply_err(request, errno);
    return;
  }
  now.st_ino = ino;
  fuse_reply_attr(request, &now, for_ever);
}

void make_directory(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) {
  reply_entry(
      request,
      ::mkdirat(mirror(request).directory, mirror(request).below(parent, name).c_str(), mode),
      parent, name);
}

void remove(fuse_req_t request, fuse_ino_t parent, const char* name, int flags) {
  fuse_reply_err(request, ::unlinkat(mirror(request).directory,
                                     mirror(request).below(parent, name).c_str(), flags) != 0
                              ? errno
                              : 0);
}

void unlink_file(fuse_req_t request, fuse_ino_t parent, const char* name) {
  remove(request, parent, name, 0);
}

void remove_directory(fuse_req_t request, fuse_ino_t parent, const char* name) {
  remove(request, parent, name, AT_REMOVEDIR);
}

/// Registers the file's descriptor with the kernel and closes our copy. Returns 0 or an errno.
int hand_over(fuse_req_t request, const std::string& path, int flags, mode_t mode,
              fuse_file_info& info) {
  const int fd = ::openat(mirror(request).directory, path.c_str(), flags | O_CLOEXEC, mode);
  if (fd < 0) {
    return errno;
  }
  info.backing_id = fuse_passthrough_open(request, fd);
  info.fh = static_cast<std::uint64_t>(info.backing_id);
  ::close(fd);
  return info.backing_id > 0 ? 0 : EOPNOTSUPP;
}

void open_file(fuse_req_t request, fuse_ino_t ino, fuse_file_info* info) {
  if (const int code = hand_over(request, mirror(request).name(ino), O_RDWR, 0, *info); code != 0) {
    fuse_reply_err(request, code);
  } else {
    fuse_reply_open(request, info);
  }
}

void create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode,
            fuse_file_info* info) {
  const std::string path = mirror(request).below(parent, name);
  fuse_entry_param entry{};
  int code = hand_over(request, path, O_RDWR | O_CREAT | O_EXCL, mode, *info);
  if (code == 0) {
    code = enter(mirror(request), path, entry);
  }
  if (code != 0) {
    fuse_reply_err(request, code);
  } else {
    fuse_reply_create(request, &entry, info);
  }
}

void release(fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
  fuse_passthrough_close(request, static_cast<int>(info->fh));
  fuse_reply_err(request, 0);
}

fuse_lowlevel_ops operations() {
  fuse_lowlevel_ops all{};
  all.init = begin;
  all.lookup = lookup;
  all.getattr = getattr;
  all.mkdir = make_directory;
  all.rmdir = remove_directory;
  all.unlink = unlink_file;
  all.open = open_file;
  all.create = create;
  all.release = release;
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  Mirror all{.directory = argc == 3 ? ::open(argv[1], O_PATH | O_DIRECTORY | O_CLOEXEC) : -1};
  if (all.directory < 0) {
    std::fprintf(stderr, "usage: efs-bench-passthrough DIRECTORY MOUNTPOINT\n");
    return 2;
  }
  const fuse_lowlevel_ops calls = operations();
  fuse_args arguments = FUSE_ARGS_INIT(1, argv);
  fuse_session* session = fuse_session_new(&arguments, &calls, sizeof calls, &all);
  if (session == nullptr || fuse_session_mount(session, argv[2]) != 0) {
    return 1;
  }
  std::puts("mounted");
  std::fflush(stdout);
  const int failed = fuse_session_loop(session);
  fuse_session_unmount(session);
  fuse_session_destroy(session);
  return failed == 0 ? 0 : 1;
}
