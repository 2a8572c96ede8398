// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "fs/acl.hpp"
#include "fs/filesystem.hpp"
#include "fs/removal_reserve.hpp"

namespace efs::fs {
namespace {

// New files in a directory with the setgid bit inherit its group, and new directories also inherit
// the bit (inode(7)).
void inherit_group(const Inode& parent, const Caller& caller, MakeNode& node) {
  if ((parent.mode & S_ISGID) == 0) {
    return;
  }
  node.gid = parent.gid;
  if (S_ISDIR(node.mode)) {
    node.mode |= S_ISGID;
  }
  if (!S_ISDIR(node.mode) && !caller.belongs_to(parent.gid) && (node.mode & S_IXGRP) != 0) {
    node.mode &= ~static_cast<std::uint32_t>(S_ISGID);
  }
}

// The default ACL of the directory replaces the umask. It becomes the access ACL, limited by the
// requested mode. Subdirectories inherit it (acl(5), "OBJECT CREATION AND DEFAULT ACLs").
Status inherit_acl(const Inode& parent, const Caller& caller, MakeNode& node) {
  const std::string* inherited = parent.xattr(default_acl_name);
  if (inherited == nullptr) {
    node.mode &= ~static_cast<std::uint32_t>(caller.umask & 0777);
    return {};
  }
  auto acl = Acl::parse(*inherited);
  if (!acl) {
    return std::unexpected(acl.error());
  }
  acl->restrict(node.mode);
  node.mode = acl->mode_of(node.mode);
  if (!acl->is_minimal()) {
    node.xattrs[access_acl_name] = acl->format();
  }
  if (S_ISDIR(node.mode)) {
    node.xattrs[default_acl_name] = *inherited;
  }
  return {};
}

}  // namespace

// A program may fill the file past the daemon, by passthrough. A margin keeps small files out of
// the reserved room.
Status Filesystem::admit_new_file() {
  if (has_remote_) {
    constexpr std::uint64_t least = 4096, part = 64;
    std::uint64_t reserved = 0;
    {
      const ReadLock lock(mutex_);
      reserved = reserved_room();
    }
    EFS_TRY(leaves_room(std::max(least, std::min(reserved, backend_.space().capacity / part))));
  }
  return backend_.admit_writer();
}

Result<Entry> Filesystem::make_node(const Caller& caller, std::uint64_t parent,
                                    const std::string& name, mode_t mode, dev_t rdev) {
  make_room_ahead();
  // without the lock: it may examine every container
  const Status room = S_ISREG(mode) || (mode & S_IFMT) == 0 ? admit_new_file() : Status{};
  WriteLock lock(mutex_);
  // A worker may have died after the creation failed and it had removed the name again. After
  // ESTALE the kernel asks anew.
  if (const auto ino = done_before(caller)) {
    const Inode* made = names_.find(*ino);
    return made != nullptr && made->nlink > 0 ? referenced(*ino) : fail(ESTALE);
  }
  EFS_TRY(room);
  auto dir = directory(parent);
  if (!dir) {
    return std::unexpected(dir.error());
  }
  EFS_TRY(check_new_name(**dir, name));
  return make_inode(caller, **dir, name, mode, rdev);
}

Result<Entry> Filesystem::make_nameless(const Caller& caller, std::uint64_t parent, mode_t mode) {
  make_room_ahead();
  const Status room = admit_new_file();
  WriteLock lock(mutex_);
  if (const auto ino = done_before(caller)) {
    return referenced(*ino);
  }
  EFS_TRY(room);
  auto dir = directory(parent);
  if (!dir) {
    return std::unexpected(dir.error());
  }
  if ((*dir)->nlink == 0) {
    return fail(ENOENT);
  }
  return make_inode(caller, **dir, "", S_IFREG | (mode & 07777), 0);
}

Result<Entry> Filesystem::make_inode(const Caller& caller, const Inode& parent,
                                     const std::string& name, mode_t mode, dev_t rdev) {
  MakeNode node;
  node.parent = parent.ino;
  node.rdev = rdev;
  node.mode = (mode & S_IFMT) == 0 ? mode | S_IFREG : mode;
  node.uid = caller.uid;
  node.gid = caller.gid;
  node.atime = node.mtime = node.ctime = node.btime = clock_.now();
  node.name = name;
  inherit_group(parent, caller, node);
  EFS_TRY(inherit_acl(parent, caller, node));
  ContainerPool::Ready content;
  if (S_ISREG(node.mode)) {
    const auto place = place_of_new(parent, name);
    if (!place) {
      return std::unexpected(place.error());
    }
    auto taken = take_container(*place);
    if (!taken) {
      return std::unexpected(taken.error());
    }
    content = std::move(*taken);
    node.ino = content.ino;
  } else {
    node.ino = names_.next_ino();
  }
  if (const Status done = commit(caller.request, node, name.empty() ? 0 : removal_reserve(name));
      !done) {
    give_back(std::move(content));
    return std::unexpected(done.error());
  }
  Inode* made = names_.find(node.ino);
  made->unshared = true;
  auto entry = entry_of(*made, &content);
  if (entry) {
    ++made->lookups;
  } else if (const Reaped reaped = reap(node.ino); reaped.container != 0 && !reaped.waits) {
    // it has no name, and the kernel does not know it
    backend_.remove(reaped.container);
  }
  return entry;
}

void Filesystem::give_back(ContainerPool::Ready unused) {
  if (unused.ahead) {
    pool_.put_back(std::move(unused));
  } else if (unused.container) {
    backend_.remove(unused.ino);
  }
}

Result<unsigned> Filesystem::place_of_new(const Inode& parent, const std::string& name) {
  const bool by_path = options_.place_of_new && !name.empty();
  return backend_.place_for(
      {.place = by_path ? options_.place_of_new(names_.path_of(parent, name)) : std::nullopt});
}

Result<ContainerPool::Ready> Filesystem::take_container(unsigned place) {
  auto taken = pool_.take();
  // the pool made it for another backend, or before its backend was full
  if (taken && backend_.place_of(taken->ino) != place) {
    pool_.put_back(std::move(*taken));
    taken.reset();
  }
  if (taken && taken->unused) {
    return std::move(*taken);
  }
  if (taken) {
    // The container is older than the new file.
    if (const Status set = taken->container->set_times(stamp_now, stamp_now); !set) {
      pool_.put_back(std::move(*taken));
      return std::unexpected(set.error());
    }
    return std::move(*taken);
  }
  const auto number = new_numbers();
  if (!number) {
    return std::unexpected(number.error());
  }
  ContainerPool::Ready made{.ino = number->next, .container = nullptr};
  auto container = backend_.create_at(made.ino, place, CachePolicy::kept_open);
  if (!container) {
    return std::unexpected(container.error());
  }
  made.container = std::move(*container);
  return made;
}

Result<Entry> Filesystem::make_symlink(const Caller& caller, std::uint64_t parent,
                                       const std::string& name, const std::string& target) {
  WriteLock lock(mutex_);
  if (const auto ino = done_before(caller)) {
    return referenced(*ino);
  }
  auto dir = directory(parent);
  if (!dir) {
    return std::unexpected(dir.error());
  }
  EFS_TRY(check_new_name(**dir, name));
  if (target.empty()) {
    return fail(ENOENT);
  }
  MakeNode node;
  node.ino = names_.next_ino();
  node.parent = parent;
  node.mode = S_IFLNK | 0777;
  node.uid = caller.uid;
  node.gid = caller.gid;
  node.atime = node.mtime = node.ctime = node.btime = clock_.now();
  node.name = name;
  node.target = target;
  inherit_group(**dir, caller, node);
  EFS_TRY(commit(caller.request, node, removal_reserve(name)));
  return referenced(node.ino);
}

}  // namespace efs::fs
