// SPDX-License-Identifier: BSD-3-Clause
#include "objects/written.hpp"

#include "objects/name.hpp"
#include "objects/scanner.hpp"

namespace efs::objects {

namespace {

std::uint64_t nanoseconds(const timespec& time) {
  return static_cast<std::uint64_t>(time.tv_sec) * 1000000000U +
         static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace

Written Written::of(const struct stat& status, std::uint64_t checksum) {
  return {status.st_dev,
          status.st_ino,
          static_cast<std::uint64_t>(status.st_size),
          nanoseconds(status.st_mtim),
          nanoseconds(status.st_ctim),
          checksum};
}

void WrittenFiles::set(std::string_view name, const std::optional<Written>& written) {
  const std::scoped_lock lock(mutex_);
  files_.insert_or_assign(std::string(name), written);
  removed_.erase(std::string(name));
}

void WrittenFiles::remove(std::string_view name) {
  const std::scoped_lock lock(mutex_);
  files_.erase(std::string(name));
  removed_.emplace(name);
}

std::vector<std::string> WrittenFiles::names() {
  const std::scoped_lock lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, written] : files_) {
    if (!removed_.contains(name)) {
      names.push_back(name);
    }
  }
  return names;
}

bool WrittenFiles::has(std::string_view name) {
  const std::scoped_lock lock(mutex_);
  return files_.contains(name);
}

std::optional<std::uint64_t> WrittenFiles::checksum_of(std::string_view name, int fd) {
  struct stat now{};
  const std::scoped_lock lock(mutex_);
  const auto found = files_.find(name);
  if (found == files_.end() || !found->second || ::fstat(fd, &now) != 0) {
    return std::nullopt;
  }
  const std::uint64_t checksum = found->second->checksum;
  return *found->second == Written::of(now, checksum) ? std::optional(checksum) : std::nullopt;
}

std::string WrittenFiles::text() {
  const std::scoped_lock lock(mutex_);
  std::string text;
  for (const auto& [name, written] : files_) {
    if (written) {
      for (const std::uint64_t value : {written->device, written->inode, written->size,
                                        written->modified, written->changed, written->checksum}) {
        text += std::to_string(value) + ' ';
      }
      text += name + '\n';
    }
  }
  for (const std::string& name : removed_) {
    text += "0 0 0 0 0 0 " + name + '\n';
  }
  return text;
}

void WrittenFiles::add(std::string_view text) {
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    Scanner line(text.substr(0, end));
    Written written;
    for (std::uint64_t* value : {&written.device, &written.inode, &written.size, &written.modified,
                                 &written.changed, &written.checksum}) {
      const auto number = line.number();
      if (!number) {
        return;
      }
      *value = *number;
    }
    const std::string_view name = line.rest().substr(line.rest().empty() ? 0 : 1);
    if (!check_name(name)) {
      return;
    }
    const std::scoped_lock lock(mutex_);
    if (written.inode == 0) {
      removed_.emplace(name);
    } else {
      files_.insert_or_assign(std::string(name), written);
    }
    text.remove_prefix(end + 1);
  }
}

}  // namespace efs::objects
