// SPDX-License-Identifier: BSD-3-Clause
// After a takeover: invalidates entries of which the kernel may not have been notified.
#include <span>
#include <string>
#include <vector>

#include "fs/filesystem.hpp"
#include "fs/kernel_view.hpp"
#include "fs/staging_place.hpp"

namespace efs::fs {
namespace {

struct Doubted {
  std::uint64_t parent = 0;
  std::string name;
  std::uint64_t ino = 0;  // the inode of the name; 0: none
};

constexpr std::size_t names_in_a_row = 4096;  // names in one step; a directory may have millions

/// The next names of a directory after `cookie`, and advances `cookie`. Call it under the namespace
/// lock.
std::vector<Doubted> next_names(const Inode& directory, std::uint64_t& cookie) {
  std::vector<Doubted> names;
  directory.directory->for_each_after(cookie,
                                      [&](const std::string& name, const Directory::Entry& entry) {
                                        names.push_back({directory.ino, name, entry.ino});
                                        cookie = entry.cookie;
                                        return names.size() < names_in_a_row;
                                      });
  return names;
}

void doubt_all(KernelView& kernel, std::span<const Doubted> names) {
  for (const auto& one : names) {
    kernel.name_doubted(one.parent, one.name, one.ino);
  }
}

}  // namespace

// Invalidates all existing names, because a load does not mark its names, and the removed names
// that an unload or a failed load took away.
void Staging::invalidate_entries() {
  KernelView* kernel = filesystem_.kernel_;
  if (kernel == nullptr) {
    return;
  }
  std::vector<std::uint64_t> directories;
  std::vector<Doubted> gone;
  {
    ReadLock lock(filesystem_.mutex_);
    filesystem_.names_.for_each([&](const Inode& inode) {
      if (inode.is_directory()) {
        directories.push_back(inode.ino);
      }
    });
    for (const auto& [path, input] : filesystem_.names_.gone()) {
      const auto place = input.unloaded ? locate(path) : fail(ENOENT);
      if (place) {
        gone.push_back({place->parent->ino, place->name, 0});
      }
    }
  }
  doubt_all(*kernel, gone);
  for (const auto ino : directories) {
    kernel->attributes_changed(ino);  // and its content
    invalidate_names_in(ino, *kernel);
  }
}

// Takes the lock anew for each row of names, so that requests do not wait for a large directory.
void Staging::invalidate_names_in(std::uint64_t ino, KernelView& kernel) {
  for (std::uint64_t cookie = 0;;) {
    std::vector<Doubted> names;
    {
      ReadLock lock(filesystem_.mutex_);
      const Inode* directory = filesystem_.names_.find(ino);
      if (directory != nullptr && directory->is_directory()) {
        names = next_names(*directory, cookie);
      }
    }
    doubt_all(kernel, names);
    if (names.size() < names_in_a_row) {
      break;
    }
  }
}

}  // namespace efs::fs
