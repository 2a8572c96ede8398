#include "stage/result_directories.hpp"

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
  std::vector<std::pair<const DirectoryToMake*, std::string>> finished;  // and what the PFS does not take
  for (auto it = directories.rbegin(); it != directories.rend(); ++it) {
    if (failed_.contains(it->item->path)) continue;
    const bool exactly = it->item->origin && in_place_;
    auto lost = it->apply_attributes ? tree_.finish(*it->item, exactly, !at_once) : Result<std::string>();
    if (lost) finished.emplace_back(&*it, std::move(*lost));
    else entries.push_back(failed(*it->item, lost.error()));
  }
  const Status synced = at_once ? tree_.sync_all() : Status();
  const std::string doubt = !synced ? describe(synced.error()) : not_durable_;
  for (const auto& [directory, lost] : finished) {
    if (!doubt.empty()) entries.push_back(failed(*directory->item, {EIO, doubt}));
    else if (directory->reported) entries.push_back(receipt_entry(*directory->item, Action::staged_out, lost.empty() ? "" : "without " + lost));
  }
  return entries;
}

std::vector<ReceiptEntry> ResultDirectories::leave(const std::vector<DirectoryToMake>& directories, const std::string& reason) {
  std::vector<ReceiptEntry> entries;
  for (const auto& directory : directories)
    if (directory.reported) entries.push_back(receipt_entry(*directory.item, Action::not_saved, reason));
  return entries;
}

}  // namespace efs::stage
