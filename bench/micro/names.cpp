// SPDX-License-Identifier: BSD-3-Clause
// A file system of names without contents, in a hash table.
//   usage: efs-bench-names MOUNTPOINT [poll]   (as root; until it is unmounted)
//
// With `poll` it never sleeps, so that the kernel need not wake it up.
//
// bench.py compares efs with this server for operations on names. It does no work: no storage, no
// journal, no permissions, no threads. It answers by one system call, never forgets an inode, and
// lets the kernel cache all that can be cached. What a name costs here are the kernel's requests
// and the wake-ups, so no server on this kernel and machine makes names much faster.
#define FUSE_USE_VERSION 317
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace {

constexpr double for_ever = 1e9;  // seconds

struct Names {
  std::unordered_map<std::string, fuse_ino_t> inodes;  // by key()
  std::vector<mode_t> modes{0, S_IFDIR | 0755};        // by inode; 1 is the root

  static std::string key(fuse_ino_t parent, const char* name) {
    return std::to_string(parent) + "/" + name;
  }
};

Names& names(fuse_req_t request) {
  return *static_cast<Names*>(fuse_req_userdata(request));
}

void begin(void*, fuse_conn_info* connection) {
  connection->no_interrupt = 1;
  fuse_unset_feature_flag(connection, FUSE_CAP_SPLICE_READ);
}

struct stat attributes(fuse_req_t request, fuse_ino_t ino) {
  struct stat found{};
  found.st_ino = ino;
  found.st_mode = names(request).modes[ino];
  found.st_nlink = S_ISDIR(found.st_mode) ? 2 : 1;
  return found;
}

fuse_entry_param entry_of(fuse_req_t request, fuse_ino_t ino) {
  fuse_entry_param entry{};
  entry.ino = ino;
  entry.attr = attributes(request, ino);
  entry.attr_timeout = entry.entry_timeout = for_ever;
  return entry;
}

fuse_entry_param add(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) {
  Names& all = names(request);
  all.modes.push_back(mode);
  all.inodes[Names::key(parent, name)] = all.modes.size() - 1;
  return entry_of(request, all.modes.size() - 1);
}

void lookup(fuse_req_t request, fuse_ino_t parent, const char* name) {
  const auto found = names(request).inodes.find(Names::key(parent, name));
  if (found == names(request).inodes.end()) {
    fuse_reply_err(request, ENOENT);
    return;
  }
  const fuse_entry_param entry = entry_of(request, found->second);
  fuse_reply_entry(request, &entry);
}

void getattr(fuse_req_t request, fuse_ino_t ino, fuse_file_info*) {
  const struct stat found = attributes(request, ino);
  fuse_reply_attr(request, &found, for_ever);
}

void set_attributes(fuse_req_t request, fuse_ino_t ino, struct stat* wanted, int what,
                    fuse_file_info* info) {
  if ((what & FUSE_SET_ATTR_MODE) != 0) {
    names(request).modes[ino] = wanted->st_mode;
  }
  getattr(request, ino, info);
}

void make_directory(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) {
  const fuse_entry_param entry = add(request, parent, name, S_IFDIR | mode);
  fuse_reply_entry(request, &entry);
}

void remove(fuse_req_t request, fuse_ino_t parent, const char* name) {
  fuse_reply_err(request, names(request).inodes.erase(Names::key(parent, name)) != 0 ? 0 : ENOENT);
}

void rename(fuse_req_t request, fuse_ino_t parent, const char* name, fuse_ino_t to_parent,
            const char* to_name, unsigned) {
  auto moved = names(request).inodes.extract(Names::key(parent, name));
  if (moved.empty()) {
    fuse_reply_err(request, ENOENT);
    return;
  }
  names(request).inodes[Names::key(to_parent, to_name)] = moved.mapped();
  fuse_reply_err(request, 0);
}

void create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode,
            fuse_file_info* info) {
  const fuse_entry_param entry = add(request, parent, name, S_IFREG | (mode & 07777U));
  info->noflush = 1;
  fuse_reply_create(request, &entry, info);
}

void open_file(fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
  info->noflush = 1;
  fuse_reply_open(request, info);
}

void release(fuse_req_t request, fuse_ino_t, fuse_file_info*) {
  fuse_reply_err(request, 0);
}

void open_directory(fuse_req_t request, fuse_ino_t, fuse_file_info*) {
  fuse_reply_err(request, ENOSYS);  // the kernel asks no more
}

void get_attribute(fuse_req_t request, fuse_ino_t, const char*, std::size_t) {
  fuse_reply_err(request, ENODATA);
}

fuse_lowlevel_ops operations() {
  fuse_lowlevel_ops all{};
  all.init = begin;
  all.lookup = lookup;
  all.getattr = getattr;
  all.setattr = set_attributes;
  all.mkdir = make_directory;
  all.rmdir = remove;
  all.unlink = remove;
  all.rename = rename;
  all.create = create;
  all.open = open_file;
  all.release = release;
  all.opendir = open_directory;
  all.getxattr = get_attribute;
  return all;
}

int poll(fuse_session* session) {
  const int fd = fuse_session_fd(session);
  if (::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) {
    return -errno;
  }
  fuse_buf buffer{};
  int got = 0;
  while (fuse_session_exited(session) == 0 && (got >= 0 || got == -EAGAIN || got == -EINTR)) {
    got = fuse_session_receive_buf(session, &buffer);
    if (got > 0) {
      fuse_session_process_buf(session, &buffer);
    }
  }
  std::free(buffer.mem);
  return fuse_session_exited(session) != 0 ? 0 : got;
}

}  // namespace

int main(int argc, char** argv) {
  const bool polls = argc == 3 && std::string_view(argv[2]) == "poll";
  if (argc != 2 && !polls) {
    std::fprintf(stderr, "usage: efs-bench-names MOUNTPOINT [poll]\n");
    return 2;
  }
  Names all;
  const fuse_lowlevel_ops calls = operations();
  char option[] = "-odefault_permissions";  // as efs: then the kernel asks for a changed parent
  char* words[] = {argv[0], option, nullptr};
  fuse_args arguments = FUSE_ARGS_INIT(2, words);
  fuse_session* session = fuse_session_new(&arguments, &calls, sizeof calls, &all);
  if (session == nullptr || fuse_session_mount(session, argv[1]) != 0) {
    return 1;
  }
  std::puts("mounted");
  std::fflush(stdout);
  const int failed = polls ? poll(session) : fuse_session_loop(session);
  fuse_session_unmount(session);
  fuse_session_destroy(session);
  return failed == 0 ? 0 : 1;
}
