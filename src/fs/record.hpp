// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Every change of the namespace is one of these records. Only Namespace::apply() carries records
// out. A live request, a recovery and a takeover differ only in the origin of the record. All
// values are absolute, so that applying a record twice gives the same state. src/store/README.md
// describes the bytes.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.hpp"
#include "base/extents.hpp"
#include "base/result.hpp"
#include "fs/staging.hpp"
#include "ledger/event.hpp"
#include "store/format.hpp"

namespace efs::fs {

/// A new inode under its first name: create, mkdir, symlink, mknod, and publication after an
/// import. Without a name (O_TMPFILE, and unlinked files in a snapshot) the inode is in no
/// directory.
struct MakeNode {
  std::uint64_t ino = 0, parent = 0, rdev = 0;
  std::uint32_t mode = 0, uid = 0, gid = 0;
  FileTime atime, mtime, ctime, btime;
  std::uint8_t dirty = 1;
  // 0: not imported; 1: `origin` is valid; 2: also, the imported content is durable (Settled)
  std::uint8_t staged = 0;
  std::uint64_t cookie = 0;  // of the name; 0: the next one
  Origin origin;
  std::string name, target, origin_path;
  std::map<std::string, std::string> xattrs;  // initial attributes

  template <typename F>
  void fields(F&& f) {
    f(ino, parent, rdev, mode, uid, gid, atime, mtime, ctime, btime, dirty, staged, cookie,
      origin.device, origin.inode, origin.size, origin.mtime, origin.ctime, name, target,
      origin_path, xattrs);
  }
};

/// A further name.
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

/// Removes a name: unlink and rmdir.
struct Unlink {
  std::uint64_t parent = 0;
  FileTime time;
  std::string name;

  template <typename F>
  void fields(F&& f) {
    f(parent, time, name);
  }
};

/// rename(2). The same record removes the name of an existing target. The moved file inherits the
/// target's class if it has none of its own. flags: RENAME_EXCHANGE or 0.
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

/// All recorded attributes with their new values. They include the access ACL, because the ACL and
/// the mode express the same permissions and change together.
struct SetAttributes {
  std::uint64_t ino = 0;
  std::uint32_t mode = 0, uid = 0, gid = 0;
  FileTime atime, mtime, ctime;
  std::uint8_t dirty = 0;
  std::string access_acl;  // as an extended attribute; empty: only the mode

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

/// Inode numbers below `next` are used. No number is used twice, even if a snapshot no longer has
/// its file.
struct UsedInodes {
  std::uint64_t next = 0;

  template <typename F>
  void fields(F&& f) {
    f(next);
  }
};

/// The next entry of this directory gets this cookie, so that walks continue unchanged after a
/// snapshot.
struct NextCookie {
  std::uint64_t ino = 0, next = 0;

  template <typename F>
  void fields(F&& f) {
    f(ino, next);
  }
};

/// A new connection to the kernel: request numbers start again, and numbers of earlier records are
/// invalid.
struct NewConnection {
  std::uint8_t unused = 0;

  template <typename F>
  void fields(F&& f) {
    f(unused);
  }
};

/// In a snapshot: the record's request was carried out and concerned this inode. The kernel may not
/// have received the reply.
struct Answered {
  std::uint64_t ino = 0;

  template <typename F>
  void fields(F&& f) {
    f(ino);
  }
};

/// All staging data of an inode with their new values.
struct SetStaging {
  std::uint64_t ino = 0;
  std::uint8_t dirty = 0;
  std::uint8_t keep = 0;    // fs::Keep
  std::uint8_t staged = 0;  // 1: `origin` is valid
  // 0: no copy; 1: `copy` is valid; 2: also, the copy has the imported content
  std::uint8_t saved = 0;
  Origin origin, copy;
  std::string origin_path, saved_path, parts;

  template <typename F>
  void fields(F&& f) {
    f(ino, dirty, keep, staged, saved, origin.device, origin.inode, origin.size, origin.mtime,
      origin.ctime, copy.device, copy.inode, copy.size, copy.mtime, copy.ctime, origin_path,
      saved_path, parts);
  }
};

/// Gives a file a name. The same record removes the name from another file, as in Rename.
struct Replace {
  std::uint64_t ino = 0, parent = 0;
  FileTime time;
  std::string name;

  template <typename F>
  void fields(F&& f) {
    f(ino, parent, time, name);
  }
};

/// The content of these clean inodes survives power loss (R1: the backend was synced before this
/// record).
struct Settled {
  std::string inodes;  // u64 each, little-endian

  template <typename F>
  void fields(F&& f) {
    f(inodes);
  }
};

/// The file imported under `path` has no name any more (Namespace::gone()). `there` 0: forgets the
/// entry; 2: the job did not remove the name.
struct Gone {
  static constexpr std::uint8_t removed = 1, unloaded = 2;
  std::uint32_t mode = 0;
  std::uint8_t there = 0, keep = 0, linked = 0;
  std::uint8_t saved = 0;  // 1: `copy` is valid
  Origin origin, copy;
  std::string path, target;

  template <typename F>
  void fields(F&& f) {
    f(mode, there, keep, linked, saved, origin.device, origin.inode, origin.size, origin.mtime,
      origin.ctime, copy.device, copy.inode, copy.size, copy.mtime, copy.ctime, path, target);
  }
};

/// The content of a regular file in a container that does not know its size, its times and the
/// places of its bytes. The extents replace those of the bytes [begin, end) of the file; all other
/// fields are the new values of the whole file.
struct SetContent {
  // a file with more extents needs several records
  static constexpr std::size_t most_extents = 8192;
  std::uint64_t ino = 0;
  std::uint64_t size = 0;      // bytes, as programs see it
  std::uint64_t physical = 0;  // bytes that the content takes on the device
  FileTime atime, mtime, ctime;
  std::uint64_t begin = 0, end = 0;
  std::vector<Extent> extents;  // sound, sorted, without overlap

  template <typename F>
  void fields(F&& f) {
    f(ino, size, physical, atime, mtime, ctime, begin, end, extents);
  }
};

/// The content of this regular file lacks writes that a program believes done (`lacks` 1), or
/// nothing any more: it was truncated to nothing since (0).
struct LostWrites {
  std::uint64_t ino = 0;
  std::uint8_t lacks = 0;

  template <typename F>
  void fields(F&& f) {
    f(ino, lacks);
  }
};

/// A MakeNode of a regular file whose content is not in its container but on the PFS (Remote). A
/// reader that took the container for the content would export a hole.
struct MakeRemote : MakeNode {
  Origin version;  // of the PFS file
  std::string source;
  std::uint8_t background = 0;
  std::int32_t priority = 0;
  std::uint8_t accepts = 0;
  std::uint64_t room = 0;
  std::uint8_t evictable = 0;

  template <typename F>
  void fields(F&& f) {
    MakeNode::fields(f);
    f(version.device, version.inode, version.size, version.mtime, version.ctime, source, background,
      priority, accepts, room, evictable);
  }
};

/// The container of this remote file has the content of the PFS file (R1: it is as durable as the
/// store before this record).
struct Fetched {
  std::uint64_t ino = 0;

  template <typename F>
  void fields(F&& f) {
    f(ino);
  }
};

/// Only the PFS has the content of this clean file from here on (Remote): its container may lose it
/// when this record is durable (R3). The times are those that programs see.
struct Evicted {
  std::uint64_t ino = 0;
  FileTime atime, mtime, ctime;
  Origin version;  // of the PFS file
  std::string source;

  template <typename F>
  void fields(F&& f) {
    f(ino, atime, mtime, ctime, version.device, version.inode, version.size, version.mtime,
      version.ctime, source);
  }
};

/// The content of this remote file will be this version of the PFS file: size and mtime of the file
/// are those of the version, and its ctime is `time`.
struct NewVersion {
  std::uint64_t ino = 0;
  Origin version;
  std::uint64_t room = 0;
  FileTime time{};

  template <typename F>
  void fields(F&& f) {
    f(ino, version.device, version.inode, version.size, version.mtime, version.ctime, room, time);
  }
};

/// Container `container` has the content of this regular file from here on (R1: it is as durable as
/// its backend before this record). The former one may be removed when this record is durable (R3).
/// The times are those of InodeExtra::kept_time.
struct Moved {
  std::uint64_t ino = 0, container = 0;
  FileTime shown, ctime, mtime;

  template <typename F>
  void fields(F&& f) {
    f(ino, container, shown, ctime, mtime);
  }
};

/// Whether this regular file is pinned (Staging::set_pinned()).
struct Pinned {
  std::uint64_t ino = 0;
  std::uint8_t pinned = 0;

  template <typename F>
  void fields(F&& f) {
    f(ino, pinned);
  }
};

/// The index of an alternative is its type on the medium. Only append alternatives; never reorder
/// them.
using Record =
    std::variant<MakeNode, Link, Unlink, Rename, SetAttributes, SetXattr, RemoveXattr, UsedInodes,
                 NextCookie, NewConnection, Answered, SetStaging, Replace, Settled, Gone,
                 SetContent, ledger::Announced, ledger::Exported, ledger::Removed, ledger::Imported,
                 ledger::DirectoryGiven, ledger::Missed, LostWrites, MakeRemote, Fetched,
                 NewVersion, Evicted, Moved, Pinned>;

/// The first level of the format, and the level that this efs has. A record states the level that
/// its reader needs. A new type, or a new field behind the others (see record_fields.hpp), is a new
/// level. It is needed, unless a reader may ignore the type or the field: encode() then keeps the
/// lower level.
inline constexpr std::uint8_t first_level = 4, record_level = 8;

/// The level of the ledger's events: a reader that skipped one could take another user's file for
/// this store's. And of LostWrites: a reader that skipped it would export a file with a hole.
inline constexpr std::uint8_t ledger_level = 5;

/// The level of remote files: a reader that skipped one could take its hole for its content.
inline constexpr std::uint8_t remote_level = 6;

/// The level of new versions and of evictions: a reader that skipped one could take an empty
/// container, or another version, for the content.
inline constexpr std::uint8_t evicted_level = 7;

/// The level of moves: a reader that skipped one could take a former container for the content.
inline constexpr std::uint8_t moved_level = 8;

/// Reserved for SetContent. This efs has its type and Namespace::apply() for it, but its file
/// systems cannot serve such a file. So it refuses the record (see decode()), and writes none.
inline constexpr std::uint8_t content_level = 9;

/// The new node of a MakeNode or a MakeRemote; null: another record.
const MakeNode* node_of(const Record& record);

/// The inode in the reply to the record's request; 0 for Unlink and Rename.
std::uint64_t inode_of(const Record& record);

/// Appends the record's bytes to `out`.
void encode(const Record& record, std::vector<std::byte>& out);

/// Reads a record of a journal of this version, as a reader of `level`. nullopt: a type of a newer
/// efs, which this one may skip. EPROTO if the bytes are not a record, or if the record states a
/// level at which its type did not exist. EPROTONOSUPPORT with a text if only a reader of a higher
/// level can carry it out. Tests read higher levels than record_level.
Result<std::optional<Record>> decode(std::span<const std::byte> bytes,
                                     std::uint32_t version = store::journal_version,
                                     std::uint8_t level = record_level);

}  // namespace efs::fs
