#include "fs/acl.hpp"
#include "fs/filesystem.hpp"

namespace efs::fs {
namespace {

// What a removal of this name will need in the journal: kept back now, so that unlink works when all is full.
std::int64_t removal_reserve(const std::string& name) { return static_cast<std::int64_t>(store::Journal::record_size(name.size() + 32)); }

// A directory with the setgid bit hands its group down, and directories hand the bit down too (inode(7)).
void inherit_group(const Inode& parent, const Caller& caller, MakeNode& node) {
  if ((parent.mode & S_ISGID) == 0) return;
  node.gid = parent.gid;
  if (S_ISDIR(node.mode)) node.mode |= S_ISGID;
  if (!S_ISDIR(node.mode) && !caller.belongs_to(parent.gid) && (node.mode & S_IXGRP) != 0) node.mode &= ~static_cast<std::uint32_t>(S_ISGID);
}

// The default ACL of the directory takes the umask's place: it becomes the access ACL, as far as the requested mode
// allows, and subdirectories hand it down (acl(5), "OBJECT CREATION AND DEFAULT ACLs").
Status inherit_acl(const Inode& parent, const Caller& caller, MakeNode& node) {
  const std::string* inherited = parent.xattr(default_acl_name);
  if (inherited == nullptr) {
    node.mode &= ~static_cast<std::uint32_t>(caller.umask & 0777);
    return {};
  }
  auto acl = Acl::parse(*inherited);
  if (!acl) return std::unexpected(acl.error());
  acl->restrict(node.mode);
  node.mode = acl->mode_of(node.mode);
  if (!acl->is_minimal()) node.xattrs[access_acl_name] = acl->format();
  if (S_ISDIR(node.mode)) node.xattrs[default_acl_name] = *inherited;
  return {};
}

}  // namespace

Result<Entry> Filesystem::make_node(const Caller& caller, std::uint64_t parent, const std::string& name, mode_t mode, dev_t rdev) {
  WriteLock lock(mutex_);
  auto dir = directory(parent);
  if (!dir) return std::unexpected(dir.error());
  EFS_TRY(check_new_name(**dir, name));
  return make_inode(caller, **dir, name, mode, rdev);
}

Result<Entry> Filesystem::make_nameless(const Caller& caller, std::uint64_t parent, mode_t mode) {
  WriteLock lock(mutex_);
  auto dir = directory(parent);
  if (!dir) return std::unexpected(dir.error());
  if ((*dir)->nlink == 0) return fail(ENOENT);
  return make_inode(caller, **dir, "", S_IFREG | (mode & 07777), 0);
}

Result<Entry> Filesystem::make_inode(const Caller& caller, const Inode& parent, const std::string& name, mode_t mode, dev_t rdev) {
  MakeNode node;
  node.ino = names_.next_ino();
  node.parent = parent.ino;
  node.rdev = rdev;
  node.mode = (mode & S_IFMT) == 0 ? mode | S_IFREG : mode;
  node.uid = caller.uid;
  node.gid = caller.gid;
  node.atime = node.mtime = node.ctime = node.btime = file_time_now();
  node.name = name;
  inherit_group(parent, caller, node);
  EFS_TRY(inherit_acl(parent, caller, node));
  if (S_ISREG(node.mode)) {
    EFS_TRY(backend_.admit_writer());
    EFS_TRY(backend_.create(node.ino));
  }
  if (const Status done = commit(caller.request, node, name.empty() ? 0 : removal_reserve(name)); !done) {
    if (S_ISREG(node.mode)) backend_.remove(node.ino);
    return std::unexpected(done.error());
  }
  Inode* made = names_.find(node.ino);
  ++made->lookups;
  return entry_of(*made);
}

Result<Entry> Filesystem::make_symlink(const Caller& caller, std::uint64_t parent, const std::string& name, const std::string& target) {
  WriteLock lock(mutex_);
  auto dir = directory(parent);
  if (!dir) return std::unexpected(dir.error());
  EFS_TRY(check_new_name(**dir, name));
  if (target.empty()) return fail(ENOENT);
  MakeNode node;
  node.ino = names_.next_ino();
  node.parent = parent;
  node.mode = S_IFLNK | 0777;
  node.uid = caller.uid;
  node.gid = caller.gid;
  node.atime = node.mtime = node.ctime = node.btime = file_time_now();
  node.name = name;
  node.target = target;
  inherit_group(**dir, caller, node);
  EFS_TRY(commit(caller.request, node, removal_reserve(name)));
  Inode* made = names_.find(node.ino);
  ++made->lookups;
  return entry_of(*made);
}

}  // namespace efs::fs
