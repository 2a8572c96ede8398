// SPDX-License-Identifier: BSD-3-Clause
#include "fs/acl.hpp"

#include "fs/filesystem.hpp"

namespace efs::fs {

// setfacl(1). The kernel has checked that the caller owns the inode and that the list is valid. An
// empty value removes the list. Removing a missing list is not an error, as on other file systems.
Status Filesystem::set_acl(const Caller& caller, std::uint64_t ino, const std::string& name,
                           const std::string& value) {
  auto found = inode(ino);
  if (!found) {
    return std::unexpected(found.error());
  }
  Inode& target = **found;
  Result<Acl> acl = value.empty() ? Acl() : Acl::parse(value);
  if (!acl) {
    return std::unexpected(acl.error());
  }
  if (name == default_acl_name) {
    return set_default_acl(caller, target, name, value);
  }
  return set_access_acl(caller, target, *acl, value);
}

Status Filesystem::set_access_acl(const Caller& caller, const Inode& target, const Acl& acl,
                                  const std::string& value) {
  if (S_ISLNK(target.mode)) {
    return fail(EOPNOTSUPP);
  }
  SetAttributes record = attributes_of(target);
  if (!value.empty()) {
    record.mode = acl.mode_of(target.mode);
  }
  if ((record.mode & S_ISGID) != 0 && !caller.belongs_to(target.gid)) {
    record.mode &= ~static_cast<std::uint32_t>(S_ISGID);
  }
  record.access_acl = value.empty() || acl.is_minimal() ? "" : value;
  record.ctime = clock_.now();
  record.dirty = 1;
  return commit(caller.request, record);
}

Status Filesystem::set_default_acl(const Caller& caller, Inode& target, const std::string& name,
                                   const std::string& value) {
  if (!target.is_directory()) {
    return value.empty() ? Status{} : fail(EACCES);
  }
  if (value.empty() && target.xattr(name) == nullptr) {
    return {};
  }
  EFS_TRY(mark_dirty(0, target));
  if (!value.empty()) {
    return commit(caller.request,
                  SetXattr{.ino = target.ino, .time = clock_.now(), .name = name, .value = value});
  }
  return commit(caller.request, RemoveXattr{.ino = target.ino, .time = clock_.now(), .name = name});
}

}  // namespace efs::fs
