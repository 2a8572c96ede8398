// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Versions of what a name on the PFS leads to, and the policies by which two of them are the same.
// Pure.

#include <sys/stat.h>

#include <cstdint>
#include <optional>

#include "base/clock.hpp"

namespace efs::ledger {

/// The version of a file or of a symbolic link: what stat(2) shows of it.
struct FileVersion {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;  // bytes
  Nanoseconds mtime = 0;
  // 0: an exported copy that another node may also have exported; its version is unknown
  Nanoseconds ctime = 0;
  // for a copy that is about to get its name, which changes ctime: compare the other members
  static constexpr Nanoseconds any_ctime = -1;
  bool operator==(const FileVersion&) const = default;
};

FileVersion version_of(const struct stat& st);

/// Compares the members that stay the same when the file gets another name or the PFS is mounted
/// again. A hard link does not make another version.
bool is_same_file(const FileVersion& a, const FileVersion& b);

/// A changed ctime is another version, or it is not.
enum class Ctime : std::uint8_t { counts, ignored };

/// True if `now` is the version `known`. The device does not count: it may change with a mount.
bool is_version(const FileVersion& known, const FileVersion& now, Ctime ctime);

/// A file that had a name.
struct File {
  FileVersion version;
  bool linked = false;  // had several names: efs changes its ctime when it replaces one of them
  bool operator==(const File&) const = default;

  template <typename F>
  void fields(F&& f) {
    f(version.device, version.inode, version.size, version.mtime, version.ctime, linked);
  }
};

File file_of(const struct stat& st);

/// The same for files. The ctime of a file with several names never counts.
bool is_version(const File& known, const File& now, Ctime ctime);

/// The attributes of a directory as separate values.
struct DirectoryShape {
  std::uint32_t mode = 0;  // permission bits
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint64_t xattrs = 0;  // their version
  bool operator==(const DirectoryShape&) const = default;

  template <typename F>
  void fields(F&& f) {
    f(mode, uid, gid, xattrs);
  }
};

/// The attributes that a store has given to a directory. A version is the sum of all attributes.
/// Empty if it has given none.
struct DirectoryState {
  std::optional<std::uint64_t> version{};  // the version set last
  // a change was begun and not recorded as done: the directory may have some of the new attributes
  bool interrupted = false;
  // the attributes before that change; nullopt: the directory was being made
  std::optional<DirectoryShape> was{};
  // made with that version, before it got its final attributes
  bool unfinished = false;
  // the version set since then, not yet durable: a crash of the PFS may restore `version`
  std::optional<std::uint64_t> applied{};
  bool operator==(const DirectoryState&) const = default;

  template <typename F>
  void fields(F&& f) {
    f(version, interrupted, was, unfinished, applied);
  }
};

/// The state when the directory is about to be made or changed. `has`: its present attributes;
/// nullopt: as recorded before.
DirectoryState begun(DirectoryState before, const std::optional<DirectoryShape>& has);
/// The state when that version was set and is not durable yet.
DirectoryState applied(DirectoryState before, std::uint64_t version);
/// The state when that version is durable; nullopt: nothing was changed.
DirectoryState done(const DirectoryState& before, std::optional<std::uint64_t> version);

}  // namespace efs::ledger
