// SPDX-License-Identifier: BSD-3-Clause
// A file system that leaves all work to the kernel.
//   usage: efs-bench-passthrough DIRECTORY MOUNTPOINT [served|collected|spliced]
//          (as root; until it is unmounted)
//
// `served`: the same server without passthrough reads and writes the files itself. `collected`: the
// kernel's write-back cache is on as well. `spliced`: it splices the answers to reads.
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

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr double for_ever = 1e9;  // seconds

/// Inode n + 1 is names[n], below the directory; the first inode is the directory itself.
struct Mirror {
  int directory = -1;
  bool served = false;     // no passthrough: this process does the I/O
  bool collected = false;  // ... and the kernel collects writes
  bool spliced = false;    // ... or the answers to reads are spliced, not copied
  std::vector<std::string> names{"."};

  const std::string& name(fuse_ino_t ino) const { return names[ino - 1]; }

  std::string below(fuse_ino_t parent, const char* leaf) const { return name(parent) + "/" + leaf; }
};

Mirror& mirror(fuse_req_t request) {
  return *static_cast<Mirror*>(fuse_req_userdata(request));
}

void begin(void* data, fuse_conn_info* connection) {
  const auto& all = *static_cast<Mirror*>(data);
  if (!all.served && fuse_set_feature_flag(connection, FUSE_CAP_PASSTHROUGH)) {
    connection->max_backing_stack_depth = 1;
  }
  if (all.collected) {
    (void)fuse_set_feature_flag(connection, FUSE_CAP_WRITEBACK_CACHE);
  }
  (void)fuse_set_feature_flag(connection, FUSE_CAP_EXPLICIT_INVAL_DATA);
  fuse_unset_feature_flag(connection, FUSE_CAP_AUTO_INVAL_DATA);
  fuse_unset_feature_flag(connection, FUSE_CAP_SPLICE_READ);
  connection->max_readahead = 1U << 20U;
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

/// Registers the file's descriptor with the kernel and closes our copy, or keeps it to serve the
/// file. Returns 0 or an errno.
int hand_over(fuse_req_t request, const std::string& path, int flags, mode_t mode,
              fuse_file_info& info) {
  const int fd = ::openat(mirror(request).directory, path.c_str(), flags | O_CLOEXEC, mode);
  if (fd < 0) {
    return errno;
  }
  if (mirror(request).served) {
    info.fh = static_cast<std::uint64_t>(fd);
    info.keep_cache = 1;
    return 0;
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
  if (mirror(request).served) {
    ::close(static_cast<int>(info->fh));
  } else {
    fuse_passthrough_close(request, static_cast<int>(info->fh));
  }
  fuse_reply_err(request, 0);
}

void read(fuse_req_t request, fuse_ino_t, std::size_t size, off_t offset, fuse_file_info* info) {
  static std::vector<char> bytes(1U << 20U);
  if (!mirror(request).spliced) {
    const ssize_t done =
        ::pread(static_cast<int>(info->fh), bytes.data(), std::min(size, bytes.size()), offset);
    fuse_reply_buf(request, bytes.data(), done < 0 ? 0 : static_cast<std::size_t>(done));
    return;
  }
  fuse_bufvec data = FUSE_BUFVEC_INIT(size);
  data.buf[0].flags = static_cast<fuse_buf_flags>(FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK);
  data.buf[0].fd = static_cast<int>(info->fh);
  data.buf[0].pos = offset;
  fuse_reply_data(request, &data, FUSE_BUF_SPLICE_MOVE);
}

void write(fuse_req_t request, fuse_ino_t, const char* data, std::size_t size, off_t offset,
           fuse_file_info* info) {
  const ssize_t done = ::pwrite(static_cast<int>(info->fh), data, size, offset);
  if (done < 0) {
    fuse_reply_err(request, errno);
  } else {
    fuse_reply_write(request, static_cast<std::size_t>(done));
  }
}

// The kernel's own times, and truncation, which the measurements do not need.
void set_attributes(fuse_req_t request, fuse_ino_t ino, struct stat*, int, fuse_file_info* info) {
  getattr(request, ino, info);
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
  all.read = read;
  all.write = write;
  all.setattr = set_attributes;
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc == 4 ? argv[3] : "";
  Mirror all{
      .directory = argc == 3 || argc == 4 ? ::open(argv[1], O_PATH | O_DIRECTORY | O_CLOEXEC) : -1,
      .served = mode == "served" || mode == "collected" || mode == "spliced",
      .collected = mode == "collected",
      .spliced = mode == "spliced"};
  if (all.directory < 0 || (argc == 4 && !all.served)) {
    std::fprintf(stderr,
                 "usage: efs-bench-passthrough DIRECTORY MOUNTPOINT [served|collected|spliced]\n");
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
