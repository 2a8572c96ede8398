#pragma once
// Every change of the namespace is one of these records; Namespace::apply() is the only code that
// carries one out. A live request, recovery and takeover differ only in where the record comes
// from. All values are absolute, so that carrying out a record twice gives the same state. The
// bytes are described in src/store/README.md.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "fs/staging.hpp"

namespace efs::fs {

/// A new inode under its first name: create, mkdir, symlink, mknod, and publication after a
/// stage-in. Without a name (O_TMPFILE, and unlinked files in a snapshot) it is in no directory.
struct MakeNode {
  std::uint64_t ino = 0, parent = 0, rdev = 0;
  std::uint32_t mode = 0, uid = 0, gid = 0;
  FileTime atime, mtime, ctime, btime;
  std::uint8_t dirty = 1;
  // 0 or: 1 origin counts; 2 its content as staged in is on the medium, too (Settled)
  std::uint8_t staged = 0;
  std::uint64_t cookie = 0;  // of the name in its directory; 0: the next
  Origin origin;
  std::string name, target, origin_path;
  std::map<std::string, std::string> xattrs;  // that it is born with

  template <typename F>
  void fields(F&& f) {
    f(ino, parent, rdev, mode, uid, gid, atime, mtime, ctime, btime, dirty, staged, cookie,
      origin.device, origin.inode, origin.size, origin.mtime, origin.ctime, name, target,
      origin_path, xattrs);
  }
};

/// One more name.
struct Link {
  std::uint64_t ino = 0, parent = 0;
  std::uint64_t cookie = 0;  // as in MakeNode
  FileTime time;
  std::string name;

  template <typename F>
  void fields(F&& f) {
    f(ino, parent, cookie, time, name);
  }
};

/// A name less: unlink and rmdir.
struct Unlink {
  std::uint64_t parent = 0;
  FileTime time;
  std::string name;

  template <typename F>
  void fields(F&& f) {
    f(parent, time, name);
  }
};

/// rename(2); an existing target loses its name in the same record, and its class where the other
/// has none of its own. flags: RENAME_EXCHANGE or 0.
struct Rename {
  std::uint64_t parent = 0, new_parent = 0;
  std::uint32_t flags = 0;
  FileTime time;
  std::string name, new_name;

  template <typename F>
  void fields(F&& f) {
    f(parent, new_parent, flags, time, name, new_name);
  }
};

/// All attributes that the record keeps, as they are from now on. The access ACL is one of them,
/// for it and the mode say the same thing and change together.
struct SetAttributes {
  std::uint64_t ino = 0;
  std::uint32_t mode = 0, uid = 0, gid = 0;
  FileTime atime, mtime, ctime;
  std::uint8_t dirty = 0;
  std::string access_acl;  // as its extended attribute; empty: none beyond the mode

  template <typename F>
  void fields(F&& f) {
    f(ino, mode, uid, gid, atime, mtime, ctime, dirty, access_acl);
  }
};

struct SetXattr {
  std::uint64_t ino = 0;
  FileTime time;
  std::string name, value;

  template <typename F>
  void fields(F&& f) {
    f(ino, time, name, value);
  }
};

struct RemoveXattr {
  std::uint64_t ino = 0;
  FileTime time;
  std::string name;

  template <typename F>
  void fields(F&& f) {
    f(ino, time, name);
  }
};

/// Inode numbers below `next` have been used: none is ever used twice, also when a snapshot has
/// forgotten its file.
struct UsedInodes {
  std::uint64_t next = 0;

  template <typename F>
  void fields(F&& f) {
    f(next);
  }
};

/// The next entry of this directory gets this cookie: readers that walk it go on after a snapshot
/// as before.
struct NextCookie {
  std::uint64_t ino = 0, next = 0;

  template <typename F>
  void fields(F&& f) {
    f(ino, next);
  }
};

/// A new connection to the kernel: request numbers begin again, those of earlier records mean
/// nothing any more.
struct NewConnection {
  std::uint8_t unused = 0;

  template <typename F>
  void fields(F&& f) {
    f(unused);
  }
};

/// In a snapshot: the record's request was carried out and concerned this inode. Its answer may not
/// have been heard.
struct Answered {
  std::uint64_t ino = 0;

  template <typename F>
  void fields(F&& f) {
    f(ino);
  }
};

/// What staging keeps of an inode, all of it, as it is from now on.
struct SetStaging {
  std::uint64_t ino = 0;
  std::uint8_t dirty = 0;
  std::uint8_t keep = 0;    // fs::Keep
  std::uint8_t staged = 0;  // origin counts
  std::uint8_t saved = 0;   // 0 or: 1 copy counts; 2 and it has the content that came in
  Origin origin, copy;
  std::string origin_path, saved_path, parts;

  template <typename F>
  void fields(F&& f) {
    f(ino, dirty, keep, staged, saved, origin.device, origin.inode, origin.size, origin.mtime,
      origin.ctime, copy.device, copy.inode, copy.size, copy.mtime, copy.ctime, origin_path,
      saved_path, parts);
  }
};

/// A file gets a name, and who has that name loses it in the same record: as in Rename.
struct Replace {
  std::uint64_t ino = 0, parent = 0;
  FileTime time;
  std::string name;

  template <typename F>
  void fields(F&& f) {
    f(ino, parent, time, name);
  }
};

/// The content of these inodes, clean, survives power loss (R1: the backend was synced before this
/// record).
struct Settled {
  std::string inodes;  // u64 each, little-endian

  template <typename F>
  void fields(F&& f) {
    f(inodes);
  }
};

/// Something that was staged in under `path` has no name any more (Namespace::gone()); in
/// snapshots. Not `there`: that is forgotten; 2: the job did not take it away.
struct Gone {
  static constexpr std::uint8_t removed = 1, unloaded = 2;
  std::uint32_t mode = 0;
  std::uint8_t there = 0, keep = 0, linked = 0;
  std::uint8_t saved = 0;  // copy counts
  Origin origin, copy;
  std::string path, target;

  template <typename F>
  void fields(F&& f) {
    f(mode, there, keep, linked, saved, origin.device, origin.inode, origin.size, origin.mtime,
      origin.ctime, copy.device, copy.inode, copy.size, copy.mtime, copy.ctime, path, target);
  }
};

/// The index of an alternative is its type on the medium: append only, never reorder.
using Record =
    std::variant<MakeNode, Link, Unlink, Rename, SetAttributes, SetXattr, RemoveXattr, UsedInodes,
                 NextCookie, NewConnection, Answered, SetStaging, Replace, Settled, Gone>;

/// The inode that the answer to the record's request names; of Unlink and Rename: none (0).
std::uint64_t inode_of(const Record& record);

/// Appends the record's bytes to `out`.
void encode(const Record& record, std::vector<std::byte>& out);

/// EPROTO where the bytes are no record.
Result<Record> decode(std::span<const std::byte> bytes);

}  // namespace efs::fs
