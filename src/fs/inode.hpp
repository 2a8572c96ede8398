// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One inode of the namespace, in memory. The container of a regular file has its size, blocks and
// data times, unless the inode has a Content. ledger::Files has, by the inode's number, the
// versions of the file on the PFS.

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "base/extents.hpp"
#include "fs/directory.hpp"
#include "fs/staging.hpp"

namespace efs::fs {

inline constexpr std::uint64_t root_ino = 1;

/// The content of a regular file whose container does not know it (SetContent). Its times are the
/// inode's.
struct Content {
  std::uint64_t size = 0;      // bytes, as programs see it
  std::uint64_t physical = 0;  // bytes that the content takes on the device
  Extents extents;
};

/// Members that few inodes need.
struct InodeExtra {
  std::string target;  // of a symbolic link
  std::map<std::string, std::string> xattrs;
  Keep keep = Keep::by_rule;  // set while the job runs; wins over the job file

  /// Punching zeros changes the container's mtime and ctime. efs restores the mtime, but cannot
  /// restore the ctime. While the container has the times `ctime` and `mtime`, programs see `shown`
  /// as the ctime.
  struct KeptTime {
    FileTime shown, ctime, mtime;
  };

  std::optional<KeptTime> kept_time;
  std::unique_ptr<Content> content;  // null: the container knows it
  std::uint64_t container = 0;  // the number of a container that has moved; 0: that of the inode
  bool pinned = false;          // Staging::set_pinned()
  // null, or with Remote::is_here: the content is here
  std::unique_ptr<Remote> remote;
};

/// Guarded by the namespace lock, except atomic members.
struct Inode {
  std::uint64_t ino = 0;
  std::uint64_t parent = 0;  // of a directory
  std::uint64_t rdev = 0;
  // atime and mtime: of a regular file, while its container has time_in_record
  FileTime atime;
  FileTime mtime;
  FileTime ctime;  // of a regular file: the time of its record; its container's may be later
  FileTime btime;  // birth
  mode_t mode = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  std::uint32_t nlink = 0;  // of a directory: 2 plus the number of subdirectories
  bool dirty = false;
  bool settled = false;  // clean, and its content survives power loss
  // an earlier worker gave references to the kernel, so `lookups` is not exact
  bool inherited = false;
  // false: the reply that tells the kernel of the inode may be pending
  bool had_name = false;
  bool withdrawn = false;  // staging removed its last name
  bool reserved = false;   // fallocate(2) has reserved space for it; see Filesystem::may_punch()
  bool size_set = false;   // truncate(2) has set a size, within which writes take huge pages
  // Writes that failed although a program believes them done, since the file was last truncated to
  // nothing: see Filesystem::record_lost_write(). After a replay 1 stands for any number.
  std::uint32_t lost_writes = 0;
  // A program may change the file unseen, by a mapping: it was open read-write. Or by a descriptor
  // of the container: the owner of an open for writing died.
  std::atomic<bool> opened_read_write{false};
  std::atomic<std::uint32_t> read_write_opens{0};  // open read-write just now
  // opens for writing without a release, those included
  std::atomic<std::uint32_t> write_opens{0};
  // read-only opens without a release
  std::atomic<std::uint32_t> read_opens{0};
  // known not to be shared: no cache relies on its container's bytes
  std::atomic<bool> unshared{false};
  mutable std::atomic<bool> was_used{false};  // opened since the last look for contents to evict
  // incremented by each open for writing and each change of attributes
  std::atomic<std::uint64_t> edits{0};
  // references of the kernel; an upper bound
  std::atomic<std::uint64_t> lookups{0};
  std::unique_ptr<Directory> directory;
  /// The attributes of a container that was removed before the kernel dropped the last reference of
  /// an unnamed file. See Filesystem::free_unopened().
  std::unique_ptr<struct stat> freed;
  std::unique_ptr<InodeExtra> extra;

  /// Counts an open with these flags. Returns true if the first read-write open begins, by which a
  /// mapping may change times.
  bool count_open(int flags);
  /// Counts the end of an open that was counted.
  void count_close(int flags);

  bool is_open() const { return write_opens > 0 || read_opens > 0; }

  /// True if staging removed the last name and a request of the kernel by that name may be on its
  /// way. Data that a program writes through it would be lost. ESTALE makes the kernel look up the
  /// name again. (Actions of an earlier worker are unknown; a file that the job has written was
  /// removed by the job.)
  bool may_have_been_withdrawn() const {
    return nlink == 0 && (withdrawn || (inherited && !dirty));
  }

  /// The value of an extended attribute; null if it does not exist.
  const std::string* xattr(const std::string& name) const {
    if (!extra) {
      return nullptr;
    }
    const auto it = extra->xattrs.find(name);
    return it == extra->xattrs.end() ? nullptr : &it->second;
  }

  /// The class that the user has set for it.
  Keep keep() const { return extra ? extra->keep : Keep::by_rule; }

  /// The content that records describe; null if the container knows it.
  const Content* content() const { return extra ? extra->content.get() : nullptr; }

  /// The number of its container, if the backends do not know of moves: see fs/moved.hpp.
  std::uint64_t container() const {
    return extra && extra->container != 0 ? extra->container : ino;
  }

  /// True if the container does not have the content, because the PFS has it.
  bool is_remote() const { return extra && extra->remote && !extra->remote->is_here; }

  /// True if a write by an unprivileged caller must clear a privilege, so that the worker must see
  /// every write.
  bool carries_privilege() const {
    return (mode & (S_ISUID | S_ISGID)) != 0 || xattr("security.capability") != nullptr;
  }

  /// True if no program can reach the content: the last name is removed and all opens are
  /// released. False for a file that never had a name, because it may get one.
  bool is_unreachable() const { return is_regular() && nlink == 0 && had_name && !is_open(); }

  bool is_directory() const { return S_ISDIR(mode); }

  bool is_regular() const { return S_ISREG(mode); }

  InodeExtra& more() {
    if (!extra) {
      extra = std::make_unique<InodeExtra>();
    }
    return *extra;
  }
};

/// The nanoseconds of the atime and mtime of a container that was made before its file
/// (ContainerPool). They say that the file's record has the time: a create then changes nothing of
/// its container. The seconds are those before the container was made, so a cleaner of scratch sees
/// a new file.
inline constexpr std::uint32_t record_has_time = 271'828'182;

/// True if the record of a file has this time of its container. `latest`: the file's birth. A time
/// that a program or the kernel sets later is after it; a program that sets an earlier time by
/// chance has these nanoseconds once in 10^9.
inline bool is_in_record(const FileTime& of_container, const FileTime& latest) {
  return of_container.nanoseconds == record_has_time && of_container <= latest;
}

/// The ctime of a regular file whose container has these attributes, as programs see it, but for
/// changes of its record: punching zeros is none.
FileTime shown_ctime(const Inode& inode, const struct stat& container);

}  // namespace efs::fs
