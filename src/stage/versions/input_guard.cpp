// SPDX-License-Identifier: BSD-3-Clause
#include "stage/versions/input_guard.hpp"

#include <algorithm>

namespace efs::stage {

void InputGuard::read() {
  const auto items = buffer_.inputs();
  if (!items) {
    readable_ = std::unexpected(items.error());
    return;
  }
  const auto note = [&](const std::string& path, const fs::Origin& origin) {
    if (origin.inode != 0) {
      inputs_[origin.inode].push_back(
          {.source = config::source_of(config_, path), .size = origin.size, .mtime = origin.mtime});
    }
  };
  for (const auto& item : *items) {
    if (item.pfs.origin) {
      note(item.path, *item.pfs.origin);
    }
    if (item.pfs.replaced) {
      note(item.path, item.pfs.replaced->origin);
    }
  }
}

// The version identifies the input under any name, and the input's own path identifies it in any
// version. (The inode number alone is not enough: a new file may have the number of a removed
// input. The device number may change after a remount.)
Result<bool> InputGuard::is_input(const struct stat& there) {
  std::call_once(asked_, [this] { read(); });
  if (!readable_) {
    return std::unexpected(readable_.error());
  }
  const auto known = inputs_.find(there.st_ino);
  if (known == inputs_.end()) {
    return false;
  }
  return std::ranges::any_of(known->second, [&](const Input& input) {
    return (static_cast<std::uint64_t>(there.st_size) == input.size &&
            to_ns(there.st_mtim) == input.mtime) ||
           leads_to(input.source, there);
  });
}

bool InputGuard::leads_to(const std::string& source, const struct stat& there) {
  const auto root = pfs_.open(no_directory, config_.root_dir, passage_flags);
  const auto file = root ? pfs_.open_beneath(*root, source, O_PATH) : std::unexpected(root.error());
  const auto now = file ? pfs_.fstat(*file) : std::unexpected(file.error());
  return now && now->st_dev == there.st_dev && now->st_ino == there.st_ino;
}

}  // namespace efs::stage
