#include "stage/out/result_directories.hpp"

#include <utility>

namespace efs::stage {

ReceiptEntry ResultDirectories::failed(const fs::WalkItem& item, const Error& error) {
  writer_.note_full(error);
  failed_.insert(item.path);
  return receipt_entry(item, Action::failed, describe(error));
}

std::vector<ReceiptEntry> ResultDirectories::make(const std::vector<DirectoryToMake>& directories) {
  std::vector<ReceiptEntry> entries;
  for (const auto& directory : directories)
    if (auto made = tree_.make(*directory.item); !made) entries.push_back(failed(*directory.item, made.error()));
  if (auto synced = tree_.sync_made(); !synced) not_durable_ = describe(synced.error());
  return entries;
}

// Children first: a parent's final mode may close the way to them.
std::vector<ReceiptEntry> ResultDirectories::finish(const std::vector<DirectoryToMake>& directories) {
  std::vector<ReceiptEntry> entries;
  const bool at_once = tree_.sync_all_at_once(directories.size());
  std::vector<Finished> all;
  for (auto it = directories.rbegin(); it != directories.rend(); ++it) {
    if (failed_.contains(it->item->path)) continue;
    auto finished = finish_one(*it, !at_once);
    if (finished) all.push_back(std::move(*finished));
    else entries.push_back(failed(*it->item, finished.error()));
  }
  const Status synced = at_once ? tree_.sync_all() : Status();
  const std::string doubt = !synced ? describe(synced.error()) : not_durable_;
  for (const auto& one : all) {
    const auto& item = *one.directory->item;
    const std::string lost = one.lost.empty() ? "" : (one.reason.empty() ? "" : "; ") + ("without " + one.lost);
    if (!doubt.empty()) entries.push_back(failed(item, {EIO, doubt}));
    else if (one.stays) entries.push_back(receipt_entry(item, Action::conflict, one.reason));
    else if (one.directory->reported) entries.push_back(receipt_entry(item, Action::staged_out, one.reason + lost));
  }
  return entries;
}

Result<ResultDirectories::Finished> ResultDirectories::finish_one(const DirectoryToMake& directory, bool fsync) {
  Finished finished{.directory = &directory};
  if (!directory.apply_attributes) return finished;
  const bool came_in = directory.item->origin && in_place_;
  fs::WalkItem item = *directory.item;
  if (came_in && !tree_.is_new(item.path)) EFS_TRY(merge(item, finished));
  if (finished.stays) return finished;
  auto lost = tree_.finish(item, came_in, fsync);
  if (!lost) return std::unexpected(lost.error());
  finished.lost = std::move(*lost);
  if (came_in && !finished.is_theirs) note_version(item, finished);
  return finished;
}

/// `item` gets the attributes that it is to have.
Status ResultDirectories::merge(fs::WalkItem& item, Finished& finished) {
  auto theirs = tree_.attributes_of(item.path);
  if (!theirs) return std::unexpected(theirs.error());
  const auto& wanted = item.attributes;
  const DirectoryAttributes ours{.mode = wanted.st_mode, .uid = wanted.st_uid, .gid = wanted.st_gid, .xattrs = item.xattrs};
  switch (merge_directory(item.origin->inode == 0 ? item.origin->size : 0, directory_version(ours), directory_version(*theirs))) {
    case DirectoryMerge::take_ours: break;
    case DirectoryMerge::keep_theirs:
      finished.is_theirs = true;
      finished.reason = "its times only: the rest has changed on the PFS since it was staged in, and the job has not changed it";
      item.attributes.st_mode = S_IFDIR | theirs->mode;
      item.attributes.st_uid = theirs->uid;
      item.attributes.st_gid = theirs->gid;
      item.xattrs = std::move(theirs->xattrs);
      break;
    case DirectoryMerge::conflict:
      finished.stays = config_.on_conflict != config::OnConflict::overwrite;
      finished.reason = finished.stays ? "its mode, owner, ACLs or extended attributes changed on the PFS since it was staged in; the job's are kept in the buffer only"
                                       : "replaced attributes that changed on the PFS since it was staged in";
      break;
  }
  return {};
}

/// What it has now is the job's, should that change it again.
void ResultDirectories::note_version(const fs::WalkItem& item, Finished& finished) {
  const auto now = tree_.attributes_of(item.path);
  const Status noted = now ? buffer_.note_directory(item.path, directory_version(*now)) : std::unexpected(now.error());
  if (!noted) finished.reason += (finished.reason.empty() ? "" : "; ") + std::string("when it changes again, these attributes may be taken for somebody else's: ") + describe(noted.error());
}

std::vector<ReceiptEntry> ResultDirectories::leave(const std::vector<DirectoryToMake>& directories, const std::string& reason) {
  std::vector<ReceiptEntry> entries;
  for (const auto& directory : directories)
    if (directory.reported) entries.push_back(receipt_entry(*directory.item, Action::not_saved, reason));
  return entries;
}

}  // namespace efs::stage
