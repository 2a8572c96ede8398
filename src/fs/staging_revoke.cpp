// SPDX-License-Identifier: BSD-3-Clause
// Revokes the records of names on the PFS that other files have by now.
#include <algorithm>

#include "fs/filesystem.hpp"
#include "fs/ledger_records.hpp"
#include "fs/staging_place.hpp"

namespace efs::fs {

Status Staging::commit_change(const Inode* inode, const ledger::Change& change) {
  filesystem_.mutex_.assert_held();
  if (inode != nullptr && inode->is_remote() && change.entry && change.dirty) {
    return not_here();  // before any record
  }
  for (const auto& [path, input] : change.gone) {
    EFS_TRY(filesystem_.commit(0, gone_record_of(path, input)));
  }
  if (inode == nullptr || !change.entry) {
    return {};
  }
  SetStaging staging = fs::staging_of(*inode, *change.entry);
  staging.dirty = change.dirty;
  return filesystem_.commit(0, staging);
}

ledger::LeadsTo Staging::leads_to(std::uint64_t ino) const {
  return [this, ino](const std::string& path) {
    return leads_to(path, ino);
  };
}

void Staging::revoke_all(
    const StaleNamesOf& stale,
    const std::function<void(const ledger::StaleNames&, const Status&)>& done) {
  std::vector<std::uint64_t> found;
  {
    const ReadLock lock(filesystem_.mutex_);
    filesystem_.names_.files().for_each([&](std::uint64_t ino, const ledger::FileEntry& entry) {
      if (!stale(ino, entry).empty()) {
        found.push_back(ino);
      }
    });
  }
  for (const auto ino : found) {
    const WriteLock lock(filesystem_.mutex_);
    const Inode* inode = filesystem_.names_.find(ino);
    const ledger::Files& files = filesystem_.names_.files();
    const ledger::StaleNames names =
        inode != nullptr ? stale(ino, files.of(ino)) : ledger::StaleNames();
    if (!names.empty()) {
      done(names, commit_change(inode, files.revoked(ledger_node(*inode), names)));
    }
  }
}

std::map<std::string, Error> Staging::revoke(std::span<const PfsName> names, Side side,
                                             const ResultName& called) {
  if (names.empty()) {
    return {};
  }
  const ledger::TakenNames taken(names, side, called);
  std::map<std::string, Error> still;
  std::vector<ledger::StaleNames> revoked;
  const auto stale = [&](std::uint64_t ino, const ledger::FileEntry& entry) {
    filesystem_.mutex_.assert_held_shared();
    auto found = taken.stale(ino, entry, leads_to(ino));
    const Inode* inode = found.empty() ? nullptr : filesystem_.names_.find(ino);
    // A remote file without a name gets neither a content nor a name.
    const bool matters = inode != nullptr && (inode->nlink > 0 || !inode->is_remote());
    return matters ? found : ledger::StaleNames();
  };
  revoke_all(stale, [&](const ledger::StaleNames& found, const Status& done) {
    if (done) {
      revoked.push_back(found);
    } else {
      taken.add(found, done.error(), still);
    }
  });
  // Before the PFS loses the versions of these copies.
  const Status synced = revoked.empty() ? Status() : filesystem_.fsync_metadata();
  for (const auto& found : synced ? std::vector<ledger::StaleNames>() : revoked) {
    taken.add(found, synced.error(), still);
  }
  return still;
}

Status Staging::forget_saved(const std::function<bool(const std::string&)>& is_elsewhere) {
  const auto stale = [&](std::uint64_t, const ledger::FileEntry& entry) {
    ledger::StaleNames names;
    if (entry.exported) {
      names.exported = entry.exported->names.list();
      std::erase_if(names.exported, [&](const std::string& name) { return !is_elsewhere(name); });
    }
    return names;
  };
  Status all;
  revoke_all(stale, [&](const ledger::StaleNames&, const Status& done) { all = all ? done : all; });
  return all;
}

}  // namespace efs::fs
