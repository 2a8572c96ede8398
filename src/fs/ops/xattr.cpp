#include <sys/xattr.h>

#include "fs/filesystem.hpp"

namespace efs::fs {
namespace {

// POSIX ACLs are not there yet: an honest refusal rather than a list that nobody enforces.
Status check_namespace(const std::string& name) {
  for (const char* known : {"user.", "trusted.", "security."})
    if (name == known) return fail(EINVAL);
    else if (name.starts_with(known)) return {};
  return fail(EOPNOTSUPP);
}

constexpr std::size_t longest_value = 65536;  // bytes, XATTR_SIZE_MAX

}  // namespace

Result<std::string> Filesystem::getxattr(std::uint64_t ino, const std::string& name) {
  EFS_TRY(check_namespace(name));
  ReadLock lock(mutex_);
  auto found = inode(ino);
  if (!found) return std::unexpected(found.error());
  const auto& extra = (*found)->extra;
  if (!extra) return fail(ENODATA);
  const auto it = extra->xattrs.find(name);
  if (it == extra->xattrs.end()) return fail(ENODATA);
  return it->second;
}

Result<std::vector<std::string>> Filesystem::listxattr(std::uint64_t ino) {
  ReadLock lock(mutex_);
  auto found = inode(ino);
  if (!found) return std::unexpected(found.error());
  std::vector<std::string> names;
  if ((*found)->extra)
    for (const auto& [name, value] : (*found)->extra->xattrs) names.push_back(name);
  return names;
}

Status Filesystem::setxattr(const Caller& caller, std::uint64_t ino, const std::string& name, const std::string& value, int flags) {
  EFS_TRY(check_namespace(name));
  if (value.size() > longest_value) return fail(E2BIG);
  WriteLock lock(mutex_);
  if (done_before(caller)) return {};
  auto found = inode(ino);
  if (!found) return std::unexpected(found.error());
  const bool there = (*found)->extra && (*found)->extra->xattrs.contains(name);
  if (there && (flags & XATTR_CREATE) != 0) return fail(EEXIST);
  if (!there && (flags & XATTR_REPLACE) != 0) return fail(ENODATA);
  return commit(caller.request, SetXattr{.ino = ino, .time = file_time_now(), .name = name, .value = value});
}

Status Filesystem::removexattr(const Caller& caller, std::uint64_t ino, const std::string& name) {
  EFS_TRY(check_namespace(name));
  WriteLock lock(mutex_);
  if (done_before(caller)) return {};
  auto found = inode(ino);
  if (!found) return std::unexpected(found.error());
  if (!(*found)->extra || !(*found)->extra->xattrs.contains(name)) return fail(ENODATA);
  return commit(caller.request, RemoveXattr{.ino = ino, .time = file_time_now(), .name = name});
}

}  // namespace efs::fs
