// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The export log of a store, `meta/placed`: which versions the store has exported under which names
// of results-dir. It is needed if other users' files may be there too. An inode records only one
// copy of itself and loses that record when it is linked, renamed, replaced or removed, so it
// cannot tell the owner of a file on the PFS.
//
// Format: records of 112 bytes in the machine's byte order, each with its XXH3-64. The last record
// of a name counts. The first record says since when records may be missing because the buffer was
// full; a record that does not verify may have been of any name. The key of a name is the XXH3-64
// of results-dir and the name. Two names with the same key count as another user's, which causes a
// conflict and no loss. The record of a directory has the versions of its attributes
// (directory_version()) in the fields for a file's sizes, and its former shape in the other fields
// of the first version.

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "config/job_config.hpp"
#include "fs/staging.hpp"
#include "stage/pfs/pfs_io.hpp"
#include "stage/plan/planner.hpp"
#include "stage/versions/directory_version.hpp"

namespace efs::stage {

inline constexpr const char* placed_name = "placed";

/// True if the job needs an export log. Without one, a stage-out replaces files in results-dir
/// regardless of their origin.
bool may_meet_others(const config::JobConfig& config);

/// A name below results-dir, and the path in the buffer of the result that has or will get it. The
/// two differ with `as` of output rules.
struct PlacedName {
  std::string_view name, own;
};

/// The origin of the file that has a name. unknown: the log has no record of the name. ours,
/// of_another_path: this store has exported it for this path or for another one. theirs: not
/// exported by this store. unsure: it appeared while this store could not write records.
enum class WhoseCopy : std::uint8_t { unknown, ours, of_another_path, theirs, unsure };

/// True if only the inode's record can decide.
inline bool is_unknown(WhoseCopy whose) {
  return whose == WhoseCopy::unknown || whose == WhoseCopy::unsure;
}

/// The attributes that this store has given to a directory. Empty if it has given none, or for
/// another path.
struct PlacedDirectory {
  std::optional<std::uint64_t> version{};  // the version set last
  // a change was begun and not recorded as done: the directory may have some of the new attributes
  bool interrupted = false;
  // the attributes before that change; nullopt: the directory was being made
  std::optional<DirectoryShape> was{};
  // made with that version, before it got its final attributes
  bool unfinished = false;
  // the version set since then, not yet durable: a crash of the PFS may restore `version`
  std::optional<std::uint64_t> applied{};
};

/// Thread-safe. On return a record is in the file and survives the process; sync() makes it survive
/// power loss. After an error this process still knows the record, and a later process is unsure.
class PlacedNames {
 public:
  /// Opens the log of the store with this metadata directory, which is borrowed. Makes a missing
  /// log. Opens a log without write permission for reading.
  static Result<std::unique_ptr<PlacedNames>> open(int metadata, std::string_view results_dir);

  /// The origin of `there`, the file that has the name. `by_ctime`: a changed ctime counts as a
  /// change too, except for a copy with several names: changes of these names change its ctime.
  WhoseCopy look(const PlacedName& name, const struct stat& there, bool by_ctime) const;

  bool knows(std::string_view name) const;

  /// True if this store has removed the file of that name.
  bool has_removed(std::string_view name) const;

  /// True if look() may return `unsure`.
  bool is_incomplete() const;

  /// Logs the intent. Call it before the file `copy` takes the name of the file `before`. `copy`
  /// null: the name is removed. `before` null: no file has the name. If a later process still finds
  /// `before` there, it knows that the change was not made.
  Status coming(const PlacedName& name, const struct stat* copy, const struct stat* before);
  /// Call it after the change. `copy` null: the name was removed. `is_shared`: another node may
  /// have exported the same file; no node may replace it.
  Status placed(const PlacedName& name, const struct stat* copy, bool is_shared);
  /// The file of that name was imported: its inode has the record.
  Status forget(std::string_view name);

  PlacedDirectory directory(const PlacedName& name) const;
  /// Call it before the directory is made or its attributes change. `has`: the present attributes;
  /// null: as already recorded.
  Status coming_directory(const PlacedName& name, const DirectoryAttributes* has = nullptr);
  /// The directory was made with these attributes and will get its final ones.
  Status made_directory(const PlacedName& name, const DirectoryAttributes& has);
  /// The attributes were set and are not durable yet: after a crash the directory may have the
  /// former ones.
  Status applied_directory(const PlacedName& name, std::uint64_t version);
  /// The attributes are durable; nullopt: nothing was changed.
  Status placed_directory(const PlacedName& name, std::optional<std::uint64_t> version);

  /// All versions that got their names, the oldest first.
  std::vector<fs::Origin> copies() const;

  /// Makes the log durable. Tries failed writes again.
  Status sync();

 private:
  struct Version {
    fs::Origin file;
    bool linked = false;  // the file had several names
  };

  struct Placed {
    std::uint64_t own = 0, number = 0;  // number: a sequence number
    std::optional<Version> version;     // nullopt: removed
  };

  struct Coming {
    std::uint64_t own = 0;
    std::optional<Version> version, before;
  };

  struct Directory {
    std::uint64_t own = 0;
    PlacedDirectory state{};
  };
  struct Record;

  PlacedNames(UniqueFd fd, int metadata, std::string_view results_dir);
  std::uint64_t key(std::string_view name) const;
  static Version version_of(const struct stat& st, bool is_shared);
  static bool is_version(const Version& version, const struct stat& st, bool by_ctime);
  static Record record_of(std::uint64_t name, const Placed& placed);
  static Record record_of(std::uint64_t name, const Coming& coming);
  static Record record_of(std::uint64_t name, const Directory& directory);
  static Record head_of(std::optional<Nanoseconds> unsure_since);
  Status load();
  Result<bool> read_records(bool is_empty) EFS_REQUIRES(mutex_);
  bool apply_read(std::span<const Record> records) EFS_REQUIRES(mutex_);
  WhoseCopy whose_without_record(const struct stat& there) const EFS_REQUIRES(mutex_);
  void apply(const Record& record) EFS_REQUIRES(mutex_);
  void apply_directory(const Record& record) EFS_REQUIRES(mutex_);
  Status append(Record record) EFS_REQUIRES(mutex_);
  Status write(const Record& record, std::uint64_t at) EFS_REQUIRES(mutex_);
  void record_missed(Nanoseconds since) EFS_REQUIRES(mutex_);
  void make_room() EFS_REQUIRES(mutex_);
  bool rewrite() EFS_REQUIRES(mutex_);
  std::vector<Record> records_that_count() const EFS_REQUIRES(mutex_);

  const int metadata_;  // borrowed from the store
  const std::uint64_t room_ahead_;
  const std::string results_dir_;
  mutable Mutex mutex_;  // rank 90 (leaf): guards all below
  UniqueFd fd_ EFS_GUARDED_BY(mutex_);
  std::uint64_t records_ EFS_GUARDED_BY(mutex_) = 0;  // in the file
  std::uint64_t space_ EFS_GUARDED_BY(mutex_) = 0;    // bytes reserved for the file
  // number of records, found and written
  std::uint64_t told_ EFS_GUARDED_BY(mutex_) = 0;
  // the PFS's clock; nullopt: no record of an earlier process is missing
  std::optional<Nanoseconds> unsure_since_ EFS_GUARDED_BY(mutex_);
  // since when records of this process are missing in the file
  std::optional<Nanoseconds> missed_since_ EFS_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, Placed> placed_ EFS_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, Coming> coming_ EFS_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, Directory> directories_ EFS_GUARDED_BY(mutex_);
};

/// Call it after a stage-in, for results in place. Forgets the names of imported files that another
/// user had replaced: these files are now inputs of this job.
void forget_staged(const Plan& plan, PfsIo& pfs, fs::Staging& staging, PlacedNames& placed);

/// Records the imported attributes of this directory, for results in place. The record is kept by
/// name, because the job may replace the directory.
void record_came_in(const PlanEntry& entry, fs::Staging& staging, PlacedNames& placed);

/// True if this job may replace the file that has the name. `placed` (may be null) decides if it
/// has a record of the name; otherwise is_origin() decides.
bool is_ours(const PlacedNames* placed, const PlacedName& name, const fs::WalkItem& item,
             const struct stat& there);

}  // namespace efs::stage
