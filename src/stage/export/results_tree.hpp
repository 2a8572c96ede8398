// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Makes, finds and finishes the directories below results_dir. Never follows a symbolic link there.

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
#include "stage/pfs/directory_cursor.hpp"
#include "stage/pfs/opened_directories.hpp"
#include "stage/pfs/paths.hpp"
#include "stage/pfs/pfs_io.hpp"
#include "stage/versions/directory_version.hpp"

namespace efs::stage {

/// Paths are relative to results_dir; "" is results_dir. Thread-safe between the last make() and
/// restore_access(), except during show() and unhide().
///
/// A new directory can be hidden under a partial name until its content is exported. The content
/// has its real names from the start; one rename of the directory shows all of it.
class ResultsTree {
 public:
  /// `opened` records the directories that grant_owner_access() opens, so that a later process can
  /// restore their modes; may be null. restore_access() also restores the directories that an
  /// earlier process had opened.
  explicit ResultsTree(PfsIo& pfs, OpenedDirectories* opened = nullptr)
      : pfs_(pfs), opened_(opened) {}

  /// Calls restore_access() if an exception has prevented the call. Removes empty hidden
  /// directories.
  ~ResultsTree();
  ResultsTree(const ResultsTree&) = delete;
  ResultsTree& operator=(const ResultsTree&) = delete;

  /// Opens `path`. Makes it and its missing parents, durably. Must succeed before any other call
  /// and before the first write: syncfs reports the write-back errors since then.
  Status open(const std::string& path);

  /// True if the path no longer leads to the directory that was opened.
  bool was_moved(const std::string& path);

  Result<PfsHandle> directory(const std::string& path);

  /// For one thread that goes from result to result.
  DirectoryCursor cursor() {
    return DirectoryCursor([this](const std::string& path) { return directory(path); });
  }

  /// Makes a directory that its owner can fill, whatever its final mode. An existing directory
  /// stays unchanged, except for grant_owner_access(). `about_to` is called before a directory is
  /// made.
  Status make(const fs::WalkItem& item, const std::function<void()>& about_to = {});

  /// If this process owns the existing directory, adds the owner's rights that its mode lacks,
  /// until restore_access(). The caller then repeats the refused call. False if another user owns
  /// the directory, if its mode cannot be changed, or if the change would clear the set-group-ID
  /// bit.
  bool grant_owner_access(const std::string& path);

  bool has_let_in() {
    const MutexLock lock(mutex_);
    return !granted_.empty();
  }

  /// Restores the modes of the directories that grant_owner_access() opened and that still exist.
  /// Returns the first error. If `for_good` is false, a missing directory is expected to return.
  Status restore_access(bool for_good = true);

  /// Makes make() hide those of these directories that do not exist yet. None of them may be in
  /// another one. New directories in them are not hidden by themselves. `tag`: of partial_name().
  void hide(std::unordered_set<std::string> paths, std::string tag);

  /// Makes make() fail for those of these directories that do not exist and cannot be hidden, and
  /// in those that are not hidden.
  void make_only_hidden(const std::vector<std::string>& paths);

  bool is_hidden(const std::string& path) const { return hidden_.contains(path); }

  std::vector<std::string> hidden() const;
  /// True if it is the temporary path of a hidden directory.
  bool is_way_name(const std::string& path) const;

  /// The temporary paths of hidden directories that could not be removed.
  const std::vector<std::string>& left() const { return left_; }

  /// Gives a hidden directory its real name; sync() of its parent makes the name durable. EEXIST if
  /// the name exists by now. After an error the directory is still hidden.
  Status show(const std::string& path);
  /// Removes a hidden directory and the new directories in it, without files. What another process
  /// has put there stays.
  void discard(const std::string& path);
  /// Removes a hidden directory, which must be empty, and makes the directory as make() does
  /// without hide(). It no longer counts as hidden, even after an error.
  Status unhide(const std::string& path);

  /// True if make() made the directory. It then holds only files of this stage-out.
  bool is_new(const std::string& path) const { return made_.contains(path); }

  /// Makes durable: the names in these directories, the directories that make() made, and the names
  /// that show() gave.
  Status sync_with_made(std::set<std::string> directories);

  /// The outcome of finish().
  struct Finished {
    std::string lost{};         // attributes that the PFS rejected, as by set_xattrs()
    bool refused = false;       // the mode is one of them
    DirectoryAttributes has{};  // the attributes that were set
    bool exactly = false;       // all attributes are as requested

    void lose(const std::string& what) { lost += (lost.empty() ? "" : "; ") + what; }
  };

  /// Sets owner and extended attributes (if permitted), mode and times. Call it last, after the
  /// directory's content is exported. An existing directory of another owner keeps its attributes.
  /// `exactly`: removes extended attributes that the item lacks. It keeps foreign trusted.*
  /// attributes of a directory that make() has not made, because their owner is unknown. `fsync`:
  /// durable on return; otherwise the caller must call sync_all(). (Not sync(): the final mode may
  /// forbid opening the directory.)
  Result<Finished> finish(const fs::WalkItem& item, bool exactly, bool fsync);

  /// Sets the times only, if this process may set them.
  Status finish_times(const fs::WalkItem& item, bool fsync);

  /// The attributes of a directory, with the mode that it had before grant_owner_access().
  Result<DirectoryAttributes> attributes_of(const std::string& path);

  /// Makes the names in these directories durable.
  Status sync(const std::set<std::string>& directories);

  /// True if one syncfs is cheaper than an fsync for each of so many directories, and reports
  /// errors.
  bool sync_all_at_once(std::size_t directories) const;

  /// Makes all data below results_dir durable by one syncfs of its file system.
  Status sync_all() { return pfs_.syncfs(root_); }

  /// True if sync_all() reports all write errors.
  bool sync_all_reports_errors() const { return pfs_.syncfs_reports_errors(root_); }

  /// The file system that sync_all() syncs. It does not sync other file systems mounted below.
  dev_t device() const { return device_; }

 private:
  struct Hidden {
    std::string name{};  // the temporary name, in the same directory
    std::uint64_t inode = 0;
    const fs::WalkItem* item = nullptr;
  };

  struct OwnerChange {
    bool was_another = false;
    bool is_right = true;  // false: the PFS did not permit the change
  };

  std::string way_to(const std::string& path) const;
  const fs::WalkItem& take_away(const std::string& path);
  Result<bool> make_missing(PfsRef parent, const fs::WalkItem& item,
                            const std::function<void()>& about_to);
  Result<bool> make_hidden(PfsRef parent, const fs::WalkItem& item);
  bool record_granted(const std::string& path, mode_t mode);
  Status restore_mode(const std::string& path, mode_t mode, bool for_good);
  Result<OwnerChange> apply_owner(PfsRef at, const fs::WalkItem& item, const struct stat& now,
                                  Finished& finished);
  /// Records in `finished` the rejected and the present attributes. True if an attribute was
  /// changed.
  Result<bool> apply_xattrs(PfsRef at, const fs::WalkItem& item, Finished& finished);
  bool adapt_xattrs(PfsRef at, const std::map<std::string, std::string>& there,
                    fs::WalkItem& wanted, Finished& finished);
  mode_t mode_in(const fs::WalkItem& item, const struct stat& now, const Finished& finished) const;
  Status apply_mode(PfsRef at, const fs::WalkItem& item, const struct stat& now, bool owned,
                    Finished& finished);
  Status apply_times(PfsRef at, const fs::WalkItem& item);
  Status sync_one(PfsRef at, const struct stat& now, bool fsync);
  Result<PfsHandle> let_in_and_open(const std::string& path);
  Result<PfsHandle> make_path(const std::string& path);

  /// The directory has its final mode; restore_access() may skip it.
  void is_shut(const std::string& path);
  void stays_open(const std::string& path);
  bool is_elsewhere(const std::string& path);

  PfsIo& pfs_;
  OpenedDirectories* opened_;
  std::string path_;  // of results_dir
  PfsHandle root_;
  std::optional<DeepPaths> paths_;  // set with root_
  dev_t device_ = 0;
  std::unordered_set<std::string> made_;  // made by this stage-out
  std::unordered_set<std::string> to_hide_;
  std::unordered_set<std::string> only_hidden_;
  std::string tag_;  // in the names of hidden directories
  std::unordered_map<std::string, Hidden> hidden_;
  std::vector<std::string> left_;
  std::set<std::string> unsynced_;  // parents of made_
  Mutex mutex_;                     // rank 90 (leaf): guards granted_ and elsewhere_
  // the former modes, without the type
  std::map<std::string, mode_t> granted_ EFS_GUARDED_BY(mutex_);
  // directories on other file systems than results_dir
  std::unordered_set<std::string> elsewhere_ EFS_GUARDED_BY(mutex_);
};

}  // namespace efs::stage
