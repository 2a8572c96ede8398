// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cerrno>

#include "fs/filesystem.hpp"

namespace efs::fs {
namespace {

bool is_short_of_memory_or_descriptors(const Error& error) {
  return error.code == EMFILE || error.code == ENFILE || error.code == ENOMEM;
}

}  // namespace

std::vector<ContainerPool::Ready> Filesystem::servable(
    const std::vector<std::uint64_t>& inodes) const {
  std::vector<ContainerPool::Ready> found;
  found.reserve(inodes.size());
  {
    ReadLock lock(mutex_);
    for (const std::uint64_t ino : inodes) {
      if (const Inode* inode = names_.find(ino); inode != nullptr && inode->is_regular() &&
                                                 inode->nlink > 0 && !inode->carries_privilege() &&
                                                 !inode->is_remote()) {
        found.push_back({.ino = ino, .container = {}});
      }
    }
  }
  // A file removed meanwhile has no container. No request needs the result, so a shortage of
  // descriptors or memory only ends the loop.
  bool goes_on = true;
  std::erase_if(found, [&](ContainerPool::Ready& one) {
    if (!goes_on || !holder_of(one.ino).offers_descriptor()) {
      return true;
    }
    auto container = backend_.open(one.ino, CachePolicy::only_read);
    if (container) {
      one.container = std::move(*container);
    } else {
      goes_on = !is_short_of_memory_or_descriptors(container.error());
    }
    return !container;
  });
  return found;
}

}  // namespace efs::fs
