// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/results_tree.hpp"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <iterator>
#include <utility>

#include "base/log.hpp"
#include "fs/acl.hpp"
#include "stage/pfs/attributes.hpp"
#include "stage/pfs/partial_name.hpp"
#include "stage/pfs/rename.hpp"

namespace efs::stage {
namespace {

// from so many directories on, one syncfs is cheaper than an fsync each
constexpr std::size_t many = 16;

bool not_permitted(const Error& error) {
  return error.code == EPERM || error.code == EACCES;
}

/// A chmod by a user outside the file's group clears the set-group-ID bit, and the user cannot
/// restore it.
bool keeps_group_bit(const struct stat& there) {
  return ::geteuid() == 0 || ::group_member(there.st_gid) != 0;
}

bool is_own_directory(const struct stat& there) {
  return S_ISDIR(there.st_mode) && there.st_uid == ::geteuid();
}

bool has_vanished(const Error& error) {
  return error.code == ENOENT || error.code == ENOTDIR;
}

/// The mode with the set-group-ID bit as the parent directory on the PFS decides: the directory was
/// made as `now`.
mode_t with_group_bit(mode_t mode, const fs::WalkItem& item, const struct stat& now) {
  // Bits inherited from a directory of the buffer do not count.
  const bool was_handed_down = item.group.handed_down && (mode & S_ISGID) != 0;
  if (item.group.plain && was_handed_down) {
    mode &= ~static_cast<mode_t>(S_ISGID);
  }
  if (!item.group.handed_down || was_handed_down) {
    mode |= now.st_mode & S_ISGID;
  }
  return mode;
}

}  // namespace

Status ResultsTree::open(const std::string& path) {
  auto opened = make_path(path);
  if (!opened) {
    return fail(opened.error().code, "results-dir " + path + ": " + describe(opened.error()));
  }
  const auto attributes = pfs_.fstat(*opened);
  if (!attributes) {
    return fail(attributes.error().code,
                "results-dir " + path + ": " + describe(attributes.error()));
  }
  root_ = std::move(*opened);
  paths_.emplace(pfs_, root_);
  device_ = attributes->st_dev;
  path_ = path;
  // before the lock: both locks are leaves
  auto left_open = opened_ != nullptr ? opened_->take(path) : std::map<std::string, mode_t>();
  const MutexLock lock(mutex_);
  granted_.merge(left_open);
  return {};
}

Result<PfsHandle> ResultsTree::make_path(const std::string& path) {
  auto there = pfs_.open(no_directory, path, directory_flags);
  if (there || there.error().code != ENOENT || path == "/") {
    return there;
  }
  auto parent = make_path(parent_of(path).empty() ? "/" : parent_of(path));
  if (!parent) {
    return parent;
  }
  auto made = pfs_.mkdir(*parent, leaf_of(path), 0777);
  if (!made && made.error().code != EEXIST) {
    return with_context(made.error(), "cannot be created");
  }
  if (auto synced = pfs_.fsync(*parent); !synced) {
    return with_context(synced.error(), "fsync of its parent");
  }
  return pfs_.open(no_directory, path, directory_flags);
}

bool ResultsTree::was_moved(const std::string& path) {
  const auto there = pfs_.open(no_directory, path, directory_flags);
  const auto now = there ? pfs_.fstat(*there) : std::unexpected(there.error());
  const auto ours = pfs_.fstat(root_);
  if (!now) {
    return has_vanished(now.error());
  }
  return ours && (now->st_dev != ours->st_dev || now->st_ino != ours->st_ino);
}

/// The path by which a directory can be opened: it or one above it may be hidden.
std::string ResultsTree::way_to(const std::string& path) const {
  for (std::string above = hidden_.empty() ? "" : path; !above.empty(); above = parent_of(above)) {
    if (const auto hidden = hidden_.find(above); hidden != hidden_.end()) {
      return join(parent_of(above), hidden->second.name) + path.substr(above.size());
    }
  }
  return path;
}

Result<PfsHandle> ResultsTree::directory(const std::string& path) {
  auto at = paths_->open(way_to(path), directory_flags);
  if (!at || path.empty()) {
    return at;
  }
  const auto attributes = pfs_.fstat(*at);
  if (!attributes) {
    return std::unexpected(attributes.error());
  }
  if (attributes->st_dev != device_) {
    const MutexLock lock(mutex_);
    elsewhere_.insert(path);
  }
  return at;
}

Status ResultsTree::make(const fs::WalkItem& item, const std::function<void()>& about_to) {
  const std::string parent_path = parent_of(item.path);
  for (std::string above = only_hidden_.empty() ? "" : parent_path; !above.empty();
       above = parent_of(above)) {
    if (only_hidden_.contains(above) && !is_hidden(above)) {
      return fail(EEXIST, "the directory above cannot be hidden");
    }
  }
  auto parent = directory(parent_path);
  if (!parent) {
    return with_context(parent.error(), "opening its parent directory");
  }
  auto there = pfs_.lstat(*parent, leaf_of(item.path));
  if (!there && there.error().code == ENOENT) {
    const auto made = make_missing(*parent, item, about_to);
    if (!made) {
      return with_context(made.error(), "making the directory");
    }
    if (*made) {
      return {};
    }
    there = pfs_.lstat(*parent, leaf_of(item.path));
  }
  if (!there) {
    return with_context(there.error(), "making the directory");
  }
  if (!S_ISDIR(there->st_mode)) {
    return fail(ENOTDIR,
                "something that is not a directory has its name: move that away, and try again");
  }
  // a killed stage-out may have made it without making it durable
  unsynced_.insert(parent_path);
  if ((there->st_mode & 0700U) == 0700U) {
    return {};
  }
  (void)grant_owner_access(item.path);  // if this fails, a later write reports the error
  return {};
}

/// False if another process was faster.
Result<bool> ResultsTree::make_missing(PfsRef parent, const fs::WalkItem& item,
                                       const std::function<void()>& about_to) {
  if (to_hide_.contains(item.path)) {
    const auto hidden = make_hidden(parent, item);
    if (!hidden || *hidden) {
      return hidden;
    }
  }
  if (only_hidden_.contains(item.path)) {
    return fail(EEXIST, "it cannot be hidden");
  }
  if (about_to) {
    about_to();
  }
  const auto made =
      pfs_.mkdir(parent, leaf_of(item.path), (item.attributes.st_mode & 0777U) | 0700U);
  if (made) {
    made_.insert(item.path);
    unsynced_.insert(parent_of(item.path));
    return true;
  }
  return made.error().code == EEXIST ? Result<bool>(false) : std::unexpected(made.error());
}

void ResultsTree::hide(std::unordered_set<std::string> paths, std::string tag) {
  to_hide_ = std::move(paths);
  tag_ = std::move(tag);
}

void ResultsTree::make_only_hidden(const std::vector<std::string>& paths) {
  only_hidden_.insert(paths.begin(), paths.end());
}

/// False if the partial name exists: the directory is then not hidden.
Result<bool> ResultsTree::make_hidden(PfsRef parent, const fs::WalkItem& item) {
  made_.insert(item.path);
  // First, so that an exception leaves no unrecorded directory.
  Hidden& hidden =
      hidden_[item.path] = {.name = partial_name(leaf_of(item.path), tag_), .item = &item};
  const auto made = pfs_.mkdir(parent, hidden.name, (item.attributes.st_mode & 0777U) | 0700U);
  const auto there = made ? pfs_.lstat(parent, hidden.name) : std::unexpected(made.error());
  if (there) {
    hidden.inode = there->st_ino;
    return true;
  }
  if (made) {
    (void)pfs_.rmdir(parent, hidden.name);
  }
  hidden_.erase(item.path);
  made_.erase(item.path);
  return made || made.error().code != EEXIST ? Result<bool>(std::unexpected(there.error())) : false;
}

std::vector<std::string> ResultsTree::hidden() const {
  std::vector<std::string> paths;
  for (const auto& [path, hidden] : hidden_) {
    paths.push_back(path);
  }
  std::ranges::sort(paths);
  return paths;
}

bool ResultsTree::is_way_name(const std::string& path) const {
  return std::ranges::any_of(hidden_, [&](const auto& one) {
    return join(parent_of(one.first), one.second.name) == path;
  });
}

Status ResultsTree::show(const std::string& path) {
  const Hidden& hidden = hidden_.at(path);
  const std::string parent_path = parent_of(path);
  unsynced_.insert(parent_path);
  const auto parent = directory(parent_path);
  if (!parent) {
    return with_context(parent.error(), "opening its parent directory");
  }
  const std::string name = leaf_of(path);
  const Status renamed = rename_new(pfs_, {.at = *parent, .from = hidden.name, .to = name});
  if (!renamed) {
    // The PFS may have lost the reply to the call.
    const auto there = pfs_.lstat(*parent, name);
    if (!there || there->st_ino != hidden.inode) {
      return with_context(renamed.error(), "giving the directory its name");
    }
  }
  hidden_.erase(path);
  return {};
}

const fs::WalkItem& ResultsTree::take_away(const std::string& path) {
  const auto taken = hidden_.extract(path);
  const Hidden& hidden = taken.mapped();
  made_.erase(taken.key());
  const auto parent = directory(parent_of(taken.key()));
  const Status gone = parent ? pfs_.rmdir(*parent, hidden.name) : std::unexpected(parent.error());
  if (!gone) {
    log::warn("event=directory_left path=\"{}\" name=\"{}\" reason=\"{}\"", taken.key(),
              hidden.name, describe(gone.error()));
    left_.push_back(join(parent_of(taken.key()), hidden.name));
  }
  return *hidden.item;
}

void ResultsTree::discard(const std::string& path) {
  std::vector<std::string> below;
  std::ranges::copy_if(made_, std::back_inserter(below),
                       [&](const std::string& one) { return one.starts_with(path + "/"); });
  std::ranges::sort(below, std::greater());  // children first
  for (const auto& one : below) {
    if (const auto parent = directory(parent_of(one))) {
      (void)pfs_.rmdir(*parent, leaf_of(one));
    }
    made_.erase(one);
    unsynced_.erase(one);
  }
  unsynced_.erase(path);
  (void)take_away(path);
}

Status ResultsTree::unhide(const std::string& path) {
  to_hide_.erase(path);
  return make(take_away(path));
}

bool ResultsTree::grant_owner_access(const std::string& path) {
  if (path.empty()) {
    return false;
  }
  const auto parent = paths_->open(parent_of(path), passage_flags);
  const std::string name = leaf_of(path);
  const auto there = parent ? pfs_.lstat(*parent, name) : std::unexpected(parent.error());
  if (!there || !is_own_directory(*there)) {
    return false;
  }
  if ((there->st_mode & 0700U) == 0700U) {
    return true;  // another thread may have been faster
  }
  if ((there->st_mode & S_ISGID) != 0 && !keeps_group_bit(*there)) {
    return false;
  }
  const mode_t mode = there->st_mode & 07777U;
  // First, so that an exception leaves no unrecorded directory.
  const bool is_first = record_granted(path, mode);
  if (pfs_.chmod_name(*parent, name, mode | 0700U)) {
    return true;
  }
  if (is_first) {
    is_shut(path);
  }
  return false;
}

/// Records the mode that restore_access() restores. False if the directory has such a record.
bool ResultsTree::record_granted(const std::string& path, mode_t mode) {
  if (const Status noted = opened_ != nullptr ? opened_->note(path_ + "/" + path, mode) : Status();
      !noted) {
    log::warn("event=opened_not_noted path=\"{}\" reason=\"{}\"", path, describe(noted.error()));
  }
  const MutexLock lock(mutex_);
  return granted_.try_emplace(path, mode).second;
}

void ResultsTree::is_shut(const std::string& path) {
  if (opened_ != nullptr) {
    opened_->done(path_ + "/" + path);
  }
  const MutexLock lock(mutex_);
  granted_.erase(path);
}

void ResultsTree::stays_open(const std::string& path) {
  if (opened_ != nullptr) {
    opened_->stays_open(path_ + "/" + path);
  }
}

ResultsTree::~ResultsTree() {
  try {
    while (!hidden_.empty()) {
      (void)take_away(hidden_.begin()->first);
    }
    (void)restore_access();
    // out of memory: the directories keep the owner's access, or stay hidden
  } catch (const std::exception&) {
  }
}

Status ResultsTree::restore_access(bool for_good) {
  std::map<std::string, mode_t> granted;
  {
    const MutexLock lock(mutex_);
    granted.swap(granted_);
  }
  Status all;
  // Children before parents: the restored mode of a parent may forbid access to them.
  for (auto it = granted.rbegin(); it != granted.rend(); ++it) {
    const auto& [path, mode] = *it;
    const Status restored = restore_mode(path, mode, for_good);
    if (!restored && all) {
      all = fail(restored.error().code,
                 "giving directory /" + path + " its mode again: " + describe(restored.error()));
    }
  }
  return all;
}

Status ResultsTree::restore_mode(const std::string& path, mode_t mode, bool for_good) {
  const auto parent = paths_->open(parent_of(path), passage_flags);
  const auto there = parent ? pfs_.lstat(*parent, leaf_of(path)) : std::unexpected(parent.error());
  if (!there && !has_vanished(there.error())) {
    stays_open(path);
    return std::unexpected(there.error());
  }
  if (!there && !for_good) {
    stays_open(path);
    return {};
  }
  // otherwise it was removed, or another process has changed it
  const bool is_open =
      there && S_ISDIR(there->st_mode) && (there->st_mode & 07777U) == (mode | 0700U);
  const Status shut = is_open ? pfs_.chmod_name(*parent, leaf_of(path), mode) : Status();
  if (shut) {
    is_shut(path);
  } else {
    stays_open(path);
  }
  return shut;
}

Status ResultsTree::sync_with_made(std::set<std::string> directories) {
  directories.insert(unsynced_.begin(), unsynced_.end());
  EFS_TRY(sync(directories));
  unsynced_.clear();
  return {};
}

Result<bool> ResultsTree::apply_xattrs(PfsRef at, const fs::WalkItem& item, Finished& finished) {
  auto there = pfs_.xattrs(at);
  if (!there) {
    return with_context(there.error(), "reading the directory's extended attributes");
  }
  fs::WalkItem wanted{.path = item.path, .xattrs = item.xattrs};
  const bool removes = adapt_xattrs(at, *there, wanted, finished);
  const auto refused = set_xattrs(at, wanted, pfs_);
  if (!refused) {
    return std::unexpected(refused.error());
  }
  if (!refused->empty()) {
    finished.lose(*refused);
  }
  const bool changes = removes || !wanted.xattrs.empty();
  finished.has.xattrs = std::move(*there);
  if (!changes) {
    return false;
  }
  // before the mode, which may forbid reading; the mask of an ACL follows the mode
  auto now = pfs_.xattrs(at);
  if (!now) {
    return with_context(now.error(), "reading the directory's extended attributes");
  }
  finished.has.xattrs = std::move(*now);
  return true;
}

/// Leaves in `wanted` the attributes that the directory lacks. Removes from the directory those
/// that `wanted` lacks, if the directory is to be exactly like the item; returns true if there are
/// any.
bool ResultsTree::adapt_xattrs(PfsRef at, const std::map<std::string, std::string>& there,
                               fs::WalkItem& wanted, Finished& finished) {
  const bool made = made_.contains(wanted.path);
  bool removes = false;
  for (const auto& [name, value] : there) {
    const auto own = wanted.xattrs.find(name);
    // directory_version() leaves it out, so a change by another user is not visible
    const bool foreign = !made && name.starts_with("trusted.");
    if (own != wanted.xattrs.end()) {
      const bool is_same = own->second == value;
      if (!is_same && foreign) {
        finished.lose(name + ": it stays as the PFS has it");
      }
      if (is_same || foreign) {
        wanted.xattrs.erase(own);
      }
    } else if (finished.exactly && !foreign) {
      const auto removed = pfs_.remove_xattr(at, name);
      if (!removed && removed.error().code != ENODATA) {
        finished.lose(name + ": " + describe(removed.error()));
      }
      removes = true;
    }
  }
  return removes;
}

/// The item's mode, adapted to the parent directory on the PFS, which decides about the
/// set-group-ID bit, and whose default ACL may limit the mode.
mode_t ResultsTree::mode_in(const fs::WalkItem& item, const struct stat& now,
                            const Finished& finished) const {
  const mode_t own = item.attributes.st_mode & 07777U;
  if (finished.exactly && !made_.contains(item.path)) {
    return own;
  }
  const mode_t mode = with_group_bit(own, item, now);
  const bool has_acl = finished.has.xattrs.contains(fs::access_acl_name);
  const bool was_given_acl = has_acl && !item.xattrs.contains(fs::access_acl_name);
  return !finished.exactly && was_given_acl ? mode & (now.st_mode | 07000U) : mode;
}

Status ResultsTree::apply_mode(PfsRef at, const fs::WalkItem& item, const struct stat& now,
                               bool owned, Finished& finished) {
  const mode_t there = now.st_mode & 07777U, mode = mode_in(item, now, finished);
  const mode_t both = there & mode & (S_ISUID | S_ISGID);
  mode_t wanted = safe_mode(mode, owned) | both;  // bits that it already has stay
  if ((there & S_ISGID) == 0 && !keeps_group_bit(now)) {
    wanted &= ~static_cast<mode_t>(S_ISGID);
  }
  finished.has.mode = wanted;
  if (there == wanted) {
    return {};
  }
  const auto refuse = [&](const std::string& why) {
    finished.lose("its mode: " + why);
    finished.refused = true;
    finished.has.mode = there;
  };
  if ((both & S_ISGID) != 0 && !keeps_group_bit(now)) {
    return refuse("only a member of its group can change it and keep the set-group-ID bit"),
           Status();
  }
  const auto done = pfs_.chmod(at, wanted);
  if (!done && not_permitted(done.error()) && !made_.contains(item.path)) {
    return refuse(describe(done.error())), Status();
  }
  return done ? Status() : Status(with_context(done.error(), "setting the directory's mode"));
}

Status ResultsTree::apply_times(PfsRef at, const fs::WalkItem& item) {
  const auto done =
      pfs_.set_times(at, to_ns(item.attributes.st_atim), to_ns(item.attributes.st_mtim));
  const bool foreign = !made_.contains(item.path);
  return done || (foreign && not_permitted(done.error()))
             ? Status()
             : Status(with_context(done.error(), "setting the directory's times"));
}

Status ResultsTree::sync_one(PfsRef at, const struct stat& now, bool fsync) {
  if (!fsync && now.st_dev == device_) {
    return {};
  }
  const auto synced = pfs_.fsync(at);
  return synced ? Status() : Status(with_context(synced.error(), "fsync of the directory"));
}

Result<PfsHandle> ResultsTree::let_in_and_open(const std::string& path) {
  auto at = directory(path);
  if (!at && at.error().code == EACCES && grant_owner_access(path)) {
    at = directory(path);
  }
  return at ? std::move(at) : with_context(at.error(), "opening the directory");
}

/// Sets the owner and the group, if permitted.
Result<ResultsTree::OwnerChange> ResultsTree::apply_owner(PfsRef at, const fs::WalkItem& item,
                                                          const struct stat& now,
                                                          Finished& finished) {
  const auto& wanted = item.attributes;
  const gid_t gid = group_of(item, now.st_gid);
  OwnerChange change{.was_another = now.st_uid != wanted.st_uid || now.st_gid != gid};
  if (change.was_another) {
    const auto done = pfs_.chown(at, wanted.st_uid, gid);
    if (!done && !not_permitted(done.error())) {
      return with_context(done.error(), "setting the directory's owner");
    }
    if (!done && item.group.is_asked && now.st_gid != gid) {
      finished.lose("its group: " + describe(done.error()));
    }
    change.is_right = done.has_value();
  }
  finished.has.uid = change.is_right ? wanted.st_uid : now.st_uid;
  finished.has.gid = change.is_right ? gid : now.st_gid;
  return change;
}

Result<ResultsTree::Finished> ResultsTree::finish(const fs::WalkItem& item, bool exactly,
                                                  bool fsync) {
  auto at = let_in_and_open(item.path);
  if (!at) {
    return std::unexpected(at.error());
  }
  auto now = pfs_.fstat(*at);
  if (!now) {
    return with_context(now.error(), "reading the directory's attributes");
  }
  Finished finished{.exactly = exactly};
  const auto owner = apply_owner(*at, item, *now, finished);
  if (!owner) {
    return std::unexpected(owner.error());
  }
  const auto changed = apply_xattrs(*at, item, finished);
  if (!changed) {
    return std::unexpected(changed.error());
  }
  // An ACL or a change of owner may have changed the mode.
  if (*changed || owner->was_another) {
    now = pfs_.fstat(*at);
  }
  if (!now) {
    return with_context(now.error(), "reading the directory's attributes");
  }
  EFS_TRY(apply_mode(*at, item, *now, owner->is_right, finished));
  if (!finished.refused) {
    is_shut(item.path);
  }
  EFS_TRY(apply_times(*at, item));
  EFS_TRY(sync_one(*at, *now, fsync));
  return finished;
}

Status ResultsTree::finish_times(const fs::WalkItem& item, bool fsync) {
  auto at = let_in_and_open(item.path);
  if (!at) {
    return std::unexpected(at.error());
  }
  const auto now = pfs_.fstat(*at);
  if (!now) {
    return with_context(now.error(), "reading the directory's attributes");
  }
  EFS_TRY(apply_times(*at, item));
  return sync_one(*at, *now, fsync);
}

Result<DirectoryAttributes> ResultsTree::attributes_of(const std::string& path) {
  const auto at = let_in_and_open(path);
  if (!at) {
    return std::unexpected(at.error());
  }
  auto now = stage::attributes_of(pfs_, *at);
  if (!now) {
    return with_context(now.error(), "reading the directory's attributes");
  }
  const MutexLock lock(mutex_);
  // Otherwise another process has changed it meanwhile.
  if (const auto opened = granted_.find(path);
      opened != granted_.end() && now->mode == (opened->second | 0700U)) {
    now->mode = opened->second & 07777U;
  }
  return now;
}

bool ResultsTree::is_elsewhere(const std::string& path) {
  const MutexLock lock(mutex_);
  return elsewhere_.contains(path);
}

bool ResultsTree::sync_all_at_once(std::size_t directories) const {
  return directories >= many && sync_all_reports_errors();
}

Status ResultsTree::sync(const std::set<std::string>& directories) {
  const bool at_once = sync_all_at_once(directories.size());
  if (at_once) {
    EFS_TRY(sync_all());
  }
  for (const auto& path : directories) {
    if (at_once && !is_elsewhere(path)) {
      continue;
    }
    auto at = directory(path);
    auto done = at ? pfs_.fsync(*at) : std::unexpected(at.error());
    if (!done) {
      return fail(done.error().code, "fsync of directory /" + path + ": " + describe(done.error()));
    }
  }
  return {};
}

}  // namespace efs::stage
