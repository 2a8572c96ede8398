// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The cache of inputs. It keeps containers of files, so that later jobs on this node can import
// them without reading the PFS. The cache is a directory `efs-cache-UID` of one user, below a
// directory that the job file or the site configures.
//
// If the cache is on the file system of a job's store, both share a container by hard links,
// without a copy. A shared container is sealed (fs/seal.hpp). The first open for writing ends the
// sharing: the job keeps the container, as its programs may have it open, and the cache gets a
// copy. One job at a time shares a container; other jobs get copies.
//
// Entries are valid for one boot of the machine: the cache syncs nothing and drops entries after
// power loss. To stay within its capacity the cache evicts the least recently used entries. The
// file `state` is a lock for all threads and processes that use the cache, and holds the number of
// bytes. Names are made and removed only under this lock, which is held for moments. A process that
// dies leaves whole entries, or incomplete ones that the next scan removes. All calls use the
// rights of the user; other users have none.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.hpp"
#include "base/mutex.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "stage/import/cache_entry.hpp"

namespace efs::stage {

struct CachedFile {
  CacheKey key;
  std::string name;         // in the cache's directory
  std::uint64_t bytes = 0;  // space that it takes
  FileTime used;            // the time of the last import
  bool in_use = false;      // shared with the store of a job
};

/// Thread-safe.
class Cache {
 public:
  /// The minimum age of a file's last change. A file that changes twice in a short time could keep
  /// its time stamps, which are coarse on some PFS.
  static constexpr Nanoseconds settling = 2'000'000'000;

  /// Opens this user's cache below `base`. If it is missing, makes it if `make` is set, otherwise
  /// fails with ENOENT. EPERM if another user owns the directory or may enter it. `capacity`:
  /// bytes; absent: half of the file system.
  static Result<std::unique_ptr<Cache>> open(const std::string& base,
                                             std::optional<std::uint64_t> capacity,
                                             bool make = true);

  struct Found {
    // open for reading; its content may change at any time: see still_whole()
    std::shared_ptr<Container> container;
    bool adopted = false;  // `adopt` accepted it
  };

  /// Returns the entry for `key`. If no job shares the container, calls `adopt` to give the
  /// file another name; no other job can adopt it meanwhile. Drops the entry if it was modified.
  std::optional<Found> find(const CacheKey& key, const std::function<bool(Container&)>& adopt);
  /// Call it after a copy. True if the container has had the entry's content until now.
  static bool still_whole(Container& cached);

  /// Adds `container` to the cache, by a link if it is a file, otherwise by a copy. Requires: the
  /// container has the whole content of `key` and its times, and no process writes to it before it
  /// is unsealed. `read_from`: when the read from the PFS began, wall clock. EAGAIN: the file
  /// changed on the PFS too recently. EFBIG, ENOSPC: it does not fit. After an error the container
  /// is unchanged.
  Status offer(const CacheKey& key, Container& container, Nanoseconds read_from);

  /// Bytes that dropping all unshared entries would free, if the cache is on this file system.
  std::uint64_t idle_bytes(dev_t device);
  /// Drops unshared entries, the least recently used first, until so many bytes are freed.
  void free_space(std::uint64_t bytes);

  /// Call it before a sealed container of the PFS file `path` changes. If the cache shares the
  /// container, it makes a copy or drops the entry. See Sharer.
  void part(Container& container, const std::string& path);

  /// All entries, the least recently used first.
  Result<std::vector<CachedFile>> list();

  /// Removes the entries for which `chosen` is true. Returns their number and bytes. A job that
  /// shares a container keeps it.
  struct Removed {
    std::uint64_t files = 0, bytes = 0;
  };

  Result<Removed> remove(const std::function<bool(const CachedFile&)>& chosen);

  const std::string& path() const { return path_; }

  std::uint64_t capacity() const { return capacity_; }

 private:
  class Lock;

  Cache(UniqueFd directory, std::string path, std::uint64_t capacity)
      : directory_(std::move(directory)), path_(std::move(path)), capacity_(capacity) {}

  static Result<UniqueFd> open_own(int parent, const std::string& name, const std::string& path);
  std::optional<CacheEntry> read_entry(const std::string& name) const;
  Status publish(const CacheKey& key, Container& container);
  Status add(Lock& lock, const std::string& name, const std::string& text, Container& container);
  void drop(Lock& lock, const std::string& name);
  void make_room(Lock& lock, std::uint64_t bytes);
  std::vector<CachedFile> scan(Lock& lock);
  Result<std::shared_ptr<Container>> copy_of(Container& container) const;
  bool has(const std::string& name, const struct stat& container) const;

  // rank 8: one thread of this process at a time waits for the lock between processes
  Mutex turn_;
  const UniqueFd directory_;
  const std::string path_;
  const std::uint64_t capacity_;
};

class Scratch;
struct Progress;
/// Fills the empty container `to` with the content of `from`. Shares blocks if the file system can,
/// otherwise copies and keeps holes. Progress as copy_data().
Status copy_content(Container& from, Container& to, Scratch& scratch, Progress& progress);

}  // namespace efs::stage
