// SPDX-License-Identifier: BSD-3-Clause
#include <sys/xattr.h>

#include "fs/acl.hpp"
#include "fs/filesystem.hpp"

namespace efs::fs {
namespace {

Status check_namespace(const std::string& name) {
  if (is_acl_name(name)) {
    return {};
  }
  for (const char* known : {"user.", "trusted.", "security."}) {
    if (name == known) {
      return fail(EINVAL);
    } else if (name.starts_with(known)) {
      return {};
    }
  }
  return fail(EOPNOTSUPP);
}

constexpr std::size_t longest_value = 65536;  // bytes, XATTR_SIZE_MAX

}  // namespace

Result<std::string> Filesystem::getxattr(std::uint64_t ino, const std::string& name) {
  EFS_TRY(check_namespace(name));
  ReadLock lock(mutex_);
  auto found = inode(ino);
  if (!found) {
    return std::unexpected(found.error());
  }
  const std::string* value = (*found)->xattr(name);
  if (value == nullptr) {
    return fail(ENODATA);
  }
  return *value;
}

Result<std::vector<std::string>> Filesystem::listxattr(std::uint64_t ino) {
  ReadLock lock(mutex_);
  auto found = inode(ino);
  if (!found) {
    return std::unexpected(found.error());
  }
  std::vector<std::string> names;
  if ((*found)->extra) {
    for (const auto& [name, value] : (*found)->extra->xattrs) {
      names.push_back(name);
    }
  }
  return names;
}

Status Filesystem::setxattr(const Caller& caller, std::uint64_t ino, const std::string& name,
                            const std::string& value, int flags) {
  EFS_TRY(check_namespace(name));
  if (value.size() > longest_value) {
    return fail(E2BIG);
  }
  WriteLock lock(mutex_);
  if (done_before(caller)) {
    return {};
  }
  auto found = inode(ino);
  if (!found) {
    return std::unexpected(found.error());
  }
  if (is_acl_name(name)) {
    return set_acl(caller, ino, name, value);
  }
  const bool there = (*found)->xattr(name) != nullptr;
  if (there && (flags & XATTR_CREATE) != 0) {
    return fail(EEXIST);
  }
  if (!there && (flags & XATTR_REPLACE) != 0) {
    return fail(ENODATA);
  }
  EFS_TRY(mark_dirty(0, **found));
  EFS_TRY(commit(caller.request,
                 SetXattr{.ino = ino, .time = clock_.now(), .name = name, .value = value}));
  if (is_privilege(name)) {
    epoch_ends(ino);
  }
  return {};
}

Status Filesystem::removexattr(const Caller& caller, std::uint64_t ino, const std::string& name) {
  EFS_TRY(check_namespace(name));
  WriteLock lock(mutex_);
  if (done_before(caller)) {
    return {};
  }
  auto found = inode(ino);
  if (!found) {
    return std::unexpected(found.error());
  }
  if (is_acl_name(name)) {
    return set_acl(caller, ino, name, "");
  }
  if ((*found)->xattr(name) == nullptr) {
    return fail(ENODATA);
  }
  EFS_TRY(mark_dirty(0, **found));
  return commit(caller.request, RemoveXattr{.ino = ino, .time = clock_.now(), .name = name});
}

}  // namespace efs::fs
