// SPDX-License-Identifier: BSD-3-Clause
// Names on the PFS in the records of inodes that no longer have these names. An inode may get such
// a name back. If another file had taken the name on the PFS meanwhile, the inode would wrongly
// count as clean.
#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "fs/filesystem.hpp"
#include "fs/staging_place.hpp"

namespace efs::fs {

/// The names that other files have on the PFS by now, and the map from names of the buffer to names
/// in results-dir.
struct Staging::Taken {
  std::unordered_map<std::string_view, const PfsName*> names;
  Side side;
  const ResultName& called;

  std::string result_name(const std::string& name) const { return called ? called(name) : name; }

  const PfsName* find(std::string_view name) const {
    const auto found = names.find(name);
    return found == names.end() ? nullptr : found->second;
  }

  /// The same for the name in results-dir of this name in the buffer.
  const PfsName* find_result(std::string_view name) const {
    return called ? find(called(std::string(name))) : find(name);
  }

  /// Adds the names on the PFS whose records could not be dropped to `still`.
  void note(const Claims& claims, const Error& error, std::map<std::string, Error>& still) const {
    for (const auto& name : claims.staged) {
      still.try_emplace(name, error);
    }
    for (const auto& name : claims.saved) {
      still.try_emplace(result_name(name), error);
    }
  }
};

bool Staging::is_stale(const Inode& inode, const std::string& name, const PfsName* taken,
                       const Origin& known) const {
  filesystem_.mutex_.assert_held_shared();
  if (taken->version && is_same_file(*taken->version, known)) {
    return false;
  }
  return taken->by != 0 ? inode.ino != taken->by : !leads_to(name, inode.ino);
}

// A search over all inodes calls this for each of them: it allocates nothing for a name that no
// other file has taken.
Staging::Claims Staging::stale_claims(const Inode& inode, const Taken& taken) const {
  filesystem_.mutex_.assert_held_shared();
  // A remote file without a name gets neither a content nor a name.
  if (!inode.extra || (inode.nlink == 0 && inode.is_remote())) {
    return {};
  }
  const InodeExtra& extra = *inode.extra;
  Claims claims;
  if (extra.origin) {
    for_each_name(extra.origin_path, [&](std::string_view name) {
      const PfsName* by = taken.find(name);
      if (by != nullptr && is_stale(inode, std::string(name), by, *extra.origin)) {
        claims.staged.emplace_back(name);
      }
    });
  }
  if (extra.saved && taken.side != Side::inputs) {
    for_each_name(extra.saved_path, [&](std::string_view name) {
      const PfsName* by = taken.find_result(name);
      if (by != nullptr && is_stale(inode, std::string(name), by, *extra.saved)) {
        claims.saved.emplace_back(name);
      }
    });
  }
  return claims;
}

Status Staging::give_up(const Inode& inode, const Claims& claims) {
  filesystem_.mutex_.assert_held();
  SetStaging staging = staging_of(inode);
  for (const auto& name : claims.staged) {
    staging.origin_path = without_name(staging.origin_path, name);
  }
  for (const auto& name : claims.saved) {
    staging.saved_path = without_name(staging.saved_path, name);
  }
  const bool was_copy = staging.saved == 1;
  if (staging.origin_path.empty()) {
    staging.staged = 0;
  }
  if (staging.saved_path.empty()) {
    staging.saved = 0;
  }
  if (staging.saved == 0 && (was_copy || staging.staged == 0)) {
    staging.dirty = 1;
  }
  if (staging.dirty != 0 && inode.is_remote()) {
    return not_here();  // before any record
  }
  // The file that has the name now has replaced that version; its own inode no longer has a record
  // of it.
  for (const auto& name : claims.staged) {
    if (!filesystem_.names_.gone().contains(name)) {
      EFS_TRY(filesystem_.commit(0, gone_record_of(name, gone_input_of(inode, name))));
    }
  }
  return filesystem_.commit(0, staging);
}

std::vector<std::uint64_t> Staging::those(const std::function<bool(const Inode&)>& wanted) const {
  ReadLock lock(filesystem_.mutex_);
  std::vector<std::uint64_t> found;
  filesystem_.names_.for_each([&](const Inode& inode) {
    if (wanted(inode)) {
      found.push_back(inode.ino);
    }
  });
  return found;
}

std::map<std::string, Error> Staging::revoke(std::span<const PfsName> names, Side side,
                                             const ResultName& called) {
  if (names.empty()) {
    return {};
  }
  Taken taken{.names = {}, .side = side, .called = called};
  for (const auto& name : names) {
    taken.names.emplace(name.path, &name);
  }
  std::map<std::string, Error> still;
  std::vector<Claims> given_up;
  for (const auto ino :
       those([&](const Inode& inode) { return !stale_claims(inode, taken).empty(); })) {
    WriteLock lock(filesystem_.mutex_);
    const Inode* inode = filesystem_.names_.find(ino);
    if (inode == nullptr) {
      continue;
    }
    auto claims = stale_claims(*inode, taken);
    if (claims.empty()) {
      continue;
    }
    if (const Status done = give_up(*inode, claims); !done) {
      taken.note(claims, done.error(), still);
    } else {
      given_up.push_back(std::move(claims));
    }
  }
  // Before the PFS loses the versions of these copies.
  if (given_up.empty()) {
    return still;
  }
  if (const Status synced = filesystem_.fsync_metadata(); !synced) {
    for (const auto& claims : given_up) {
      taken.note(claims, synced.error(), still);
    }
  }
  return still;
}

Status Staging::forget_saved(const std::function<bool(const std::string&)>& is_elsewhere) {
  const auto claims_of = [&](const Inode& inode) {
    Claims claims;
    if (inode.extra && inode.extra->saved) {
      claims.saved = split_names(inode.extra->saved_path);
    }
    std::erase_if(claims.saved, [&](const std::string& name) { return !is_elsewhere(name); });
    return claims;
  };
  for (const auto ino : those([&](const Inode& inode) { return !claims_of(inode).empty(); })) {
    WriteLock lock(filesystem_.mutex_);
    if (const Inode* inode = filesystem_.names_.find(ino)) {
      EFS_TRY(give_up(*inode, claims_of(*inode)));
    }
  }
  return {};
}

}  // namespace efs::fs
