#pragma once
// The cache of inputs: containers of files that later jobs on this node stage in without reading
// the PFS. A directory `efs-cache-UID` of one user's, below a directory that the job file or the
// site names.
//
// Where it lies on the file system of a job's store, a container is in both under two names (hard
// links): nothing is copied. It is sealed then (fs/seal.hpp), and the first open for writing parts
// them: the job keeps the container, as its programs may have it open, and the cache a copy. A
// container is in the store of one job at a time; others get copies.
//
// What it holds is of this boot of the machine: nothing is synced, and what power loss leaves is
// dropped. Under CAPACITY the least recently used goes. A file `state` is the lock of all threads
// and processes that use the cache, for moments, and counts its bytes; names appear and go under it
// only. A process that dies leaves whole entries, or halves that the next look at all of them
// removes. Everything here is done with the rights of the user; nobody else has any.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "stage/import/cache_entry.hpp"

namespace efs::stage {

struct CachedFile {
  CacheKey key;
  std::string name;         // in the cache's directory
  std::uint64_t bytes = 0;  // that it takes
  FileTime used;            // when a job last staged it in
  bool in_use = false;      // in place, in the store of a job
};

/// Thread-safe.
class Cache {
 public:
  /// So old a change must be: a file that changed again at once could keep its time stamps, which
  /// are coarse on some PFS.
  static constexpr Nanoseconds settling = 2'000'000'000;

  /// This user's cache below `base`, made where it is missing and `make` is set; else ENOENT. EPERM
  /// where the directory is not his own, or others may enter it. `capacity`: bytes; absent: half of
  /// the file system.
  static Result<std::unique_ptr<Cache>> open(const std::string& base,
                                             std::optional<std::uint64_t> capacity,
                                             bool make = true);

  struct Found {
    // for reading; may stop being `key`'s content at any time: see still_whole()
    UniqueFd container;
    bool adopted = false;  // `adopt` took it
  };

  /// What is there for `key`. Where no job has it in place, `adopt` is called with its descriptor,
  /// to give it one more name; no other job can take it meanwhile. An entry that is not as it was
  /// put there is dropped.
  std::optional<Found> find(const CacheKey& key, const std::function<bool(int)>& adopt);
  /// After it was copied: were the bytes those of the entry until now?
  static bool still_whole(int container);

  /// Keeps `container`, which has the content of `key`, whole and with its times, and which nobody
  /// writes to before it is unsealed. `read_from`: when reading it from the PFS began, wall clock.
  /// Linked where that is possible, else copied. EAGAIN: changed on the PFS too shortly before to
  /// be sure of. EFBIG, ENOSPC: does not fit. The container is as good as before after an error.
  Status offer(const CacheKey& key, int container, Nanoseconds read_from);

  /// What would come free without the entries that no job has in place, if the cache is on this
  /// file system.
  std::uint64_t idle_bytes(dev_t device);
  /// Drops of those, the least recently used first, until so many bytes are free.
  void give_up(std::uint64_t bytes);

  /// The sealed container of the PFS file `path` is about to be changed: where it is the cache's,
  /// too, the cache gets a copy, or drops the entry. See Sharer.
  void part(int container, const std::string& path);

  /// What is there, the least recently used first.
  Result<std::vector<CachedFile>> list();

  /// Removes those for which `chosen` is true; how many, and what they took. What is in place in a
  /// job stays there.
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

  std::optional<CacheEntry> read_entry(const std::string& name) const;
  Status publish(const CacheKey& key, int container);
  Status add(Lock& lock, const std::string& name, const std::string& text, int container);
  void drop(Lock& lock, const std::string& name);
  void make_room(Lock& lock, std::uint64_t bytes);
  std::vector<CachedFile> scan(Lock& lock);
  Result<UniqueFd> copy_of(int container) const;
  bool has(const std::string& name, const struct stat& container) const;

  // rank 8: of this process's threads, so that one of them waits for the lock of all processes
  Mutex turn_;
  const UniqueFd directory_;
  const std::string path_;
  const std::uint64_t capacity_;
};

class Scratch;
struct Progress;
/// Fills the empty file `to` with the content of `from`, both on this node: by sharing blocks where
/// the file system can, else by copying, holes kept. Progress as copy_data().
Status copy_content(int from, int to, Scratch& scratch, Progress& progress);

}  // namespace efs::stage
