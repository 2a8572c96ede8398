#pragma once
// One inode of the namespace, in memory. Size, blocks and data times of a regular file are its container's.

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "fs/directory.hpp"
#include "fs/staging.hpp"

namespace efs::fs {

inline constexpr std::uint64_t root_ino = 1;

/// What few inodes have.
struct InodeExtra {
  std::string target;                         // of a symbolic link
  std::map<std::string, std::string> xattrs;
  std::optional<Origin> origin;               // staged in
  std::string origin_path;                    // under this name
  std::string saved_path;                     // clean because results-dir has it, under this name
};

/// Guarded by the namespace lock, except `lookups`.
struct Inode {
  std::uint64_t ino = 0;
  std::uint64_t parent = 0;  // of a directory
  std::uint64_t rdev = 0;
  Nanoseconds atime = 0;  // atime and mtime: of all but regular files
  Nanoseconds mtime = 0;
  Nanoseconds ctime = 0;  // of a regular file: of its record; its container's may be later
  mode_t mode = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  std::uint32_t nlink = 0;  // of a directory: 2 and its subdirectories
  bool dirty = false;
  bool settled = false;  // its content as staged in survives power loss
  std::atomic<bool> opened_read_write{false};   // its mapping may move mtime unseen
  std::atomic<std::uint64_t> lookups{0};        // references of the kernel; may be too high, never too low
  std::unique_ptr<Directory> directory;
  std::unique_ptr<InodeExtra> extra;

  bool is_directory() const { return S_ISDIR(mode); }
  bool is_regular() const { return S_ISREG(mode); }
  InodeExtra& more() {
    if (!extra) extra = std::make_unique<InodeExtra>();
    return *extra;
  }
};

}  // namespace efs::fs
