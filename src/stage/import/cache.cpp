// SPDX-License-Identifier: BSD-3-Clause
#include "stage/import/cache.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <string_view>
#include <thread>

#include "backends/container_file.hpp"
#include "base/boot.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "fs/seal.hpp"
#include "stage/copy/transfer.hpp"

namespace efs::stage {
namespace {

constexpr const char* state_name = "state";
constexpr std::size_t longest_entry = 64U << 10U;
constexpr std::uint64_t copy_chunk = 2U << 20U;

std::uint64_t bytes_of(const struct stat& file) {
  return static_cast<std::uint64_t>(file.st_blocks) * 512;
}

std::string by_descriptor(int fd) {
  return "/proc/self/fd/" + std::to_string(fd);
}

Status link_open_file(int fd, int directory, const std::string& name) {
  return ::linkat(AT_FDCWD, by_descriptor(fd).c_str(), directory, name.c_str(),
                  AT_SYMLINK_FOLLOW) == 0
             ? Status{}
             : fail_errno("linking " + name);
}

/// A file of the cache, which may be on a disk.
std::shared_ptr<Container> container_of(UniqueFd file) {
  return std::make_shared<ContainerFile>(std::move(file), nullptr, false, true);
}

// Uses the fine clock: the kernel's own time stamps do not distinguish events within a few
// milliseconds.
void record_use(int directory, const std::string& name) {
  const std::array<timespec, 2> now{to_timespec(wall_time()), to_timespec(wall_time())};
  (void)::utimensat(directory, (name + std::string(key_suffix)).c_str(), now.data(),
                    AT_SYMLINK_NOFOLLOW);
}

/// True if the container is sealed and has the stamp that the entry records.
bool is_as_offered(const struct stat& container, const CacheEntry& entry) {
  return is_sealed(container) && container.st_uid == ::geteuid() &&
         static_cast<std::uint64_t>(container.st_size) == entry.key.version.size &&
         to_ns(container.st_mtim) == entry.held;
}

std::vector<std::string> names_in(int directory) {
  std::vector<std::string> names;
  UniqueFd fd(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, int (*)(DIR*)> open(fd ? ::fdopendir(fd.get()) : nullptr, ::closedir);
  if (open) {
    (void)fd.release();
  }
  while (const dirent* entry = open ? ::readdir(open.get()) : nullptr) {
    names.emplace_back(entry->d_name);
  }
  return names;
}

}  // namespace

/// Lets one thread of all processes use the cache at a time. Held briefly: long work is done before
/// or after.
class Cache::Lock {
 public:
  static Result<Lock> take(int directory) {
    Lock lock;
    lock.directory_ = directory;
    lock.state_.reset(::openat(directory, state_name,
                               O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
    if (!lock.state_) {
      return fail_errno(state_name);
    }
    // A stopped process that holds the lock must not stop all others.
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    for (auto pause = std::chrono::microseconds(50);
         ::flock(lock.state_.get(), LOCK_EX | LOCK_NB) != 0;
         pause = std::min(2 * pause, std::chrono::microseconds(5000))) {
      if (std::chrono::steady_clock::now() > end) {
        return fail(ETIMEDOUT, "the cache is locked by another process");
      }
      std::this_thread::sleep_for(pause);
    }
    if (!lock.read()) {
      lock.start_anew();
    }
    lock.before_ = lock.used;
    return lock;
  }

  Lock(Lock&&) = default;

  ~Lock() {
    if (state_ && used != before_) {
      write();
    }
  }

  // bytes of all entries; inexact after the death of a process until the next scan
  std::uint64_t used = 0;

 private:
  Lock() = default;

  bool read() {
    std::array<char, 128> text{};
    std::array<char, 64> boot{};
    if (::pread(state_.get(), text.data(), text.size() - 1, 0) <= 0) {
      return false;
    }
    return std::sscanf(text.data(), "efs-cache 1 boot %63s used %" SCNu64, boot.data(), &used) ==
               2 &&
           boot_id() == boot.data();
  }

  /// The state is new, of another boot, or of another version of the format.
  void start_anew() {
    for (const auto& name : names_in(directory_)) {
      const std::string_view entry = std::string_view(name).substr(
          0, name.ends_with(key_suffix) ? name.size() - key_suffix.size() : name.size());
      if (is_entry_name(entry)) {
        ::unlinkat(directory_, name.c_str(), 0);
      }
    }
    used = 0;
    write();
  }

  void write() {
    std::array<char, 128> text{};
    const int length =
        std::snprintf(text.data(), text.size(), "efs-cache 1 boot %s used %020" PRIu64 "\n",
                      boot_id().c_str(), used);
    (void)!::pwrite(state_.get(), text.data(), static_cast<std::size_t>(length), 0);
  }

  int directory_ = -1;
  std::uint64_t before_ = 0;
  UniqueFd state_;
};

Result<std::unique_ptr<Cache>> Cache::open(const std::string& base,
                                           std::optional<std::uint64_t> capacity, bool make) {
  const std::string name = "efs-cache-" + std::to_string(::geteuid()),
                    path = (base == "/" ? "" : base) + "/" + name;
  const UniqueFd parent(::open(base.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!parent) {
    return fail_errno("cache " + base);
  }
  if (make && ::mkdirat(parent.get(), name.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail_errno("cannot make the cache " + path);
  }
  auto directory = open_own(parent.get(), name, path);
  if (!directory) {
    return std::unexpected(directory.error());
  }
  struct statvfs fs{};
  if (::fstatvfs(directory->get(), &fs) != 0) {
    return fail_errno("cache " + path);
  }
  return std::unique_ptr<Cache>(
      new Cache(std::move(*directory), path, capacity.value_or(fs.f_blocks * fs.f_frsize / 2)));
}

/// Opens the directory of the cache, which no other user may own or enter.
Result<UniqueFd> Cache::open_own(int parent, const std::string& name, const std::string& path) {
  UniqueFd directory(
      ::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat st{};
  if (!directory || ::fstat(directory.get(), &st) != 0) {
    return fail_errno("cache " + path);
  }
  if (st.st_uid != ::geteuid() || (st.st_mode & 077) != 0) {
    return fail(EPERM, "cache " + path + " is there and is not this user's own");
  }
  return directory;
}

std::optional<CacheEntry> Cache::read_entry(const std::string& name) const {
  const UniqueFd fd(::openat(directory_.get(), (name + std::string(key_suffix)).c_str(),
                             O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd) {
    return std::nullopt;
  }
  std::string text(longest_entry, '\0');
  const ssize_t got = ::pread(fd.get(), text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return parse_entry(text);
}

std::optional<Cache::Found> Cache::find(const CacheKey& key,
                                        const std::function<bool(Container&)>& adopt) {
  const MutexLock turn(turn_);
  auto lock = Lock::take(directory_.get());
  if (!lock) {
    return std::nullopt;
  }
  const std::string name = entry_name(key.path);
  const auto entry = read_entry(name);
  // of another version: the next offer replaces it
  if (!entry || entry->key != key) {
    return std::nullopt;
  }
  UniqueFd file(
      ::openat(directory_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat st{};
  if (!file || ::fstat(file.get(), &st) != 0 || !is_as_offered(st, *entry)) {
    log::warn("event=cache_damaged path=\"{}\" action=\"dropped\"", key.path);
    drop(*lock, name);
    return std::nullopt;
  }
  Found found{.container = container_of(std::move(file))};
  record_use(directory_.get(), name);
  found.adopted = st.st_nlink == 1 && adopt(*found.container);
  return found;
}

bool Cache::still_whole(Container& cached) {
  const auto now = cached.attributes();
  return now && is_sealed(*now);
}

Status Cache::offer(const CacheKey& key, Container& container, Nanoseconds read_from) {
  if (key.version.ctime > read_from - settling) {
    return fail(EAGAIN, "changed on the PFS less than two seconds before it was read");
  }
  const auto st = container.attributes();
  if (!st) {
    return with_context(st.error(), "container");
  }
  if (bytes_of(*st) > capacity_) {
    return fail(EFBIG, "is larger than the cache, which takes " + format_bytes(capacity_));
  }
  const Status done = container.descriptor() ? publish(key, container) : fail(EXDEV);
  if (done || done.error().code != EXDEV) {
    return done;
  }
  const auto copy = copy_of(container);
  return copy ? publish(key, **copy) : std::unexpected(copy.error());
}

Status Cache::publish(const CacheKey& key, Container& container) {
  // Before the name: every named container of the cache is sealed. A needless seal costs one check
  // at the first write.
  EFS_TRY(seal(container));
  const auto st = container.attributes();
  if (!st) {
    return with_context(st.error(), "container");
  }
  const MutexLock turn(turn_);
  auto lock = Lock::take(directory_.get());
  if (!lock) {
    return std::unexpected(lock.error());
  }
  const std::string name = entry_name(key.path);
  drop(*lock, name);
  make_room(*lock, bytes_of(*st));
  return add(*lock, name, format_entry({.key = key, .held = to_ns(st->st_mtim)}), container);
}

// The container first: without its text it is not an entry.
Status Cache::add(Lock& lock, const std::string& name, const std::string& text,
                  Container& container) {
  const UniqueFd file(::openat(directory_.get(), ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  if (!file ||
      ::pwrite(file.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    return fail_errno("cache entry");
  }
  EFS_TRY(link_open_file(container.descriptor().value_or(-1), directory_.get(), name));
  if (auto linked = link_open_file(file.get(), directory_.get(), name + std::string(key_suffix));
      !linked) {
    ::unlinkat(directory_.get(), name.c_str(), 0);
    return linked;
  }
  if (const auto st = container.attributes()) {
    lock.used += bytes_of(*st);
  }
  record_use(directory_.get(), name);
  return {};
}

// The text first, for the same reason.
void Cache::drop(Lock& lock, const std::string& name) {
  struct stat st{};
  ::unlinkat(directory_.get(), (name + std::string(key_suffix)).c_str(), 0);
  if (::fstatat(directory_.get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
    return;
  }
  if (::unlinkat(directory_.get(), name.c_str(), 0) == 0) {
    lock.used -= std::min(lock.used, bytes_of(st));
  }
}

// Recounts, and removes incomplete entries.
std::vector<CachedFile> Cache::scan(Lock& lock) {
  std::vector<CachedFile> files;
  std::uint64_t used = 0;
  for (const auto& name : names_in(directory_.get())) {
    const bool is_text = name.ends_with(key_suffix);
    const std::string entry = is_text ? name.substr(0, name.size() - key_suffix.size()) : name;
    if (!is_entry_name(entry)) {
      continue;
    }
    struct stat data{}, text{};
    const bool whole =
        ::fstatat(directory_.get(), entry.c_str(), &data, AT_SYMLINK_NOFOLLOW) == 0 &&
        ::fstatat(directory_.get(), (entry + std::string(key_suffix)).c_str(), &text,
                  AT_SYMLINK_NOFOLLOW) == 0;
    if (!whole) {
      ::unlinkat(directory_.get(), name.c_str(), 0);
    }
    if (!whole || is_text) {
      continue;
    }
    used += bytes_of(data);
    files.push_back({.key = {},
                     .name = entry,
                     .bytes = bytes_of(data),
                     .used = text.st_mtim,
                     .in_use = data.st_nlink > 1});
  }
  std::ranges::sort(files, {}, &CachedFile::used);
  // only after all are counted: with too low a count the cache would exceed its capacity
  lock.used = used;
  return files;
}

void Cache::make_room(Lock& lock, std::uint64_t bytes) {
  if (lock.used + bytes <= capacity_) {
    return;
  }
  const auto files = scan(lock);
  // Frees more than needed, so that a cache full of small files is not scanned for each new one.
  const std::uint64_t spare = files.size() > 64 ? capacity_ / 16 : 0;
  for (const auto& file : files) {
    if (lock.used + bytes + spare <= capacity_) {
      break;
    }
    drop(lock, file.name);
  }
}

Result<std::shared_ptr<Container>> Cache::copy_of(Container& container) const {
  const auto st = container.attributes();
  struct statvfs fs{};
  if (!st || ::fstatvfs(directory_.get(), &fs) != 0) {
    return st ? fail_errno("cache") : with_context(st.error(), "container");
  }
  // Leaves space of the file system to others.
  if (fs.f_bavail * fs.f_frsize < bytes_of(*st) + fs.f_blocks * fs.f_frsize / 16) {
    return fail(ENOSPC, "the file system of the cache is almost full");
  }
  UniqueFd file(::openat(directory_.get(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!file) {
    return fail_errno("cache entry");
  }
  auto copy = container_of(std::move(file));
  Scratch scratch(copy_chunk);
  Progress unseen;
  EFS_TRY(copy_content(container, *copy, scratch, unseen));
  if (auto done = copy->set_times(st->st_atim, st->st_mtim); !done) {
    return with_context(done.error(), "cache entry");
  }
  return copy;
}

bool Cache::has(const std::string& name, const struct stat& container) const {
  struct stat st{};
  return ::fstatat(directory_.get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
         st.st_ino == container.st_ino && st.st_dev == container.st_dev;
}

void Cache::part(Container& container, const std::string& path) {
  const std::string name = entry_name(path);
  const auto st = container.attributes();
  if (!st || !container.descriptor() || !has(name, *st)) {
    return;  // no longer in the cache
  }
  auto copy = copy_of(container);
  Status kept = copy ? seal(**copy) : std::unexpected(copy.error());
  const MutexLock turn(turn_);
  auto lock = Lock::take(directory_.get());
  if (!lock) {
    return log::warn("event=cache_parted path=\"{}\" kept=no reason=\"{}\"", path,
                     describe(lock.error()));
  }
  const auto entry = read_entry(name);
  if (!has(name, *st)) {
    return;  // no longer in the cache
  }
  drop(*lock, name);
  if (!entry) {
    return;
  }
  if (kept) {
    kept = add(*lock, name, format_entry(*entry), **copy);
  }
  log::info("event=cache_parted path=\"{}\" bytes={} kept={} reason=\"{}\"", path, st->st_size,
            kept ? "yes" : "no", kept ? "" : describe(kept.error()));
}

Result<std::vector<CachedFile>> Cache::list() {
  const MutexLock turn(turn_);
  auto lock = Lock::take(directory_.get());
  if (!lock) {
    return fail(lock.error().code, path_ + ": " + describe(lock.error()));
  }
  auto files = scan(*lock);
  std::erase_if(files, [&](CachedFile& file) {
    auto entry = read_entry(file.name);
    if (entry) {
      file.key = std::move(entry->key);
    } else {
      drop(*lock, file.name);
    }
    return !entry;
  });
  return files;
}

std::uint64_t Cache::idle_bytes(dev_t device) {
  const MutexLock turn(turn_);
  struct stat st{};
  auto lock = Lock::take(directory_.get());
  if (!lock || ::fstat(directory_.get(), &st) != 0 || st.st_dev != device) {
    return 0;
  }
  std::uint64_t sum = 0;
  for (const auto& file : scan(*lock)) {
    sum += file.in_use ? 0 : file.bytes;
  }
  return sum;
}

void Cache::free_space(std::uint64_t bytes) {
  const MutexLock turn(turn_);
  auto lock = Lock::take(directory_.get());
  if (!lock) {
    return;
  }
  std::uint64_t given = 0;
  for (const auto& file : scan(*lock)) {
    if (given >= bytes) {
      break;
    }
    if (file.in_use) {
      continue;
    }
    drop(*lock, file.name);
    given += file.bytes;
  }
}

Result<Cache::Removed> Cache::remove(const std::function<bool(const CachedFile&)>& chosen) {
  auto files = list();
  if (!files) {
    return std::unexpected(files.error());
  }
  const MutexLock turn(turn_);
  auto lock = Lock::take(directory_.get());
  if (!lock) {
    return fail(lock.error().code, path_ + ": " + describe(lock.error()));
  }
  Removed removed;
  for (const auto& file : *files) {
    if (!chosen(file)) {
      continue;
    }
    drop(*lock, file.name);
    ++removed.files;
    removed.bytes += file.bytes;
  }
  return removed;
}

Status copy_content(Container& from, Container& to, Scratch& scratch, Progress& progress) {
  const auto st = from.attributes();
  if (!st) {
    return with_context(st.error(), "container");
  }
  const auto size = static_cast<std::uint64_t>(st->st_size);
  if (size == 0) {
    return {};
  }
  if (to.clone(from)) {
    progress.bytes_done += std::min(size, bytes_of(*st));
    return {};
  }
  const ContainerContent source(from), destination(to);
  const CopyJob job{
      .source = source, .destination = destination, .size = size, .allocated = bytes_of(*st)};
  return copy_data(job, scratch, nullptr, progress);
}

}  // namespace efs::stage
