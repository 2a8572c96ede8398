// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/convert.hpp"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "fuse/connection.hpp"

namespace efs::fuse {

double attribute_timeout(const fs::Entry& entry) {
  return entry.may_change_now ? keep_not : entry.may_change_unseen ? keep_briefly : keep_for_ever;
}

fs::Entry as_cached(const Connection& connection, fs::Entry entry) {
  if (!connection.writeback || !S_ISREG(entry.attributes.st_mode)) {
    return entry;
  }
  const bool is_lost = entry.may_change_now && !entry.written_now;
  const bool may_have_blocks = entry.written_now && entry.attributes.st_blocks == 0;
  if (may_have_blocks) {
    entry.attributes.st_blocks = 1;
  }
  entry.may_change_now = is_lost;
  entry.may_change_unseen = is_lost || may_have_blocks;
  return entry;
}

fuse_entry_param to_entry(const fs::Entry& entry) {
  fuse_entry_param param{};
  param.ino = entry.ino;
  param.generation = 1;  // numbers are never used twice
  param.attr = entry.attributes;
  param.attr_timeout = attribute_timeout(entry);
  param.entry_timeout = keep_for_ever;
  return param;
}

struct statx to_statx(const fs::Entry& entry) {
  const struct stat& from = entry.attributes;
  const auto time = [](const timespec& t) {
    return statx_timestamp{.tv_sec = t.tv_sec, .tv_nsec = static_cast<std::uint32_t>(t.tv_nsec)};
  };
  struct statx to{};
  to.stx_mask = STATX_BASIC_STATS | STATX_BTIME;
  to.stx_blksize = static_cast<std::uint32_t>(from.st_blksize);
  to.stx_nlink = static_cast<std::uint32_t>(from.st_nlink);
  to.stx_uid = from.st_uid;
  to.stx_gid = from.st_gid;
  to.stx_mode = static_cast<std::uint16_t>(from.st_mode);
  to.stx_ino = from.st_ino;
  to.stx_size = static_cast<std::uint64_t>(from.st_size);
  to.stx_blocks = static_cast<std::uint64_t>(from.st_blocks);
  to.stx_atime = time(from.st_atim);
  to.stx_mtime = time(from.st_mtim);
  to.stx_ctime = time(from.st_ctim);
  to.stx_btime = time(to_timespec(entry.birth));
  to.stx_rdev_major = major(from.st_rdev);
  to.stx_rdev_minor = minor(from.st_rdev);
  return to;
}

fuse_entry_param negative_entry() {
  fuse_entry_param param{};
  param.entry_timeout = keep_for_ever;
  return param;
}

fs::AttributeChange to_change(const struct stat& attributes, int to_set) {
  fs::AttributeChange change;
  if ((to_set & FUSE_SET_ATTR_MODE) != 0) {
    change.mode = attributes.st_mode;
  }
  if ((to_set & FUSE_SET_ATTR_UID) != 0) {
    change.uid = attributes.st_uid;
  }
  if ((to_set & FUSE_SET_ATTR_GID) != 0) {
    change.gid = attributes.st_gid;
  }
  if ((to_set & FUSE_SET_ATTR_SIZE) != 0) {
    change.size = static_cast<std::uint64_t>(attributes.st_size);
  }
  if ((to_set & FUSE_SET_ATTR_ATIME) != 0) {
    change.atime = attributes.st_atim;
  }
  if ((to_set & FUSE_SET_ATTR_ATIME_NOW) != 0) {
    change.atime = stamp_now;
  }
  if ((to_set & FUSE_SET_ATTR_MTIME) != 0) {
    change.mtime = attributes.st_mtim;
  }
  if ((to_set & FUSE_SET_ATTR_MTIME_NOW) != 0) {
    change.mtime = stamp_now;
  }
  // With its write cache the kernel adds its own ctime, which a container cannot have.
  const int asked = to_set & ~FUSE_SET_ATTR_CTIME;
  change.reported = asked != to_set && asked == FUSE_SET_ATTR_MTIME;
  change.touch = asked == 0;
  // FATTR_KILL_SUIDGID, and the empty request that a passthrough write of an ordinary user sends in
  // its place.
  change.clear_privilege =
      asked == 0 || (to_set & (FUSE_SET_ATTR_KILL_SUID | FUSE_SET_ATTR_KILL_SGID)) != 0;
  return change;
}

}  // namespace efs::fuse
