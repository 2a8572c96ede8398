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
constexpr int most_looks = 2000;
constexpr const char* comparing = "comparing it with another node's";
constexpr const char* conflict_text = "another node or run of the job has brought out a different file under this name; this one is kept in the buffer only";

constexpr const char* unreadable_text = "another node or run of the job has brought out a file under this name which may not be read, so that nothing tells whether it is the same; this one is kept in the buffer only";

int rename2(int at, const std::string& from, const std::string& to, unsigned flags) {
  return static_cast<int>(::syscall(SYS_renameat2, at, from.c_str(), at, to.c_str(), flags));
}

bool is_unsupported(int code) { return code == EINVAL || code == ENOSYS || code == EOPNOTSUPP; }
bool is_without_links(int code) { return is_unsupported(code) || code == EPERM || code == EMLINK; }

Result<bool> same_link(int at, const std::string& a, const std::string& b) {
  std::array<char, PATH_MAX> first{}, second{};
  const ssize_t n = ::readlinkat(at, a.c_str(), first.data(), first.size()), m = ::readlinkat(at, b.c_str(), second.data(), second.size());
  if (n < 0 || m < 0) return fail_errno(comparing);
  return n == m && std::memcmp(first.data(), second.data(), static_cast<std::size_t>(n)) == 0;
}

Result<bool> same_file(int at, const std::string& a, const std::string& b) {
  const UniqueFd first(::openat(at, a.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)), second(::openat(at, b.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!first || !second) return fail_errno(comparing);
  const auto ours = posix_pfs().xattrs(first.get()), theirs = posix_pfs().xattrs(second.get());
  if (!ours || !theirs) return fail((ours ? theirs : ours).error().code, comparing);
  if (*ours != *theirs) return false;
  std::vector<char> left(1u << 20), right(left.size());
  for (off_t offset = 0;;) {
    const ssize_t n = ::pread(first.get(), left.data(), left.size(), offset), m = ::pread(second.get(), right.data(), right.size(), offset);
    if (n < 0 || m < 0) return fail_errno(comparing);
    if (n != m || std::memcmp(left.data(), right.data(), static_cast<std::size_t>(n)) != 0) return false;
    if (n == 0) return true;
    offset += n;
  }
}

// One that takes the other's place takes nothing away, but for its time. `first` is `a` as it was before, `second` is `b`.
Result<bool> same_content(int at, const std::string& a, const struct stat& first, const std::string& b, const struct stat& second) {
  if (first.st_mode != second.st_mode || first.st_uid != second.st_uid || first.st_gid != second.st_gid) return false;
  if (S_ISLNK(first.st_mode)) return same_link(at, a, b);
  return S_ISREG(first.st_mode) && first.st_size == second.st_size ? same_file(at, a, b) : Result<bool>(false);
}

// A comparison, or the wait for a lock, may have taken minutes: `from` must be ours still.
Status is_still(int at, const std::string& from, const struct stat& ours) {
  struct stat now {};
  if (::fstatat(at, from.c_str(), &now, AT_SYMLINK_NOFOLLOW) != 0) return fail_errno();
  return now.st_ino == ours.st_ino && now.st_dev == ours.st_dev && now.st_size == ours.st_size ? Status() : fail(ESTALE, "its partial was replaced or changed by someone else");
}

}  // namespace

// Nothing has the name. EEXIST where somebody was faster.
Status give_new_name(int at, const std::string& from, const std::string& to, const struct stat& ours) {
  EFS_TRY(is_still(at, from, ours));
  if (rename2(at, from, to, no_replace) == 0) return {};
  if (!is_unsupported(errno)) return fail_errno();
  // A link never replaces anything, on any file system that has links.
  if (::linkat(at, from.c_str(), at, to.c_str(), 0) == 0) return ::unlinkat(at, from.c_str(), 0) == 0 ? Status{} : Status(fail_errno());
  if (!is_without_links(errno)) return fail_errno();
  return ::renameat(at, from.c_str(), at, to.c_str()) == 0 ? Status{} : Status(fail_errno());
}

namespace {

// The one that was seen, and no later one with its inode. Its links may come and go, which moves its ctime.
bool is_seen(const struct stat& now, const struct stat& seen) {
  if (now.st_ino != seen.st_ino || now.st_dev != seen.st_dev) return false;
  return to_ns(now.st_ctim) == to_ns(seen.st_ctim) || (now.st_nlink != seen.st_nlink && now.st_size == seen.st_size && to_ns(now.st_mtim) == to_ns(seen.st_mtim));
}

bool is_file(int at, const std::string& name, const struct stat& seen) {
  struct stat now {};
  return ::fstatat(at, name.c_str(), &now, AT_SYMLINK_NOFOLLOW) == 0 && is_seen(now, seen);
}

// Only who holds the lock of an old file takes its name from it, so that of several nodes that saw it one does. A node holds
// it for two calls; who may read the file (a viewer, a stranger) can hold it for ever, and is not waited for.
UniqueFd locked(int at, const std::string& name) {
  // For writing if it may be: NFS has no exclusive lock of what is open for reading.
  UniqueFd old(::openat(at, name.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!old) old.reset(::openat(at, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  const auto end = std::chrono::steady_clock::now() + longest_wait_for_lock;
  while (old && ::flock(old.get(), LOCK_EX | LOCK_NB) != 0 && (errno == EINTR || errno == EWOULDBLOCK) && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return old;
}

// The file that was seen has the name. EEXIST where it was replaced since it was seen. Without its lock (the PFS keeps none, or somebody
// else has it) a moment between the look and the rename remains.
Status replace(int at, const std::string& from, const std::string& to, const struct stat& ours, const struct stat& seen) {
  const UniqueFd old = locked(at, to);
  if (!is_file(at, to, seen)) return fail(EEXIST);
  EFS_TRY(is_still(at, from, ours));
  return ::renameat(at, from.c_str(), at, to.c_str()) == 0 ? Status{} : Status(fail_errno());
}

}  // namespace

Result<Placed> rename_merging(int at, const std::string& from, const std::string& to, Nanoseconds since, const struct stat* own, const AboutToName& about_to) {
  struct stat ours {};
  if (::fstatat(at, from.c_str(), &ours, AT_SYMLINK_NOFOLLOW) != 0) return fail_errno();
  for (int look = 0; look < most_looks; ++look) {
    struct stat there {};
    const bool exists = ::fstatat(at, to.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0;
    if (!exists && errno != ENOENT) return fail_errno();
    if (exists && there.st_nlink == 0) {  // a removal takes the file's last link before its name, and moves its ctime
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    // A link whose answer the PFS lost, and which was made again; rename(2) would let both names stay.
    if (exists && there.st_ino == ours.st_ino && there.st_dev == ours.st_dev) return ::unlinkat(at, from.c_str(), 0) == 0 ? Result<Placed>(Placed::shared) : fail_errno();
    const bool is_own = exists && own != nullptr && is_seen(there, *own);
    const bool is_free = !exists || is_own || to_ns(there.st_ctim) < since;
    const auto same = is_free ? Result<bool>(true) : same_content(at, from, ours, to, there);
    if (!same || !*same) {
      if (!is_file(at, to, there)) continue;
      if (!same && same.error().code == EACCES) return fail(EEXIST, unreadable_text);
      return same ? fail(EEXIST, conflict_text) : std::unexpected(same.error());
    }
    if (about_to) about_to(!is_free);
    // Also where it is the same: the other node must not take what stands for ours as well for its own, and replace it.
    const Status done = exists ? replace(at, from, to, ours, there) : give_new_name(at, from, to, ours);
    if (done) return is_free ? Placed::ours : Placed::shared;
    if (done.error().code != EEXIST) return std::unexpected(done.error());
  }
  return fail(EAGAIN, "other nodes of the job go on removing or replacing the file of this name; this one is kept in the buffer only");
}

std::vector<fs::Origin> saved_copies(std::span<const fs::WalkItem> items) {
  std::vector<fs::Origin> copies;
  for (const auto& item : items)
    if (item.saved) copies.push_back(*item.saved);
  return copies;
}

namespace {

fs::Origin version_of(const struct stat& st, Nanoseconds ctime) {
  return {.device = st.st_dev, .inode = st.st_ino, .size = static_cast<std::uint64_t>(st.st_size), .mtime = to_ns(st.st_mtim), .ctime = ctime};
}

}  // namespace

fs::Origin copy_version(PfsIo& pfs, int at, const std::string& name, const struct stat& there) { return version_of(there, pfs.is_shared(at, name, there) ? 0 : to_ns(there.st_ctim)); }

fs::Origin coming_version(const struct stat& partial, bool is_shared) { return version_of(partial, is_shared ? 0 : fs::Origin::any_ctime); }

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
