// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/name_table.hpp"

namespace efs::fuse {
namespace {

constexpr std::uint64_t root = 1;
constexpr int deepest = 4096;  // components (PATH_MAX); the bound also ends a loop of names

}  // namespace

void NameTable::add(std::uint64_t ino, std::uint64_t parent, std::string_view name) {
  if (ino == root) {
    return;
  }
  MutexLock lock(mutex_);
  Known& known = known_[ino];
  ++known.references;
  Name now{parent, name};
  if (known.name == now) {
    return;
  }
  if (const auto old = inodes_.find(known.name); old != inodes_.end() && old->second == ino) {
    inodes_.erase(old);
  }
  known.name = now;
  inodes_[std::move(now)] = ino;
}

void NameTable::rename(std::uint64_t parent, std::string_view name, std::uint64_t new_parent,
                       std::string_view new_name) {
  MutexLock lock(mutex_);
  const auto found = inodes_.find(Name{parent, name});
  if (found == inodes_.end()) {
    return;
  }
  const std::uint64_t ino = found->second;
  inodes_.erase(found);
  Name now{new_parent, new_name};
  known_[ino].name = now;
  inodes_[std::move(now)] = ino;
}

void NameTable::forget(std::uint64_t ino, std::uint64_t count) {
  MutexLock lock(mutex_);
  const auto found = known_.find(ino);
  if (found == known_.end()) {
    return;
  }
  if (found->second.references > count) {
    found->second.references -= count;
    return;
  }
  if (const auto name = inodes_.find(found->second.name);
      name != inodes_.end() && name->second == ino) {
    inodes_.erase(name);
  }
  known_.erase(found);
}

std::string NameTable::path_locked(std::uint64_t ino) const {
  std::string path;
  for (int depth = 0; ino != root && depth < deepest; ++depth) {
    const auto found = known_.find(ino);
    if (found == known_.end() || found->second.name.second.empty()) {
      return "#" + std::to_string(ino) + path;
    }
    path.insert(0, "/" + found->second.name.second);
    ino = found->second.name.first;
  }
  return path;
}

std::string NameTable::path(std::uint64_t ino) const {
  MutexLock lock(mutex_);
  auto path = path_locked(ino);
  return path.empty() ? "/" : path;
}

std::string NameTable::path(std::uint64_t parent, std::string_view name) const {
  MutexLock lock(mutex_);
  return path_locked(parent).append("/").append(name);
}

std::size_t NameTable::size() const {
  MutexLock lock(mutex_);
  return known_.size();
}

}  // namespace efs::fuse
