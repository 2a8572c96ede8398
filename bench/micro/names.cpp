// SPDX-License-Identifier: BSD-3-Clause
// A file system of names without contents, in a hash table.
//   usage: efs-bench-names MOUNTPOINT [poll | threads | cloned]   (as root; until it is unmounted)
//
// With `poll` it never sleeps, so that the kernel need not wake it up. With `threads` two threads
// answer, bound to CPU 0 and CPU 1; with `cloned` two threads answer that are not bound, each on
// its own descriptor of the connection (FUSE_DEV_IOC_CLONE).
//
// bench.py compares efs with this server for operations on names. It does no work: no storage, no
// journal, no permissions. It answers by one system call, never forgets an inode, and lets the
// kernel cache all that can be cached. What a name costs here are the kernel's requests
// and the wake-ups, so no server on this kernel and machine makes names much faster.
#define FUSE_USE_VERSION 317
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <sched.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

namespace {

constexpr double for_ever = 1e9;  // seconds

/// Thread-safe.
class Names {
 public:
  /// Returns 0 if there is no such name.
  fuse_ino_t find(fuse_ino_t parent, const char* name) {
    const std::lock_guard lock(mutex_);
    const auto found = inodes_.find(key(parent, name));
    return found == inodes_.end() ? 0 : found->second;
  }

  fuse_ino_t add(fuse_ino_t parent, const char* name, mode_t mode) {
    const std::lock_guard lock(mutex_);
    modes_.push_back(mode);
    return inodes_[key(parent, name)] = modes_.size() - 1;
  }

  bool remove(fuse_ino_t parent, const char* name) {
    const std::lock_guard lock(mutex_);
    return inodes_.erase(key(parent, name)) != 0;
  }

  bool move(fuse_ino_t parent, const char* name, fuse_ino_t to_parent, const char* to_name) {
    const std::lock_guard lock(mutex_);
    auto moved = inodes_.extract(key(parent, name));
    if (!moved.empty()) {
      inodes_[key(to_parent, to_name)] = moved.mapped();
    }
    return !moved.empty();
  }

  mode_t mode(fuse_ino_t ino) {
    const std::lock_guard lock(mutex_);
    return modes_[ino];
  }

  void set_mode(fuse_ino_t ino, mode_t mode) {
    const std::lock_guard lock(mutex_);
    modes_[ino] = mode;
  }

 private:
  static std::string key(fuse_ino_t parent, const char* name) {
    return std::to_string(parent) + "/" + name;
  }

  std::mutex mutex_;
  std::unordered_map<std::string, fuse_ino_t> inodes_;  // by key()
  std::vector<mode_t> modes_{0, S_IFDIR | 0755};        // by inode; 1 is the root
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
  found.st_mode = names(request).mode(ino);
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
  return entry_of(request, names(request).add(parent, name, mode));
}

void lookup(fuse_req_t request, fuse_ino_t parent, const char* name) {
  const fuse_ino_t found = names(request).find(parent, name);
  if (found == 0) {
    fuse_reply_err(request, ENOENT);
    return;
  }
  const fuse_entry_param entry = entry_of(request, found);
  fuse_reply_entry(request, &entry);
}

void getattr(fuse_req_t request, fuse_ino_t ino, fuse_file_info*) {
  const struct stat found = attributes(request, ino);
  fuse_reply_attr(request, &found, for_ever);
}

void set_attributes(fuse_req_t request, fuse_ino_t ino, struct stat* wanted, int what,
                    fuse_file_info* info) {
  if ((what & FUSE_SET_ATTR_MODE) != 0) {
    names(request).set_mode(ino, wanted->st_mode);
  }
  getattr(request, ino, info);
}

void make_directory(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) {
  const fuse_entry_param entry = add(request, parent, name, S_IFDIR | mode);
  fuse_reply_entry(request, &entry);
}

void remove(fuse_req_t request, fuse_ino_t parent, const char* name) {
  fuse_reply_err(request, names(request).remove(parent, name) ? 0 : ENOENT);
}

void rename(fuse_req_t request, fuse_ino_t parent, const char* name, fuse_ino_t to_parent,
            const char* to_name, unsigned) {
  const bool moved = names(request).move(parent, name, to_parent, to_name);
  fuse_reply_err(request, moved ? 0 : ENOENT);
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

/// Answers until the unmount. Any number of threads may do so.
int serve(fuse_session* session) {
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

int poll(fuse_session* session) {
  const int fd = fuse_session_fd(session);
  if (::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) {
    return -errno;
  }
  return serve(session);
}

/// Binds this thread to the CPU first.
int serve_on(fuse_session* session, unsigned cpu) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(cpu, &only);
  return ::sched_setaffinity(0, sizeof only, &only) == 0 ? serve(session) : -errno;
}

int serve_by_two(fuse_session* session) {
  int failed = 0;
  std::thread other([&] { failed = serve_on(session, 1); });
  const int first = serve_on(session, 0);
  other.join();
  return failed != 0 ? failed : first;
}

int serve_by_clones(fuse_session* session) {
  fuse_loop_config* config = fuse_loop_cfg_create();
  fuse_loop_cfg_set_clone_fd(config, 1);
  fuse_loop_cfg_set_max_threads(config, 2);
  const int failed = fuse_session_loop_mt(session, config);
  fuse_loop_cfg_destroy(config);
  return failed;
}

int serve_as(std::string_view mode, fuse_session* session) {
  if (mode == "poll") {
    return poll(session);
  }
  if (mode == "threads") {
    return serve_by_two(session);
  }
  return mode == "cloned" ? serve_by_clones(session) : fuse_session_loop(session);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc == 3 ? argv[2] : "";
  if (argc != 2 && mode != "poll" && mode != "threads" && mode != "cloned") {
    std::fprintf(stderr, "usage: efs-bench-names MOUNTPOINT [poll | threads | cloned]\n");
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
  const int failed = serve_as(mode, session);
  fuse_session_unmount(session);
  fuse_session_destroy(session);
  return failed == 0 ? 0 : 1;
}
