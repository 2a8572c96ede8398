// What inodes are known as on the PFS, under names that they had before. Such a name may come back to them: until then nothing
// may stand there that is another's, or they would pass for clean.
#include <algorithm>
#include <unordered_map>

#include "fs/filesystem.hpp"
#include "fs/staging_place.hpp"

namespace efs::fs {
namespace {

using Wanted = std::unordered_map<std::string_view, const PfsName*>;

/// Those of `names` that are wanted, and whose version is not `known`.
std::vector<std::string> stale(const std::string& names, const Origin& known, const Wanted& wanted) {
  std::vector<std::string> found;
  for (std::string_view rest = names; !rest.empty();) {
    const auto name = rest.substr(0, rest.find('\0'));
    const auto want = wanted.find(name);
    if (want != wanted.end() && want->second->version != known) found.emplace_back(name);
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
  }
  return found;
}

}  // namespace

Staging::Claims Staging::stale_claims(const Inode& inode, const Wanted& wanted, Side side) const {
  filesystem_.mutex_.assert_held_shared();
  if (!inode.extra) return {};
  const InodeExtra& extra = *inode.extra;
  Claims claims;
  if (side != Side::results && extra.origin) claims.staged = stale(extra.origin_path, *extra.origin, wanted);
  if (side != Side::inputs && extra.saved) claims.saved = stale(extra.saved_path, *extra.saved, wanted);
  for (auto* names : {&claims.staged, &claims.saved}) std::erase_if(*names, [&](const std::string& name) { return leads_to(name, inode.ino); });
  return claims;
}

Status Staging::give_up(const Inode& inode, const Claims& claims) {
  filesystem_.mutex_.assert_held();
  // What has the name now has taken the place of that version; its own inode does not say so any more.
  for (const auto& name : claims.staged)
    if (!filesystem_.names_.gone().contains(name)) EFS_TRY(filesystem_.commit(0, gone_record_of(name, gone_input_of(inode, name))));
  SetStaging staging = staging_of(inode);
  for (const auto& name : claims.staged) staging.origin_path = without_name(staging.origin_path, name);
  for (const auto& name : claims.saved) staging.saved_path = without_name(staging.saved_path, name);
  const bool was_copy = staging.saved == 1;
  if (staging.origin_path.empty()) staging.staged = 0;
  if (staging.saved_path.empty()) staging.saved = 0;
  if (staging.saved == 0 && (was_copy || staging.staged == 0)) staging.dirty = 1;
  return filesystem_.commit(0, staging);
}

std::map<std::string, Error> Staging::disown(std::span<const PfsName> names, Side side) {
  Wanted wanted;
  for (const auto& name : names) wanted.emplace(name.path, &name);
  std::vector<std::uint64_t> claimants;
  {
    ReadLock lock(filesystem_.mutex_);
    filesystem_.names_.for_each([&](const Inode& inode) {
      if (!stale_claims(inode, wanted, side).empty()) claimants.push_back(inode.ino);
    });
  }
  std::map<std::string, Error> still;
  const auto note = [&](const Claims& claims, const Error& error) {
    for (const auto* list : {&claims.staged, &claims.saved})
      for (const auto& name : *list) still.try_emplace(name, error);
  };
  std::vector<Claims> given_up;
  for (const auto ino : claimants) {
    WriteLock lock(filesystem_.mutex_);
    const Inode* inode = filesystem_.names_.find(ino);
    if (inode == nullptr) continue;
    auto claims = stale_claims(*inode, wanted, side);
    if (claims.empty()) continue;
    if (const Status done = give_up(*inode, claims); !done) note(claims, done.error());
    else given_up.push_back(std::move(claims));
  }
  // Before the PFS loses what they were copies of.
  if (given_up.empty()) return still;
  if (const Status synced = filesystem_.fsync_metadata(); !synced)
    for (const auto& claims : given_up) note(claims, synced.error());
  return still;
}

Status Staging::forget_saved(std::span<const std::string> paths) {
  WriteLock lock(filesystem_.mutex_);
  for (const auto& path : paths) {
    const auto place = locate(filesystem_.names_, path);
    const auto there = place ? filesystem_.names_.child(*place->parent, place->name) : std::unexpected(place.error());
    if (there && (*there)->extra && (*there)->extra->saved) EFS_TRY(give_up(**there, {.staged = {}, .saved = {path}}));
  }
  return {};
}

}  // namespace efs::fs
