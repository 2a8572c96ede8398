#include "stage/merge.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace efs::stage {
namespace {

constexpr unsigned no_replace = 1;  // of renameat2(2)
constexpr auto longest_wait_for_lock = std::chrono::seconds(2);
constexpr const char* conflict_text = "another node or run of the job has brought out a different file under this name; this one is kept in the buffer only";

int rename2(int at, const std::string& from, const std::string& to, unsigned flags) {
  return static_cast<int>(::syscall(SYS_renameat2, at, from.c_str(), at, to.c_str(), flags));
}

bool is_unsupported(int code) { return code == EINVAL || code == ENOSYS || code == EOPNOTSUPP; }

Result<bool> same_link(int at, const std::string& a, const std::string& b) {
  std::array<char, PATH_MAX> first{}, second{};
  const ssize_t n = ::readlinkat(at, a.c_str(), first.data(), first.size()), m = ::readlinkat(at, b.c_str(), second.data(), second.size());
  if (n < 0 || m < 0) return fail_errno("comparing it with another node's");
  return n == m && std::memcmp(first.data(), second.data(), static_cast<std::size_t>(n)) == 0;
}

Result<bool> same_bytes(int at, const std::string& a, const std::string& b) {
  const UniqueFd first(::openat(at, a.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)), second(::openat(at, b.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!first || !second) return fail_errno("comparing it with another node's");
  std::vector<char> left(1u << 20), right(left.size());
  for (off_t offset = 0;;) {
    const ssize_t n = ::pread(first.get(), left.data(), left.size(), offset), m = ::pread(second.get(), right.data(), right.size(), offset);
    if (n < 0 || m < 0) return fail_errno("comparing it with another node's");
    if (n != m || std::memcmp(left.data(), right.data(), static_cast<std::size_t>(n)) != 0) return false;
    if (n == 0) return true;
    offset += n;
  }
}

Result<bool> same_content(int at, const std::string& a, const std::string& b) {
  struct stat first {}, second {};
  if (::fstatat(at, a.c_str(), &first, AT_SYMLINK_NOFOLLOW) != 0 || ::fstatat(at, b.c_str(), &second, AT_SYMLINK_NOFOLLOW) != 0) return fail_errno("comparing it with another node's");
  if ((first.st_mode & S_IFMT) != (second.st_mode & S_IFMT)) return false;
  if (S_ISLNK(first.st_mode)) return same_link(at, a, b);
  return S_ISREG(first.st_mode) && first.st_size == second.st_size ? same_bytes(at, a, b) : Result<bool>(false);
}

// Nothing has the name. EEXIST where somebody was faster.
Status give_new_name(int at, const std::string& from, const std::string& to) {
  if (rename2(at, from, to, no_replace) == 0) return {};
  if (!is_unsupported(errno)) return fail_errno();
  // A link never replaces anything, on any file system that has links.
  if (::linkat(at, from.c_str(), at, to.c_str(), 0) == 0) return ::unlinkat(at, from.c_str(), 0) == 0 ? Status{} : Status(fail_errno());
  if (errno == EEXIST) return fail_errno();
  return ::renameat(at, from.c_str(), at, to.c_str()) == 0 ? Status{} : Status(fail_errno());
}

bool is_file(int at, const std::string& name, const struct stat& seen) {
  struct stat now {};
  return ::fstatat(at, name.c_str(), &now, AT_SYMLINK_NOFOLLOW) == 0 && now.st_ino == seen.st_ino && now.st_dev == seen.st_dev;
}

// Nothing has the name, or not for long: a removal takes the file's last link before its name.
bool is_going(int at, const std::string& name) {
  struct stat now {};
  return ::fstatat(at, name.c_str(), &now, AT_SYMLINK_NOFOLLOW) != 0 ? errno == ENOENT : now.st_nlink == 0;
}

// Only who holds the lock of an old file takes its name from it, so that of several nodes that saw it one does. A node holds
// it for two calls; who may read the file (a viewer, a stranger) can hold it for ever, and is not waited for.
UniqueFd locked(int at, const std::string& name) {
  UniqueFd old(::openat(at, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  const auto end = std::chrono::steady_clock::now() + longest_wait_for_lock;
  while (old && ::flock(old.get(), LOCK_EX | LOCK_NB) != 0 && (errno == EINTR || errno == EWOULDBLOCK) && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return old;
}

// An old file has the name. EEXIST where it was replaced since it was seen. Without its lock (the PFS keeps none, or somebody
// else has it) a moment between the look and the rename remains.
Status replace(int at, const std::string& from, const std::string& to, const struct stat& seen) {
  const UniqueFd old = locked(at, to);
  if (!is_file(at, to, seen)) return fail(EEXIST);
  return ::renameat(at, from.c_str(), at, to.c_str()) == 0 ? Status{} : Status(fail_errno());
}

}  // namespace

Status rename_merging(int at, const std::string& from, const std::string& to, Nanoseconds since) {
  const auto end = std::chrono::steady_clock::now() + longest_wait_for_lock;
  while (true) {
    struct stat there {};
    const bool exists = ::fstatat(at, to.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0;
    if (!exists && errno != ENOENT) return fail_errno();
    if (!exists || to_ns(there.st_ctim) < since) {
      const Status done = exists ? replace(at, from, to, there) : give_new_name(at, from, to);
      if (done || done.error().code != EEXIST) return done;
    }
    const auto same = same_content(at, from, to);
    // Removed meanwhile, by a node whose job had no more use for it: the file is seen for a moment longer, with a new ctime,
    // and ours must not be given up for it.
    if (is_going(at, to)) {
      if (std::chrono::steady_clock::now() >= end) return fail(EAGAIN, "another node of the job is removing a file of this name; this one is kept in the buffer only");
      std::this_thread::yield();
      continue;
    }
    if (!same) return std::unexpected(same.error());
    if (!*same) return fail(EEXIST, conflict_text);
    return ::unlinkat(at, from.c_str(), 0) == 0 ? Status{} : Status(fail_errno());
  }
}

std::vector<fs::Origin> saved_copies(std::span<const fs::WalkItem> items) {
  std::vector<fs::Origin> copies;
  for (const auto& item : items)
    if (item.saved) copies.push_back(*item.saved);
  return copies;
}

Status remove_merging(int at, const std::string& name, const struct stat& seen) {
  const UniqueFd old = locked(at, name);
  if (struct stat now {}; ::fstatat(at, name.c_str(), &now, AT_SYMLINK_NOFOLLOW) != 0) return fail_errno();
  if (!is_file(at, name, seen)) return fail(EEXIST, "another node of the job has brought out a file under this name; it stays");
  return ::unlinkat(at, name.c_str(), 0) == 0 ? Status{} : Status(fail_errno());
}

Result<Nanoseconds> pfs_now(const std::string& directory) {
  std::string name = directory + "/.efs-clock-XXXXXX";
  const UniqueFd fd(::mkostemp(name.data(), O_CLOEXEC));
  struct stat st {};
  if (!fd) return fail_errno("results-dir " + directory);
  const bool known = ::fstat(fd.get(), &st) == 0;
  ::unlink(name.c_str());
  if (!known) return fail_errno("results-dir " + directory);
  return to_ns(st.st_ctim);
}

}  // namespace efs::stage
