// SPDX-License-Identifier: BSD-3-Clause
#include "fs/inode.hpp"

#include <fcntl.h>

#include <algorithm>

namespace efs::fs {

bool is_one_of(std::string_view names, std::string_view path) {
  for (std::size_t at = 0; at <= names.size();) {
    const auto end = std::min(names.find('\0', at), names.size());
    if (names.substr(at, end - at) == path) {
      return true;
    }
    at = end + 1;
  }
  return false;
}

std::vector<std::string> split_names(std::string_view names) {
  std::vector<std::string> all;
  for_each_name(names, [&](std::string_view name) { all.emplace_back(name); });
  return all;
}

std::string without_name(std::string_view names, std::string_view path) {
  std::string left;
  for (const auto& name : split_names(names)) {
    if (name != path) {
      left += (left.empty() ? "" : std::string(1, '\0')) + name;
    }
  }
  // The record keeps the trailing NUL to show that the file had several names: changes of these
  // change the origin's ctime.
  const bool only_one_left = !left.empty() && !left.contains('\0') && names.contains('\0');
  return only_one_left ? left + '\0' : left;
}

bool Inode::count_open(int flags) {
  was_used.store(true, std::memory_order_relaxed);
  if ((flags & O_ACCMODE) == O_RDONLY) {
    ++read_opens;
    return false;
  }
  ++write_opens;
  ++edits;
  if ((flags & O_ACCMODE) != O_RDWR) {
    return false;
  }
  opened_read_write = true;
  return read_write_opens.fetch_add(1) == 0;
}

void Inode::count_close(int flags) {
  --((flags & O_ACCMODE) == O_RDONLY ? read_opens : write_opens);
  if ((flags & O_ACCMODE) == O_RDWR) {
    --read_write_opens;
  }
}

}  // namespace efs::fs
