#pragma once
// The directories below results_dir: made, found and finished without ever following a symbolic
// link there.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/mutex.hpp"
#include "fs/staging.hpp"
#include "stage/pfs/deep_paths.hpp"
#include "stage/pfs/opened_directories.hpp"
#include "stage/pfs/paths.hpp"
#include "stage/pfs/pfs_io.hpp"
#include "stage/versions/directory_version.hpp"

namespace efs::stage {

/// Paths are relative to results_dir, "" is itself. Thread-safe after the last make() and before
/// restore_access(), but beside show() and unhide().
///
/// A new directory can be filled before anybody sees it: hidden, under a partial name. What is in
/// it has its own names then from the start, and gets them all at once, by one rename.
class ResultsTree {
 public:
  /// `opened` (or null) is told of what grant_owner_access() opens, for a successor, and what a
  /// predecessor had opened is shut again, too.
  explicit ResultsTree(PfsIo& pfs, OpenedDirectories* opened = nullptr)
      : pfs_(pfs), opened_(opened) {}

  /// As restore_access(), where an exception kept it from being called; what is hidden still, and
  /// empty, is taken away.
  ~ResultsTree();
  ResultsTree(const ResultsTree&) = delete;
  ResultsTree& operator=(const ResultsTree&) = delete;

  /// Opens `path`, made durably with its missing parents. Must succeed before anything else is
  /// called, and before the first write: syncfs tells of write-back errors since the descriptor was
  /// opened.
  Status open(const std::string& path);

  /// Does its path lead to another directory by now, or to none?
  bool was_moved(const std::string& path);

  Result<UniqueFd> directory(const std::string& path);

  /// Makes a directory that its owner can fill, whatever its final mode. One that is there stays as
  /// it is, but for what grant_owner_access() gives its owner. `about_to` is called before one is
  /// made.
  Status make(const fs::WalkItem& item, const std::function<void()>& about_to = {});

  /// Gives the owner of a directory that is there, if that is us, the rights in it that its mode
  /// denies him, for as long as this goes on. False where he has none to give, or would take the
  /// set-group-ID bit away. What was refused is to be tried once more.
  bool grant_owner_access(const std::string& path);

  bool has_let_in() {
    const MutexLock lock(mutex_);
    return !granted_.empty();
  }

  /// Gives all that grant_owner_access() opened, and that are there still, their modes again; the
  /// first error. Not `for_good`: what is not there is expected back.
  Status restore_access(bool for_good = true);

  /// Of these directories make() hides those that are not there. None of them is the parent of
  /// another that is made. `tag`: of partial_name().
  void hide(std::unordered_set<std::string> paths, std::string tag);

  bool is_hidden(const std::string& path) const { return hidden_.contains(path); }

  std::vector<std::string> hidden() const;
  /// Is it what a hidden one is called now?
  bool is_way_name(const std::string& path) const;

  /// What hidden ones were called that could not be taken away: paths.
  const std::vector<std::string>& left() const { return left_; }

  /// Gives a hidden one its name; sync() of its parent makes that durable. EEXIST where something
  /// has it by now. After an error it is hidden still.
  Status show(const std::string& path);
  /// Takes a hidden one away, which must be empty, and makes it as make() would have without
  /// hide(). It is not hidden any more whatever is returned.
  Status unhide(const std::string& path);

  /// Was it made by make()? Then nothing is in it but what this stage-out puts there.
  bool is_new(const std::string& path) const { return made_.contains(path); }

  /// Durability of the names in these directories, and of what make() made and show() named.
  Status sync_with_made(std::set<std::string> directories);

  /// What finish() has made of a directory.
  struct Finished {
    std::string lost{};         // what the PFS does not take or permit, as set_xattrs()
    bool refused = false;       // its mode is among that
    DirectoryAttributes has{};  // what it has been given
    bool exactly = false;       // as asked for
  };

  /// Owner and extended attributes (where permitted), mode and times: last, when everything in it
  /// is in place. Where the directory was there before and belongs to someone else, it keeps its
  /// own. `exactly`: attributes that the item does not have go, too, but for trusted.* that make()
  /// has not put there: nobody knows whose those are. `fsync`: durable on return; else sync_all()
  /// is to follow. (Not sync(): the final mode may forbid opening it.)
  Result<Finished> finish(const fs::WalkItem& item, bool exactly, bool fsync);

  /// Its times alone, where they are ours to set.
  Status finish_times(const fs::WalkItem& item, bool fsync);

  /// What a directory has, or had before grant_owner_access().
  Result<DirectoryAttributes> attributes_of(const std::string& path);

  /// Durability of the names in these directories.
  Status sync(const std::set<std::string>& directories);

  /// Whether one syncfs is cheaper than an fsync of so many directories each, and to be believed.
  bool sync_all_at_once(std::size_t directories) const;

  /// Durability of everything written below results_dir, on its file system, by one syncfs.
  Status sync_all() { return pfs_.syncfs(root_.get()); }

  /// Is that to be believed?
  bool sync_all_reports_errors() const { return pfs_.syncfs_reports_errors(root_.get()); }

  /// That file system: what lies below on another one is not synced with it.
  dev_t device() const { return device_; }

 private:
  struct Hidden {
    std::string name{};  // beside the path's
    std::uint64_t inode = 0;
    const fs::WalkItem* item = nullptr;
  };

  const fs::WalkItem& take_away(const std::string& path);
  Result<bool> make_hidden(int parent, const fs::WalkItem& item);
  /// `finished` learns what is lost, and which there are then. True: some were changed.
  Result<bool> apply_xattrs(int fd, const fs::WalkItem& item, bool exactly, Finished& finished);
  mode_t mode_in(const fs::WalkItem& item, const struct stat& now, const Finished& finished) const;
  Status apply_mode(int fd, const fs::WalkItem& item, const struct stat& now, bool owned,
                    Finished& finished);
  Status apply_times(int fd, const fs::WalkItem& item);
  Status sync_one(int fd, const struct stat& now, bool fsync);
  Result<UniqueFd> let_in_and_open(const std::string& path);
  Result<UniqueFd> make_path(const std::string& path);

  /// It has the mode that it is to have: nobody has to give it back any more.
  void is_shut(const std::string& path);
  void stays_open(const std::string& path);
  bool is_elsewhere(const std::string& path);

  PfsIo& pfs_;
  OpenedDirectories* opened_;
  std::string path_;  // of results_dir
  UniqueFd root_;
  std::optional<DeepPaths> paths_;  // there when root_ is
  dev_t device_ = 0;
  std::unordered_set<std::string> made_;  // by us, in this stage-out
  std::unordered_set<std::string> to_hide_;
  std::string tag_;  // of the names of hidden ones
  std::unordered_map<std::string, Hidden> hidden_;
  std::vector<std::string> left_;
  std::set<std::string> unsynced_;  // parents of those
  Mutex mutex_;                     // rank 90 (leaf): guards granted_ and elsewhere_
  std::map<std::string, mode_t> granted_ EFS_GUARDED_BY(mutex_);  // what they had, without the type
  // directories on other file systems than results_dir
  std::unordered_set<std::string> elsewhere_ EFS_GUARDED_BY(mutex_);
};

}  // namespace efs::stage
