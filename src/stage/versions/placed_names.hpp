#pragma once
// What a store has put under names of results-dir, where somebody else's files may lie there too:
// `meta/placed`. An inode knows one copy of itself, and forgets that when it is linked, renamed,
// replaced or removed; whose file a name on the PFS leads to must not hang on it.
//
// Format: records of 112 bytes in the machine's byte order, each with its XXH3-64; of a name the
// last one counts. The first says since when there may be names that nothing could be noted of, for
// a full buffer; a record that does not verify may have been of any. Names are known by their
// XXH3-64, with results-dir; two that share one are taken for somebody else's, which is a conflict
// and no loss. Of a directory the versions are those of its attributes (directory_version()), and
// lie where a file's have their sizes; the shape that it had lies in the first one's other fields.

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <optional>
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

/// Is there to be such a record of a job? Elsewhere what is in results-dir is replaced whoever made
/// it.
bool may_meet_others(const config::JobConfig& config);

/// A name below results-dir, and the path in the buffer of what got it or is to get it (not the
/// same with `as` of output rules).
struct PlacedName {
  std::string_view name, own;
};

/// What is under a name: nothing is known of the name; a version that this store has put there, for
/// this path or for another one; somebody else's; either, for it came when what this store did
/// could not be noted.
enum class WhoseCopy : std::uint8_t { unknown, ours, of_another_path, theirs, unsure };

/// Can only the inode tell?
inline bool is_unknown(WhoseCopy whose) {
  return whose == WhoseCopy::unknown || whose == WhoseCopy::unsure;
}

/// What this store has made of a directory's attributes. Nothing: it has not, or they were another
/// path's.
struct PlacedDirectory {
  std::optional<std::uint64_t> version{};  // what it got last
  // it was about to get others, and nobody says that it has: half of them may be there
  bool interrupted = false;
  std::optional<DirectoryShape> was{};  // what it had then; none: it was being made
  // made, with that version, and about to get its own attributes
  bool unfinished = false;
  // it has got these since, and a crash of the PFS may bring those of `version` back
  std::optional<std::uint64_t> applied{};
};

/// Thread-safe. What was told is in the file on return, which survives the process, and with sync()
/// power loss. After an error it is known to this process all the same, and the next one is unsure.
class PlacedNames {
 public:
  /// Of the store with this open metadata directory; made where it is not there. What cannot be
  /// written to is read alone.
  static Result<std::unique_ptr<PlacedNames>> open(int metadata, std::string_view results_dir);

  /// Whose is `there`, which has the name? `by_ctime`: attributes changed by somebody are a change,
  /// too, as far as ctime can tell (not of a copy with several names, whose ctime moves with
  /// those).
  WhoseCopy look(const PlacedName& name, const struct stat& there, bool by_ctime) const;

  bool knows(std::string_view name) const;

  /// Is it this store that took what had the name from there?
  bool has_removed(std::string_view name) const;

  /// May look() be unsure of anything?
  bool is_incomplete() const;

  /// `copy` (null: nothing, what is there goes) is about to get the name, that `before` has (null:
  /// nothing). Who finds `before` there later knows that it came to nothing.
  Status coming(const PlacedName& name, const struct stat* copy, const struct stat* before);
  /// It has got it; null: what was there is gone. `is_shared`: another node may have the same;
  /// nobody's to replace.
  Status placed(const PlacedName& name, const struct stat* copy, bool is_shared);
  /// What is there was staged in: its inode knows what it was.
  Status forget(std::string_view name);

  PlacedDirectory directory(const PlacedName& name) const;
  /// It is about to be made, or to get other attributes than it has (null: than are known already).
  Status coming_directory(const PlacedName& name, const DirectoryAttributes* has = nullptr);
  /// It has been made, and has these until it gets its own.
  Status made_directory(const PlacedName& name, const DirectoryAttributes& has);
  /// It has got them, which are not durable yet: either may be there from now on.
  Status applied_directory(const PlacedName& name, std::uint64_t version);
  /// It has them, durably, or (none) nothing was done after all.
  Status placed_directory(const PlacedName& name, std::optional<std::uint64_t> version);

  /// All versions that have got their names, the oldest first.
  std::vector<fs::Origin> copies() const;

  /// What could not be written is tried once more.
  Status sync();

 private:
  struct Version {
    fs::Origin file;
    bool linked = false;  // it had several names
  };

  struct Placed {
    std::uint64_t own = 0, number = 0;  // number: in the order of time
    std::optional<Version> version;     // none: it was removed
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
  void apply(const Record& record) EFS_REQUIRES(mutex_);
  void apply_directory(const Record& record) EFS_REQUIRES(mutex_);
  Status append(Record record) EFS_REQUIRES(mutex_);
  Status write(const Record& record, std::uint64_t at) EFS_REQUIRES(mutex_);
  void note_missed(Nanoseconds since) EFS_REQUIRES(mutex_);
  void make_room() EFS_REQUIRES(mutex_);
  bool rewrite() EFS_REQUIRES(mutex_);

  const int metadata_;  // the store's, which outlives this
  const std::uint64_t room_ahead_;
  const std::string results_dir_;
  mutable Mutex mutex_;  // rank 90 (leaf): guards all below
  UniqueFd fd_ EFS_GUARDED_BY(mutex_);
  std::uint64_t records_ EFS_GUARDED_BY(mutex_) = 0;  // in the file
  std::uint64_t room_ EFS_GUARDED_BY(mutex_) = 0;     // bytes that the file has been promised
  // records of this process and those that it found
  std::uint64_t told_ EFS_GUARDED_BY(mutex_) = 0;
  // the PFS's clock; nothing: all was noted before this process
  std::optional<Nanoseconds> unsure_since_ EFS_GUARDED_BY(mutex_);
  // what this one knows, and the file does not
  std::optional<Nanoseconds> missed_since_ EFS_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, Placed> placed_ EFS_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, Coming> coming_ EFS_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, Directory> directories_ EFS_GUARDED_BY(mutex_);
};

/// Of what was just staged in, names that somebody else had taken are forgotten: it is their file,
/// and now this job's input. For results in place.
void forget_staged(const Plan& plan, PfsIo& pfs, fs::Staging& staging, PlacedNames& placed);

/// What just came in of this directory, for results in place. By its name: the job may put another
/// one in its place.
void note_came_in(const PlanEntry& entry, fs::Staging& staging, PlacedNames& placed);

/// Is what has the name ours to replace: as `placed` (null: none) says where it knows the name,
/// else as is_origin() says of the item?
bool is_ours(const PlacedNames* placed, const PlacedName& name, const fs::WalkItem& item,
             const struct stat& there);

}  // namespace efs::stage
