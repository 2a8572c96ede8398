// SPDX-License-Identifier: BSD-3-Clause
#include "stage/pfs/attributes.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace efs::stage {
namespace {

/// ext4 returns ENOSPC also for a value that does not fit into the inode's attribute space, however
/// much room the file system has. If the file system has hardly any room, ENOSPC means a full file
/// system, which is temporary.
bool has_room(PfsRef file, PfsIo& pfs) {
  constexpr std::uint64_t hardly_any = 1U << 20U;  // bytes
  constexpr std::uint64_t few = 16;                // inodes
  const auto values = pfs.statvfs(file);
  return values && values->f_bavail * values->f_frsize >= hardly_any &&
         (values->f_files == 0 || values->f_favail >= few);
}

}  // namespace

Result<std::string> set_xattrs(PfsRef file, const fs::WalkItem& item, PfsIo& pfs) {
  std::string lost;
  for (const auto& [name, value] : item.xattrs) {
    auto done = pfs.set_xattr(file, name, value);
    if (done) {
      continue;
    }
    constexpr std::array refusals{EOPNOTSUPP, EPERM, EACCES, E2BIG, ERANGE};
    const bool refused = std::ranges::find(refusals, done.error().code) != refusals.end() ||
                         (done.error().code == ENOSPC && has_room(file, pfs));
    if (!refused) {
      return with_context(done.error(), "setting its extended attributes");
    }
    lost += (lost.empty() ? "" : "; ") + name + ": " + describe(done.error());
  }
  return lost;
}

mode_t safe_mode(mode_t mode, bool owner_is_right) {
  return mode & (owner_is_right ? 07777U : 07777U & ~static_cast<mode_t>(S_ISUID | S_ISGID));
}

// If a directory hands down a group other than the process's own, a new file has that group.
gid_t group_of(const fs::WalkItem& item, gid_t now) {
  if (!item.group.plain) {
    return item.attributes.st_gid;
  }
  return now != ::getegid() ? now : *item.group.plain;
}

mode_t mode_of(const fs::WalkItem& item, uid_t uid, gid_t gid) {
  const auto& wanted = item.attributes;
  if (uid == wanted.st_uid && gid == wanted.st_gid) {
    return wanted.st_mode & 07777U;
  }
  const bool is_handed_down = uid == wanted.st_uid && gid == group_of(item, gid);
  if (!is_handed_down) {
    return safe_mode(wanted.st_mode, false);
  }
  return wanted.st_mode & 07777U & ~static_cast<mode_t>(S_ISGID);
}

}  // namespace efs::stage
