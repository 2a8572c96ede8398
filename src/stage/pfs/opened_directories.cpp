// SPDX-License-Identifier: BSD-3-Clause
#include "stage/pfs/opened_directories.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <string_view>
#include <utility>

#include "base/log.hpp"

namespace efs::stage {
namespace {

constexpr std::string_view closed = "----";
constexpr std::size_t mode_digits = 4;
constexpr off_t longest_file = 64 << 20;  // far above the size of any valid file

std::string record_of(std::string_view mode, const std::string& path) {
  return std::string(mode) + " " + path + '\0';
}

std::string octal(mode_t mode) {
  std::array<char, 8> text{};
  (void)std::snprintf(text.data(), text.size(), "%04o", mode & 07777U);
  return text.data();
}

struct OpenedRecord {
  std::string path;
  std::optional<mode_t> mode;  // nullopt: restored
};

// nullopt if it is no valid record.
std::optional<OpenedRecord> parsed(std::string_view record) {
  const auto mode = record.substr(0, mode_digits);
  if (record.size() < mode_digits + 2 || record[mode_digits] != ' ' ||
      record[mode_digits + 1] != '/') {
    return std::nullopt;
  }
  std::string path(record.substr(mode_digits + 1));
  if (mode == closed) {
    return OpenedRecord{.path = std::move(path), .mode = std::nullopt};
  }
  if (mode.find_first_not_of("01234567") != mode.npos) {
    return std::nullopt;
  }
  return OpenedRecord{.path = std::move(path),
                      .mode = static_cast<mode_t>(std::stoul(std::string(mode), nullptr, 8))};
}

std::string read_all(int fd) {
  struct stat st{};
  if (::fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > longest_file) {
    return {};
  }
  std::string text(static_cast<std::size_t>(st.st_size), '\0');
  const ssize_t n = ::pread(fd, text.data(), text.size(), 0);
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return text;
}

}  // namespace

std::unique_ptr<OpenedDirectories> OpenedDirectories::open(int metadata) {
  std::unique_ptr<OpenedDirectories> opened(new OpenedDirectories(metadata));
  opened->load();
  return opened;
}

void OpenedDirectories::load() {
  const MutexLock lock(mutex_);
  file_.reset(::openat(metadata_, opened_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  const UniqueFd unwritable(
      file_ ? -1
            : ::openat(metadata_, opened_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file_ && !unwritable) {
    return;
  }
  const std::string text = read_all(file_ ? file_.get() : unwritable.get());
  std::size_t at = 0;
  for (std::size_t nul = 0; (nul = text.find('\0', at)) != text.npos; at = nul + 1) {
    const auto record = parsed(std::string_view(text).substr(at, nul - at));
    if (!record) {
      break;
    }
    if (record->mode) {
      opened_[record->path] = *record->mode;
    } else {
      opened_.erase(record->path);
    }
  }
  end_ = static_cast<off_t>(at);
  from_before_ = opened_;
}

Status OpenedDirectories::append(const std::string& record) {
  if (!file_) {
    file_.reset(::openat(metadata_, opened_name,
                         O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  }
  if (!file_) {
    return fail_errno(std::string("meta/") + opened_name);
  }
  const ssize_t n = ::pwrite(file_.get(), record.data(), record.size(), end_);
  if (n < 0) {
    return fail_errno(std::string("meta/") + opened_name);
  }
  if (static_cast<std::size_t>(n) != record.size()) {
    return fail(ENOSPC, std::string("meta/") + opened_name);
  }
  end_ += n;
  return {};
}

Status OpenedDirectories::note(const std::string& path, mode_t mode) {
  const MutexLock lock(mutex_);
  opened_[path] = mode & 07777U;
  EFS_TRY(append(record_of(octal(mode), path)));
  if (::fdatasync(file_.get()) != 0 || ::fsync(metadata_) != 0) {
    return fail_errno(std::string("meta/") + opened_name);
  }
  return {};
}

void OpenedDirectories::done(const std::string& path) {
  const MutexLock lock(mutex_);
  if (opened_.erase(path) == 0) {
    return;
  }
  from_before_.erase(path);
  Status noted;
  if (opened_.empty() && file_ && ::ftruncate(file_.get(), 0) == 0) {
    end_ = 0;
  } else {
    noted = append(record_of(closed, path));
  }
  if (!noted) {
    log::warn("event=opened_not_noted path=\"{}\" reason=\"{}\"", path, describe(noted.error()));
  }
}

void OpenedDirectories::stays_open(const std::string& path) {
  const MutexLock lock(mutex_);
  if (const auto opened = opened_.find(path); opened != opened_.end()) {
    from_before_.insert_or_assign(path, opened->second);
  }
}

bool OpenedDirectories::has_any_of_before() {
  const MutexLock lock(mutex_);
  return !from_before_.empty();
}

std::map<std::string, mode_t> OpenedDirectories::take(const std::string& directory) {
  const MutexLock lock(mutex_);
  const std::string begin = directory.ends_with('/') ? directory : directory + "/";
  std::map<std::string, mode_t> below;
  for (auto it = from_before_.lower_bound(begin);
       it != from_before_.end() && it->first.starts_with(begin); it = from_before_.erase(it)) {
    below.emplace(it->first.substr(begin.size()), it->second);
  }
  return below;
}

}  // namespace efs::stage
