#include "fs/filesystem.hpp"

namespace efs::fs {

Result<std::vector<Filesystem::DirectoryItem>> Filesystem::readdir(std::uint64_t ino, std::uint64_t cookie, std::size_t most) {
  ReadLock lock(mutex_);
  auto dir = directory(ino);
  if (!dir) return std::unexpected(dir.error());
  std::vector<DirectoryItem> items;
  if ((*dir)->nlink == 0) return items;  // removed: not even "." is left
  if (cookie < 1) items.push_back({".", ino, S_IFDIR, 1});
  if (cookie < 2) items.push_back({"..", (*dir)->parent, S_IFDIR, 2});
  (*dir)->directory->for_each_after(cookie, [&](const std::string& name, const Directory::Entry& entry) {
    if (items.size() >= most) return false;
    items.push_back({name, entry.ino, 0, entry.cookie});
    return true;
  });
  for (auto& item : items)
    if (item.type == 0) item.type = names_.find(item.ino)->mode & S_IFMT;
  return items;
}

}  // namespace efs::fs
