#pragma once
// What staging may do with the file system: fill containers that have no name yet, publish them whole, and walk
// the namespace to bring results out. Works whether or not the file system is mounted.

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace efs::fs {

class Filesystem;

/// The version of a PFS file as it was staged in: what a stage-out compares to see that it is still the same.
struct Origin {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;  // bytes
  Nanoseconds mtime = 0;
  Nanoseconds ctime = 0;
  bool operator==(const Origin&) const = default;
};

struct StagedAttributes {
  mode_t mode = 0;  // permission bits
  uid_t uid = 0;
  gid_t gid = 0;
  Nanoseconds atime = 0;
  Nanoseconds mtime = 0;
};

/// One name of the namespace, as walk() reports it.
struct WalkItem {
  std::string path;  // relative to the root: "a/b"; the root itself is not reported
  std::uint64_t ino = 0;
  struct stat attributes {};
  std::string target;            // of a symbolic link
  bool dirty = false;            // content, attributes or name may differ from what was staged in (true for new files)
  std::optional<Origin> origin;  // present where the inode was staged in (and still has the name it was given)
  bool saved = false;            // not dirty because results-dir has it under this path
};

/// Thread-safe: any number of threads may call any member at once.
class Staging {
 public:
  explicit Staging(Filesystem& filesystem) : filesystem_(filesystem) {}

  /// A new regular file without a name and its empty container. Abandoned files vanish with the instance.
  Result<std::uint64_t> begin_file();

  /// The container's descriptor, for reading (O_RDONLY) or filling (O_RDWR). Offsets are those of the file.
  Result<UniqueFd> open_container(std::uint64_t ino, int flags);

  /// Frees a file that begin_file() made and that was not published.
  void abandon(std::uint64_t ino);

  /// Gives the file its name and attributes: one journal record, after which it is visible, whole and clean.
  /// The data must be in the container. EEXIST if the name is taken, ENOENT if the parent is missing.
  Status publish_file(std::uint64_t ino, const std::string& path, const StagedAttributes& attributes, const Origin& origin);

  /// A directory (an existing directory is given the attributes) or a symbolic link, likewise.
  Status make_directory(const std::string& path, const StagedAttributes& attributes);
  Status make_symlink(const std::string& path, const std::string& target, const StagedAttributes& attributes);

  /// Takes a name away that nobody may be using: before the mount, for what is staged in anew. ENOTEMPTY as rmdir(2).
  Status remove(const std::string& path);

  /// Books that results-dir has the file or link at `path` as it is now, so that it is clean until it changes.
  /// `origin`: and that PFS file is what it was staged in from, in this version.
  Status mark_saved(const std::string& path, const std::optional<Origin>& origin);

  /// The whole namespace, parents before children, names in byte order.
  Result<std::vector<WalkItem>> walk();

  /// Bytes that the buffer can still take (the journal's reserve left out).
  Result<std::uint64_t> available_bytes();

 private:
  Filesystem& filesystem_;
};

}  // namespace efs::fs
