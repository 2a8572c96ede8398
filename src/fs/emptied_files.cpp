// SPDX-License-Identifier: BSD-3-Clause
#include "fs/emptied_files.hpp"

#include <cstring>
#include <sstream>
#include <string>

namespace efs::fs {
namespace {

constexpr const char* list_name = "emptied";  // beside the journal
constexpr const char* new_name = "emptied.new";
// the inode of the line that holds the mark of an add() without finish(); no file has this number
constexpr std::uint64_t unfinished_line = 0;
constexpr std::uint64_t largest_list = 1u << 30;

}  // namespace

Result<EmptiedFiles> EmptiedFiles::read(store::Medium& medium) {
  EmptiedFiles list;
  const auto file = medium.open(list_name, true);
  if (!file && file.error().code == ENOENT) {
    return list;
  }
  const auto size = file ? (*file)->size() : std::unexpected(file.error());
  if (!size) {
    return std::unexpected(size.error());
  }
  if (*size == 0 || *size > largest_list) {
    return list;
  }
  const auto mapped = (*file)->map(0, *size);
  if (!mapped) {
    return std::unexpected(mapped.error());
  }
  std::istringstream lines(std::string(reinterpret_cast<const char*>(*mapped), *size));
  std::uint64_t ino = 0;
  std::int64_t mark = 0;
  while (lines >> ino >> mark) {
    if (ino == unfinished_line) {
      list.unfinished_ = mark;
    } else {
      list.marks_[ino] = mark;
    }
  }
  return list;
}

Status EmptiedFiles::add(store::Medium& medium, std::span<const std::uint64_t> inos, FileTime mark,
                         const std::function<bool(std::uint64_t ino)>& exists) {
  std::erase_if(marks_, [&](const auto& entry) { return !exists(entry.first); });
  for (const auto ino : inos) {
    marks_[ino] = mark.seconds;
  }
  unfinished_ = mark.seconds;
  return write(medium);
}

Status EmptiedFiles::finish(store::Medium& medium) {
  unfinished_ = 0;
  return write(medium);
}

std::vector<std::uint64_t> EmptiedFiles::unfinished() const {
  std::vector<std::uint64_t> inos;
  for (const auto& [ino, mark] : marks_) {
    if (unfinished_ != 0 && mark == unfinished_) {
      inos.push_back(ino);
    }
  }
  return inos;
}

Status EmptiedFiles::write(store::Medium& medium) const {
  std::string text =
      unfinished_ == 0 ? ""
                       : std::to_string(unfinished_line) + " " + std::to_string(unfinished_) + "\n";
  for (const auto& [ino, mark] : marks_) {
    text += std::to_string(ino) + " " + std::to_string(mark) + "\n";
  }
  EFS_TRY(medium.remove(new_name));
  const auto file = medium.create(new_name);
  if (!file) {
    return std::unexpected(file.error());
  }
  EFS_TRY((*file)->allocate(text.size()));
  const auto mapped = (*file)->map(0, text.size());
  if (!mapped) {
    return std::unexpected(mapped.error());
  }
  (*file)->store(*mapped, std::as_bytes(std::span(text)));
  (*file)->drain();
  EFS_TRY((*file)->sync());
  EFS_TRY(medium.rename(new_name, list_name));
  return medium.sync_names();
}

FileTime EmptiedFiles::unfinished_mark() const {
  FileTime mark;
  mark.seconds = unfinished_;
  return mark;
}

std::vector<std::uint64_t> EmptiedFiles::inodes() const {
  std::vector<std::uint64_t> inos;
  for (const auto& [ino, mark] : marks_) {
    inos.push_back(ino);
  }
  return inos;
}

bool EmptiedFiles::contains(std::uint64_t ino, const struct stat& attributes) const {
  const auto entry = marks_.find(ino);
  return entry != marks_.end() && attributes.st_size == 0 &&
         (entry->second == unfinished_ ||
          (attributes.st_mtim.tv_sec == entry->second && attributes.st_mtim.tv_nsec == 0));
}

}  // namespace efs::fs
