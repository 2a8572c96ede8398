#include "fuse/convert.hpp"

#include "fuse/session.hpp"
#include "fuse/wire.hpp"

namespace efs::fuse {

fs::Caller caller_of(fuse_req_t request) {
  const fuse_ctx* context = fuse_req_ctx(request);
  const std::uint64_t number = current_request();
  return {context->uid, context->gid, number & ~resent_bit, (number & resent_bit) != 0};
}

double attribute_timeout(const fs::Entry& entry) { return entry.may_change_unseen ? keep_briefly : keep_for_ever; }

fuse_entry_param to_entry(const fs::Entry& entry) {
  fuse_entry_param param{};
  param.ino = entry.ino;
  param.generation = 1;  // numbers are never used twice
  param.attr = entry.attributes;
  param.attr_timeout = attribute_timeout(entry);
  param.entry_timeout = keep_for_ever;
  return param;
}

fuse_entry_param negative_entry() {
  fuse_entry_param param{};
  param.entry_timeout = keep_for_ever;
  return param;
}

fs::AttributeChange to_change(const struct stat& attributes, int to_set) {
  fs::AttributeChange change;
  if ((to_set & FUSE_SET_ATTR_MODE) != 0) change.mode = attributes.st_mode;
  if ((to_set & FUSE_SET_ATTR_UID) != 0) change.uid = attributes.st_uid;
  if ((to_set & FUSE_SET_ATTR_GID) != 0) change.gid = attributes.st_gid;
  if ((to_set & FUSE_SET_ATTR_SIZE) != 0) change.size = static_cast<std::uint64_t>(attributes.st_size);
  const Nanoseconds now = file_time_now();
  if ((to_set & FUSE_SET_ATTR_ATIME) != 0) change.atime = to_ns(attributes.st_atim);
  if ((to_set & FUSE_SET_ATTR_ATIME_NOW) != 0) change.atime = now;
  if ((to_set & FUSE_SET_ATTR_MTIME) != 0) change.mtime = to_ns(attributes.st_mtim);
  if ((to_set & FUSE_SET_ATTR_MTIME_NOW) != 0) change.mtime = now;
  change.touch = to_set == 0;
  // FATTR_KILL_SUIDGID, and the empty request that a passthrough write of an ordinary user sends in its place.
  change.clear_privilege = to_set == 0 || (to_set & (FUSE_SET_ATTR_KILL_SUID | FUSE_SET_ATTR_KILL_SGID)) != 0;
  return change;
}

}  // namespace efs::fuse
