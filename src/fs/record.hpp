#pragma once
// Every change of the namespace is one of these records; Namespace::apply() is the only code that carries one out.
// A live request, recovery and takeover differ only in where the record comes from. All values are absolute, so
// that carrying out a record twice gives the same state. The bytes are described in src/store/README.md.

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

/// A new inode under its first name: create, mkdir, symlink, mknod, and publication after a stage-in. Without a name
/// (O_TMPFILE, and unlinked files in a snapshot) it is in no directory.
struct MakeNode {
  std::uint64_t ino = 0, parent = 0, rdev = 0;
  std::uint32_t mode = 0, uid = 0, gid = 0;
  Nanoseconds atime = 0, mtime = 0, ctime = 0;
  std::uint8_t dirty = 1;
  std::uint8_t staged = 0;  // 0 or: 1 origin counts; 2 its content as staged in is on the medium, too (Settled)
  Origin origin;
  std::string name, target, origin_path;
  template <typename F> void fields(F&& f) {
    f(ino, parent, rdev, mode, uid, gid, atime, mtime, ctime, dirty, staged, origin.device, origin.inode, origin.size, origin.mtime, origin.ctime, name, target, origin_path);
  }
};

/// One more name.
struct Link {
  std::uint64_t ino = 0, parent = 0;
  Nanoseconds time = 0;
  std::string name;
  template <typename F> void fields(F&& f) { f(ino, parent, time, name); }
};

/// A name less: unlink and rmdir.
struct Unlink {
  std::uint64_t parent = 0;
  Nanoseconds time = 0;
  std::string name;
  template <typename F> void fields(F&& f) { f(parent, time, name); }
};

/// rename(2); an existing target loses its name in the same record. flags: RENAME_EXCHANGE or 0.
struct Rename {
  std::uint64_t parent = 0, new_parent = 0;
  std::uint32_t flags = 0;
  Nanoseconds time = 0;
  std::string name, new_name;
  template <typename F> void fields(F&& f) { f(parent, new_parent, flags, time, name, new_name); }
};

/// All attributes that the record keeps, as they are from now on.
struct SetAttributes {
  std::uint64_t ino = 0;
  std::uint32_t mode = 0, uid = 0, gid = 0;
  Nanoseconds atime = 0, mtime = 0, ctime = 0;
  std::uint8_t dirty = 0;
  template <typename F> void fields(F&& f) { f(ino, mode, uid, gid, atime, mtime, ctime, dirty); }
};

struct SetXattr {
  std::uint64_t ino = 0;
  Nanoseconds time = 0;
  std::string name, value;
  template <typename F> void fields(F&& f) { f(ino, time, name, value); }
};

struct RemoveXattr {
  std::uint64_t ino = 0;
  Nanoseconds time = 0;
  std::string name;
  template <typename F> void fields(F&& f) { f(ino, time, name); }
};

/// Inode numbers below `next` have been used: none is ever used twice, also when a snapshot has forgotten its file.
struct UsedInodes {
  std::uint64_t next = 0;
  template <typename F> void fields(F&& f) { f(next); }
};

/// The content of these inodes, as staged in, survives power loss (R1: the backend was synced before this record).
struct Settled {
  std::string inodes;  // u64 each, little-endian
  template <typename F> void fields(F&& f) { f(inodes); }
};

/// The PFS holds what the inode holds, under `path` in results-dir: it is clean until the next change. `staged` 1: the
/// PFS file is also the one that it was staged in from, now in the version `origin`.
struct Saved {
  std::uint64_t ino = 0;
  std::uint8_t staged = 0;
  Origin origin;
  std::string path;
  template <typename F> void fields(F&& f) { f(ino, staged, origin.device, origin.inode, origin.size, origin.mtime, origin.ctime, path); }
};

/// The index of an alternative is its type on the medium: append only, never reorder.
using Record = std::variant<MakeNode, Link, Unlink, Rename, SetAttributes, SetXattr, RemoveXattr, UsedInodes, Settled, Saved>;

/// Appends the record's bytes to `out`.
void encode(const Record& record, std::vector<std::byte>& out);

/// EPROTO where the bytes are no record.
Result<Record> decode(std::span<const std::byte> bytes);

}  // namespace efs::fs
