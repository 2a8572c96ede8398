// SPDX-License-Identifier: BSD-3-Clause
#include "objects/leftovers.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <thread>

#include "objects/name.hpp"

namespace efs::objects {

namespace {

constexpr int attempts = 100;
constexpr int deepest = 2 * max_depth;
// Another user who may read a directory can hold its lock for ever.
constexpr std::chrono::seconds longest_wait(3);
constexpr std::chrono::milliseconds pause(5);
// Drafts of other nodes and of earlier boots: their locks may not be visible here.
constexpr std::time_t oldest_foreign = std::time_t{7} * 24 * 3600;

enum class Lock { owned, busy, missing };

/// Locks an open draft without waiting. `missing`: the file system has no flock.
Lock lock(int fd) {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR) {
      return errno == EWOULDBLOCK ? Lock::busy : Lock::missing;
    }
  }
  return Lock::owned;
}

/// Opens a directory once more, for a lock of its own: calls that create or remove draft
/// directories in it exclude one another by that.
Fd open_entries(int directory) {
  return Fd(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

/// Waits for the lock of the entries. Without flock, and after the longest wait, the result is not
/// locked.
Fd lock_entries(int directory) {
  Fd fd = open_entries(directory);
  const auto end = std::chrono::steady_clock::now() + longest_wait;
  while (fd && lock(fd.get()) == Lock::busy && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(pause);
  }
  return fd;
}

/// Returns true if the lock of the draft tells nothing, and the draft is not old.
bool may_live_elsewhere(int fd, const std::string& name) {
  struct stat status{};
  return !is_of_this_node(name) &&
         (::fstat(fd, &status) != 0 || std::time(nullptr) - status.st_mtime < oldest_foreign);
}

void empty_directory(int directory, int depth) {
  const auto entries = list(directory);
  if (!entries) {
    return;
  }
  for (const Listed& entry : *entries) {
    if (entry.directory) {
      remove_tree(directory, entry.name, depth + 1);
    } else {
      ::unlinkat(directory, entry.name.c_str(), 0);
    }
  }
}

/// Removes a join file whose draft is gone.
void remove_join_file(int at, const std::string& name) {
  struct stat status{};
  const std::string draft = draft_name(token_of(name));
  if (::fstatat(at, draft.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT) {
    remove_abandoned(at, name, false);
  }
}

/// remove_abandoned() while the entries are locked.
bool remove_unowned(int at, const std::string& name, bool directory) {
  const int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (directory ? O_DIRECTORY : 0);
  const Fd fd(::openat(at, name.c_str(), flags));
  if (!fd) {
    return errno == ENOENT;
  }
  // Without flock no file system can tell that the owner is dead: such drafts stay.
  if (lock(fd.get()) != Lock::owned || may_live_elsewhere(fd.get(), name)) {
    return false;
  }
  if (!is_named(fd.get(), at, name)) {
    return true;  // published or removed since the open
  }
  if (!directory) {
    return ::unlinkat(at, name.c_str(), 0) == 0;
  }
  empty_directory(fd.get(), 0);
  return ::unlinkat(at, name.c_str(), AT_REMOVEDIR) == 0;
}

}  // namespace

bool is_named(int fd, int at, const std::string& name) {
  struct stat opened{};
  struct stat named{};
  return ::fstat(fd, &opened) == 0 &&
         ::fstatat(at, name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

Result<DraftFile> create_draft(int directory) {
  for (int attempt = 0; attempt < attempts; ++attempt) {
    auto name = new_draft_name();
    if (!name) {
      return std::unexpected(std::move(name.error()));
    }
    Fd fd(::openat(directory, name->c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!fd && errno != EEXIST) {
      return fail(errno);
    }
    // An eo_open of another process may have removed the draft before it was locked.
    if (fd && lock(fd.get()) != Lock::busy && is_named(fd.get(), directory, *name)) {
      return DraftFile{std::move(fd), std::move(*name)};
    }
  }
  return fail(EAGAIN, "other processes remove each new draft");
}

Result<Fd> create_draft_directory(int at, const std::string& name) {
  // A sweep that removes the draft of a dead process, or one that was not yet locked, would look
  // like a process that writes this version.
  const Fd entries = lock_entries(at);
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const bool made = ::mkdirat(at, name.c_str(), 0700) == 0;
    if (!made && errno != EEXIST) {
      return fail(errno);
    }
    if (!made) {
      if (!remove_unowned(at, name, true)) {
        return fail(EBUSY, "another process writes this version, or its draft cannot be removed",
                    "Wait for that process or choose another number");
      }
      continue;
    }
    auto fd = open_directory(at, name);
    if (fd && lock(fd->get()) != Lock::busy && is_named(fd->get(), at, name)) {
      return fd;
    }
  }
  return fail(EAGAIN, "other processes remove each new draft");
}

bool remove_abandoned(int at, const std::string& name, bool directory) {
  // Without waiting: the owner of a version that is swept holds the lock of its directory.
  const Fd entries = directory ? open_entries(at) : Fd();
  if (entries && lock(entries.get()) == Lock::busy) {
    return false;
  }
  return remove_unowned(at, name, directory);
}

void sweep(int directory, int depth) {
  const auto entries = list(directory);
  if (!entries || depth > max_depth) {
    return;
  }
  for (const Listed& entry : *entries) {
    if ((entry.file && is_draft(entry.name)) ||
        (entry.directory && (is_version_draft(entry.name) || is_draft(entry.name)))) {
      remove_abandoned(directory, entry.name, entry.directory);
    } else if (entry.directory && is_component(entry.name)) {
      if (const auto below = open_directory(directory, entry.name)) {
        sweep(below->get(), depth + 1);
      }
    }
  }
  for (const Listed& entry : *entries) {
    if (entry.file && is_join_file(entry.name)) {
      remove_join_file(directory, entry.name);
    }
  }
}

void remove_tree(int at, const std::string& name, int depth) {
  if (depth > deepest) {
    return;
  }
  if (const auto fd = open_directory(at, name)) {
    empty_directory(fd->get(), depth);
  }
  ::unlinkat(at, name.c_str(), AT_REMOVEDIR);
}

}  // namespace efs::objects
