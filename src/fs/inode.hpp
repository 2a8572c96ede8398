#pragma once
// One inode of the namespace, in memory. Size, blocks and data times of a regular file are its
// container's.

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "fs/directory.hpp"
#include "fs/staging.hpp"

namespace efs::fs {

inline constexpr std::uint64_t root_ino = 1;

/// What few inodes have.
struct InodeExtra {
  std::string target;  // of a symbolic link
  std::map<std::string, std::string> xattrs;
  std::optional<Origin> origin;  // staged in
  // under this name, or these: a NUL between them (is_one_of())
  std::string origin_path;
  // the copy in results-dir that an unload made, as it was then
  std::optional<Origin> saved;
  std::string saved_path;  // under this name, likewise
  // that copy has the content that came in: under its other names nothing has changed
  bool saved_as_staged = false;
  std::string parts;          // of a file of which only parts were loaded: which
  Keep keep = Keep::by_rule;  // set while the job runs; wins over the job file

  /// Punching zeros moves the container's mtime, which is set back, and its ctime, which cannot be:
  /// as long as it has these times, `shown` is what programs see as ctime.
  struct KeptTime {
    FileTime shown, ctime, mtime;
  };

  std::optional<KeptTime> kept_time;
};

/// Whether `path` is one of `names`, which have a NUL between them.
bool is_one_of(std::string_view names, std::string_view path);
/// Each of them; and the same without `path`.
std::vector<std::string> split_names(std::string_view names);
std::string without_name(std::string_view names, std::string_view path);

/// Guarded by the namespace lock, except what is atomic.
struct Inode {
  std::uint64_t ino = 0;
  std::uint64_t parent = 0;  // of a directory
  std::uint64_t rdev = 0;
  FileTime atime;  // atime and mtime: of all but regular files
  FileTime mtime;
  FileTime ctime;  // of a regular file: of its record; its container's may be later
  FileTime btime;  // birth
  mode_t mode = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  std::uint32_t nlink = 0;  // of a directory: 2 and its subdirectories
  bool dirty = false;
  bool settled = false;  // clean, and its content survives power loss
  // a predecessor of this process gave references to the kernel; lookups is no count then
  bool inherited = false;
  // false: the answer that tells the kernel of it may still have to be given
  bool had_name = false;
  bool withdrawn = false;  // staging took its last name
  bool reserved = false;   // fallocate(2) has reserved space for it; see Filesystem::may_punch()
  std::atomic<bool> opened_read_write{false};      // its mapping may move mtime unseen
  std::atomic<std::uint32_t> read_write_opens{0};  // open read-write just now
  // opens for writing that were not released yet, those included; see unknown_opens
  std::atomic<std::uint32_t> write_opens{0};
  // opens for reading only that were not released yet
  std::atomic<std::uint32_t> read_opens{0};
  std::atomic<bool> unshared{false};  // known: nobody else relies on its container's bytes
  // grows with each open for writing and each change of attributes
  std::atomic<std::uint64_t> edits{0};
  // references of the kernel; may be too high, never too low
  std::atomic<std::uint64_t> lookups{0};
  std::unique_ptr<Directory> directory;
  /// Of a regular file without a name whose container was removed before the kernel gave back its
  /// last reference: the container's attributes. See Filesystem::free_unopened().
  std::unique_ptr<struct stat> freed;
  std::unique_ptr<InodeExtra> extra;

  /// The opens of a predecessor's time are not counted: so many stand for them, and RELEASE never
  /// counts them down.
  static constexpr std::uint32_t unknown_opens = 1U << 30U;

  /// A program may have it open for writing since before this process.
  bool may_be_open_from_before() const { return write_opens > unknown_opens / 2; }

  /// Staging took its last name, and the kernel may be on its way here by that name still: what a
  /// program stores in it would be nowhere. ESTALE has the name looked up again. (What a
  /// predecessor did is not known: of what the job has written it was the job.)
  bool may_have_been_withdrawn() const {
    return nlink == 0 && (withdrawn || (inherited && !dirty));
  }

  /// The value of an extended attribute; null: none.
  const std::string* xattr(const std::string& name) const {
    if (!extra) {
      return nullptr;
    }
    const auto it = extra->xattrs.find(name);
    return it == extra->xattrs.end() ? nullptr : &it->second;
  }

  /// A first write by the wrong one takes this away, so every write has to be seen.
  bool carries_privilege() const {
    return (mode & (S_ISUID | S_ISGID)) != 0 || xattr("security.capability") != nullptr;
  }

  /// No program can reach the content any more: the last name is gone, and no open was counted that
  /// was not released. One that never had a name may get one yet; the opens of an inherited one are
  /// not known.
  bool is_unreachable() const {
    return is_regular() && nlink == 0 && had_name && !inherited && write_opens == 0 &&
           read_opens == 0;
  }

  bool is_directory() const { return S_ISDIR(mode); }

  bool is_regular() const { return S_ISREG(mode); }

  InodeExtra& more() {
    if (!extra) {
      extra = std::make_unique<InodeExtra>();
    }
    return *extra;
  }
};

/// The ctime of a regular file whose container has these attributes, as programs see it, but for
/// changes of its record: punching zeros is none.
FileTime shown_ctime(const Inode& inode, const struct stat& container);

}  // namespace efs::fs
