// SPDX-License-Identifier: BSD-3-Clause
#include "backends/fsdax.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <libpmem.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ranges>
#include <span>
#include <string_view>

#include "backends/container_file.hpp"
#include "base/log.hpp"
#include "base/mount_table.hpp"
#include "base/slow_work.hpp"
#include "base/text.hpp"

namespace efs {
namespace {

constexpr unsigned fan_out = 256;  // number of directories; bounds the names in each

struct ContainerName {
  std::array<char, 24> text{};

  explicit ContainerName(std::uint64_t id) {
    write_hex(std::span(text).first(directory_digits), id % fan_out);
    text[directory_digits] = '/';
    write_hex(std::span(text).subspan(directory_digits + 1, digits), id);
  }

  operator const char*() const { return text.data(); }

  std::string_view number() const { return {text.data() + directory_digits + 1, digits}; }

 private:
  static constexpr std::size_t directory_digits = 2, digits = 16;

  static void write_hex(std::span<char> into, std::uint64_t number) {
    for (auto& digit : into | std::views::reverse) {
      digit = "0123456789abcdef"[number % 16];
      number /= 16;
    }
  }
};

struct DirectoryName {
  std::array<char, 4> text{};

  explicit DirectoryName(std::uint64_t id) {
    std::snprintf(text.data(), text.size(), "%02x", static_cast<unsigned>(id % fan_out));
  }

  operator const char*() const { return text.data(); }
};

// As the kernel lists the mount: statfs(2) does not say.
bool has_huge_pages(int directory) {
  struct stat st{};
  if (::fstat(directory, &st) != 0) {
    return false;
  }
  const std::string device =
      std::to_string(major(st.st_dev)) + ":" + std::to_string(minor(st.st_dev));
  return std::ranges::any_of(mount_table(), [&](const MountLine& line) {
    return line.device == device && (has_option(line.options, "huge=within_size") ||
                                     has_option(line.options, "huge=always"));
  });
}

class Fsdax final : public PlainBackend {
 public:
  explicit Fsdax(FsdaxOptions options)
      : options_(std::move(options)),
        probe_(probe_durability(options_.directory.get(), ::pmem_is_pmem)),
        account_(counts_bytes() ? std::make_shared<CapacityAccount>(*options_.capacity) : nullptr),
        cache_(options_.open_containers) {
    zeros_take_space_ = probe_.memory && !account_ && has_huge_pages(options_.directory.get());
  }

  Status prepare() {
    read_owner();
    if (options_.read_only) {
      return {};
    }
    for (unsigned i = 0; i < fan_out; ++i) {
      if (::mkdirat(options_.directory.get(), DirectoryName(i), 0700) != 0 && errno != EEXIST) {
        return fail_errno("container directory");
      }
    }
    if (account_) {
      account_->adjust(static_cast<std::int64_t>(scan()));
    }
    return {};
  }

  Result<std::shared_ptr<Container>> create(std::uint64_t id, CachePolicy policy) override {
    UniqueFd fd = open_file(id, O_CREAT | O_EXCL | O_RDWR);
    if (!fd && errno == ENOENT) {
      EFS_TRY(make_directory_again(id));
      fd = open_file(id, O_CREAT | O_EXCL | O_RDWR);
    }
    if (!fd) {
      return fail_errno();
    }
    if (const Status said = write_label(fd.get(), id); !said) {
      ::unlinkat(options_.directory.get(), ContainerName(id), 0);
      return std::unexpected(said.error());
    }
    std::int64_t booked = 0;  // bytes of the label, or inherited from the directory
    if (struct stat st{}; account_ && ::fstat(fd.get(), &st) == 0) {
      account_->adjust(booked = static_cast<std::int64_t>(st.st_blocks) * 512);
    }
    try {
      auto made = std::make_shared<ContainerFile>(std::move(fd), account_, probe_.maps_persistent,
                                                  durability() == Durability::page);
      if (policy != CachePolicy::kept_open) {
        return made;
      }
      return cache_.remember(id, std::move(made));
    } catch (const std::bad_alloc&) {  // no caller would remove the file
      ::unlinkat(options_.directory.get(), ContainerName(id), 0);
      if (account_) {
        account_->adjust(-booked);
      }
      throw;
    }
  }

  Result<std::shared_ptr<Container>> adopt(std::uint64_t id, Container& other) override {
    const auto file = other.descriptor();
    if (!file) {
      return fail(EXDEV);
    }
    const auto st = other.attributes();
    if (!st) {
      return std::unexpected(st.error());
    }
    const auto bytes = static_cast<std::uint64_t>(st->st_blocks) * 512;
    if (account_ && !account_->take(bytes)) {
      return fail(ENOSPC);
    }
    Status linked = link_file(id, *file);
    if (!linked && linked.error().code == ENOENT && (linked = make_directory_again(id))) {
      linked = link_file(id, *file);
    }
    if (!linked) {
      if (account_) {
        account_->adjust(-static_cast<std::int64_t>(bytes));
      }
      return std::unexpected(linked.error());
    }
    return open(id);
  }

  using Backend::open;

  Result<std::shared_ptr<Container>> open(std::uint64_t id, CachePolicy policy) override {
    if (auto known = cache_.find(id)) {
      return known;
    }
    const int mode =
        options_.read_only || policy == CachePolicy::only_read ? O_RDONLY | O_NONBLOCK : O_RDWR;
    UniqueFd fd = open_file(id, mode);
    // a file system after an error can still be read
    if (!fd && errno == EROFS) {
      fd = open_file(id, O_RDONLY | O_NONBLOCK);
    }
    if (!fd) {
      return fail_errno();
    }
    EFS_TRY(refuse_other(fd.get(), id));
    auto opened = std::make_shared<ContainerFile>(std::move(fd), account_, probe_.maps_persistent,
                                                  durability() == Durability::page);
    if (policy != CachePolicy::kept_open) {
      return opened;
    }
    return remember(id, std::move(opened));
  }

  Status label(std::uint64_t id) override {
    if (ownership(id) != Ownership::unfinished) {
      if (const auto container = open(id); !container) {
        return std::unexpected(container.error());
      }
    }
    const UniqueFd fd(
        ::openat(options_.directory.get(), ContainerName(id), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    return fd ? write_label(fd.get(), id) : fail_errno();
  }

  Ownership ownership(std::uint64_t id) override {
    if (!labels_) {
      return Ownership::own;
    }
    std::array<char, 96> text{};
    ssize_t length = 0;
    if (const auto known = cache_.find(id)) {
      length = ::fgetxattr(*known->descriptor(), label_name, text.data(), text.size());
    } else {
      const std::string path = "/proc/self/fd/" + std::to_string(options_.directory.get()) + "/" +
                               static_cast<const char*>(ContainerName(id));
      length = ::lgetxattr(path.c_str(), label_name, text.data(), text.size());
    }
    if (length >= 0) {
      return contradicts({text.data(), static_cast<std::size_t>(length)}, id) ? Ownership::another
                                                                              : Ownership::own;
    }
    if (errno == ERANGE) {
      return Ownership::another;
    }
    if (errno != ENODATA) {
      return Ownership::own;
    }
    const auto st = attributes(id);
    return st && st->st_size == 0 && !has_seal(*st) ? Ownership::unfinished : Ownership::own;
  }

  std::optional<std::uint64_t> remove(std::uint64_t id) override {
    const auto st = attributes(id);
    if (!st) {
      return 0;
    }
    const std::int64_t freed = static_cast<std::int64_t>(st->st_blocks) * 512;
    if (static_cast<std::uint64_t>(freed) > slow_copy) {
      slow_work_begins();
    }
    if (ownership(id) == Ownership::another) {
      return std::nullopt;
    }
    const int code = ::unlinkat(options_.directory.get(), ContainerName(id), 0) == 0 ? 0 : errno;
    cache_.forget(id);  // after the unlink: see remember()
    if (code != 0) {
      return code == ENOENT ? std::optional<std::uint64_t>(0) : std::nullopt;
    }
    if (account_) {
      account_->adjust(-freed);
    } else if (counts_at_times()) {
      forget_scanned(static_cast<std::uint64_t>(freed));
    }
    return static_cast<std::uint64_t>(freed);
  }

  Result<struct stat> attributes(std::uint64_t id) override {
    if (const auto known = cache_.find(id)) {
      return known->attributes();
    }
    struct stat st{};
    if (::fstatat(options_.directory.get(), ContainerName(id), &st, AT_SYMLINK_NOFOLLOW) != 0) {
      return fail_errno();
    }
    if (!S_ISREG(st.st_mode)) {
      return fail(EUCLEAN, "is no regular file");
    }
    return st;
  }

  Status set_times(std::uint64_t id, std::optional<FileTime> atime,
                   std::optional<FileTime> mtime) override {
    if (const auto known = cache_.find(id)) {
      return known->set_times(atime, mtime);
    }
    return ::utimensat(options_.directory.get(), ContainerName(id),
                       times_to_set(atime, mtime).data(), AT_SYMLINK_NOFOLLOW) == 0
               ? Status{}
               : fail_errno();
  }

  Status sync_name(std::uint64_t id) override {
    const UniqueFd fd(
        ::openat(options_.directory.get(), DirectoryName(id), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return fd && ::fsync(fd.get()) == 0 ? Status{} : fail_errno();
  }

  Status sync_all() override {
    if (probe_.maps_persistent) {
      pmem_drain();
    }
    return ::syncfs(options_.directory.get()) == 0 ? Status{} : fail_errno("containers");
  }

  Status for_each(const std::function<void(std::uint64_t id)>& visit) override {
    Status first;
    for (unsigned i = 0; i < fan_out; ++i) {
      if (const Status listed = for_each_in(i, visit); !listed && first) {
        first = listed;
      }
    }
    return first;
  }

  // fcntl(2): the kernel grants a read lease only if no process has the file open for writing, and
  // a mapping keeps its file open. The lease is released at once, so that no other open has to
  // wait.
  bool may_be_written(std::uint64_t id) override { return lease_problem(id, F_RDLCK) != 0; }

  // The kernel grants a write lease only if no other process has the file open at all.
  // A process that is being forked has all files of its parent for a moment.
  bool may_be_open(std::uint64_t id) override {
    const int problem = lease_problem(id, F_WRLCK);
    return problem == EAGAIN ? lease_problem(id, F_WRLCK) != 0 : problem != 0;
  }

  bool is_written(std::uint64_t id) override { return lease_problem(id, F_RDLCK) == EAGAIN; }

  Space space() override {
    struct statvfs fs{};
    Space space;
    if (::fstatvfs(options_.directory.get(), &fs) == 0) {
      space.capacity = fs.f_blocks * fs.f_frsize;
      space.available = fs.f_bavail * fs.f_frsize;
      space.used = space.capacity - fs.f_bfree * fs.f_frsize;
    }
    if (options_.capacity && !options_.kernel_holds_capacity) {
      space.used = account_ ? account_->used() : advisory_use();
      space.capacity = *options_.capacity;
      space.available =
          std::min(space.available, space.capacity - std::min(space.capacity, space.used));
    }
    return space;
  }

  Status admit_writer() override {
    if (!counts_at_times()) {
      return {};
    }
    return advisory_use() < *options_.capacity ? Status{} : fail(ENOSPC);
  }

  // Scanning all containers takes time.
  void look_again(bool only_if_full) override {
    if (!counts_at_times()) {
      return;
    }
    MutexLock lock(scan_mutex_);
    if (!only_if_full || scanned_ >= *options_.capacity) {
      next_scan_ = {};
    }
  }

  // syncfs(2) and sync(2) hold each inode while its pages are written back, so the kernel frees the
  // blocks of a removed file after that. A second syncfs waits for the first. It has a descriptor
  // of its own: each one is told of a failed writeback once, and sync_all() must not miss it.
  void await_removed() override {
    const UniqueFd own(::openat(options_.directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (own) {
      (void)::syncfs(own.get());
    }
  }

  Durability durability() const override { return probe_.durability(); }

  bool offers_descriptor() const override { return account_ == nullptr; }

  bool zeros_take_space() const override { return zeros_take_space_; }

  std::string description() const override {
    std::string text = options_.kind + " (" + name_of(durability());
    if (options_.capacity) {
      text += ", " + format_bytes(*options_.capacity) +
              (options_.kernel_holds_capacity || options_.strict ? " strict" : " advisory");
    }
    return text + ")";
  }

 private:
  // Link by the descriptor: the name that it was opened under may now be another file's.
  Status link_file(std::uint64_t id, int fd) {
    const std::string open_file = "/proc/self/fd/" + std::to_string(fd);
    const int done = ::linkat(AT_FDCWD, open_file.c_str(), options_.directory.get(),
                              ContainerName(id), AT_SYMLINK_FOLLOW);
    return done == 0 ? Status{} : fail_errno();
  }

  /// Recreates the directory of a container: cleaners of scratch remove empty directories. Returns
  /// EIO if the parent directory is missing too: a program would take ENOENT for a missing name.
  Status make_directory_again(std::uint64_t id) {
    const DirectoryName name(id);
    if (::mkdirat(options_.directory.get(), name, 0700) != 0 && errno != EEXIST) {
      const int code = errno == ENOENT ? EIO : errno;
      return fail(code, "the store's directory of containers has been removed");
    }
    if (!directory_told_.exchange(true)) {
      log::warn(
          "event=container_directory_made_again directory={} note=\"a program removes empty "
          "directories from the store\"",
          std::string_view(name));
    }
    return durability() == Durability::volatile_memory || ::fsync(options_.directory.get()) == 0
               ? Status{}
               : fail_errno("container directory");
  }

  // Rejects entries that cannot be opened as containers: other file types with a container's name
  // (a directory, a pipe, a link), and files in the directory of another number.
  static bool is_container(int directory, unsigned number, const dirent& entry, std::uint64_t& id) {
    const std::string_view text = entry.d_name;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), id, 16);
    if (problem != std::errc{} || end != text.data() + text.size() || id % fan_out != number ||
        ContainerName(id).number() != text) {
      return false;
    }
    struct stat st{};
    return entry.d_type == DT_REG ||
           (entry.d_type == DT_UNKNOWN &&
            ::fstatat(directory, entry.d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode));
  }

  Status for_each_in(unsigned number, const std::function<void(std::uint64_t id)>& visit) const {
    const DirectoryName name(number);
    UniqueFd fd(
        ::openat(options_.directory.get(), name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    const std::unique_ptr<DIR, int (*)(DIR*)> directory(fd ? ::fdopendir(fd.get()) : nullptr,
                                                        ::closedir);
    if (!directory) {
      return errno == ENOENT ? Status{}
                             : fail_errno(std::string("container directory ") + name.text.data());
    }
    const int listed = fd.release();  // owned by the stream
    std::uint64_t id = 0;
    errno = 0;
    for (const dirent* entry = nullptr; (entry = ::readdir(directory.get())) != nullptr;
         errno = 0) {
      if (is_container(listed, number, *entry, id)) {
        visit(id);
      }
    }
    // The caller would take an unlisted container for lost.
    return errno == 0 ? Status{}
                      : fail_errno(std::string("container directory ") + name.text.data());
  }

  // Returns 0, or the errno of the refused lease. A thread that opens the container meanwhile, for
  // writing or despite a write lease, breaks the lease, which sends a signal: SIGIO, which ends a
  // process, unless F_SETSIG names another. Processes ignore SIGURG by default.
  int lease_problem(std::uint64_t id, int lease) {
    cache_.forget(id);
    const UniqueFd fd(
        ::openat(options_.directory.get(), ContainerName(id), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    return fd && ::fcntl(fd.get(), F_SETSIG, SIGURG) == 0 &&
                   ::fcntl(fd.get(), F_SETLEASE, lease) == 0 &&
                   ::fcntl(fd.get(), F_SETLEASE, F_UNLCK) == 0
               ? 0
               : errno;
  }

  void read_owner() {
    std::array<char, 64> text{};
    const ssize_t length =
        ::readlinkat(options_.directory.get(), owner_link, text.data(), text.size());
    owner_.assign(text.data(), static_cast<std::size_t>(std::max<ssize_t>(0, length)));
    labels_ = ::fgetxattr(options_.directory.get(), label_name, nullptr, 0) >= 0;
  }

  std::string label_of(std::uint64_t id) const {
    const ContainerName name(id);
    std::string label;
    label.reserve(owner_.size() + 1 + name.number().size());
    return label.append(owner_).append("/").append(name.number());
  }

  Status write_label(int fd, std::uint64_t id) {
    if (!labels_) {
      return {};
    }
    const std::string text = label_of(id);
    return ::fsetxattr(fd, label_name, text.data(), text.size(), 0) == 0
               ? Status{}
               : fail_errno("the label of a container");
  }

  // Only a label that names another store or number contradicts. A label or store without an id
  // does not.
  bool contradicts(std::string_view label, std::uint64_t id) const {
    const std::string own = label_of(id);
    const auto number = [](std::string_view text) {
      return text.substr(std::min(text.size(), text.rfind('/')));
    };
    return number(label) != number(own) ||
           (!label.starts_with('/') && !own.starts_with('/') && label != own);
  }

  static Status refuse_irregular(int fd, std::uint64_t id) {
    struct stat st{};
    if (::fstat(fd, &st) != 0) {
      return fail_errno();
    }
    if (!S_ISREG(st.st_mode)) {
      return fail(EUCLEAN, "container " + std::to_string(id) + " is not a regular file");
    }
    return {};
  }

  static bool is_sealed(int fd) {
    struct stat st{};
    return ::fstat(fd, &st) == 0 && has_seal(st);
  }

  Status refuse_other(int fd, std::uint64_t id) {
    if (!labels_) {
      return refuse_irregular(fd, id);
    }
    std::array<char, 96> text{};
    const ssize_t length = ::fgetxattr(fd, label_name, text.data(), text.size());
    if (length < 0 && errno != ENODATA && errno != ERANGE) {
      return fail_errno("the label of container " + std::to_string(id));
    }
    const bool none = length < 0 && errno == ENODATA;
    const std::string_view label(text.data(),
                                 static_cast<std::size_t>(std::max<ssize_t>(0, length)));
    if (none ? is_sealed(fd) : !contradicts(label, id)) {
      return {};
    }
    return exchanged(id, label, none);
  }

  /// Returns the error of a container that has another one's label, or lost its label (`none`).
  /// Logs the first of them.
  std::unexpected<Error> exchanged(std::uint64_t id, std::string_view label, bool none) {
    if (!options_.read_only && !told_.exchange(true)) {
      log::error("event=container_exchanged container={} label=\"{}\" expected=\"{}\"",
                 std::string_view(ContainerName(id)), printable(label), label_of(id));
    }
    const std::string way_out = ": containers of this store were swapped; restore the originals";
    if (none) {
      return fail(EUCLEAN, "container " + std::to_string(id) + " has lost its label" + way_out);
    }
    return fail(EUCLEAN, "container " + std::to_string(id) + " is labelled as another one's, \"" +
                             printable(label) + "\" instead of \"" + label_of(id) + "\"" + way_out);
  }

  // A removal between the open and here has unlinked the file: a cached descriptor would keep its
  // space. A later removal forgets the descriptor after the unlink.
  std::shared_ptr<Container> remember(std::uint64_t id, std::shared_ptr<ContainerFile> opened) {
    auto kept = cache_.remember(id, std::move(opened));
    if (struct stat st{}; ::fstat(*kept->descriptor(), &st) == 0 && st.st_nlink == 0) {
      cache_.forget(id);
    }
    return kept;
  }

  bool counts_at_times() const {
    return options_.capacity && !options_.kernel_holds_capacity && !account_;
  }

  bool counts_bytes() const {
    return options_.capacity && !options_.kernel_holds_capacity && options_.strict;
  }

  /// Opens a container. If the process has no free descriptor, closes cached ones and retries.
  UniqueFd open_file(std::uint64_t id, int flags) {
    const auto attempt = [&] {
      return UniqueFd(::openat(options_.directory.get(), ContainerName(id),
                               flags | O_CLOEXEC | O_NOFOLLOW | O_NOATIME, 0600));
    };
    UniqueFd fd = attempt();
    const bool too_many = !fd && (errno == EMFILE || errno == ENFILE);
    if (too_many && cache_.clear()) {
      if (!short_told_.exchange(true)) {
        log::warn("event=containers_closed reason=\"too many open files\"");
      }
      fd = attempt();  // last: sets errno
    }
    return fd;
  }

  // Returns the use of all containers, by inspecting each. For advisory enforcement only; spends at
  // most a twentieth of the time on scans.
  std::uint64_t advisory_use() {
    using clock = std::chrono::steady_clock;
    MutexLock lock(scan_mutex_);
    const auto now = clock::now();
    if (now >= next_scan_) {
      slow_work_begins();
      scanned_ = scan();
      const auto cost = clock::now() - now;
      next_scan_ =
          clock::now() + std::max<clock::duration>(std::chrono::milliseconds(200), cost * 20);
    }
    return scanned_;
  }

  // Subtracts removed bytes until the next scan. Containers created since the last scan are not in
  // the sum, so their bytes may be subtracted too.
  void forget_scanned(std::uint64_t bytes) {
    MutexLock lock(scan_mutex_);
    scanned_ -= std::min(scanned_, bytes);
  }

  std::uint64_t scan() const {
    std::uint64_t sum = 0;
    for (unsigned i = 0; i < fan_out; ++i) {
      const int fd =
          ::openat(options_.directory.get(), DirectoryName(i), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      DIR* directory = fd < 0 ? nullptr : ::fdopendir(fd);
      if (directory == nullptr) {
        continue;
      }
      while (const dirent* entry = ::readdir(directory)) {
        struct stat st{};
        if (entry->d_name[0] != '.' &&
            ::fstatat(::dirfd(directory), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
          sum += static_cast<std::uint64_t>(st.st_blocks) * 512;
        }
      }
      ::closedir(directory);
    }
    return sum;
  }

  const FsdaxOptions options_;
  const DurabilityProbe probe_;
  bool zeros_take_space_ = false;                   // constant after construction
  const std::shared_ptr<CapacityAccount> account_;  // null: bytes are not counted
  std::string owner_;                               // constant after prepare()
  bool labels_ = false;                             // likewise
  std::atomic<bool> told_{false};            // log only the first: programs may repeat the call
  std::atomic<bool> short_told_{false};      // likewise
  std::atomic<bool> directory_told_{false};  // likewise

  ContainerCache cache_;

  Mutex scan_mutex_;  // rank 45
  std::uint64_t scanned_ EFS_GUARDED_BY(scan_mutex_) = 0;
  std::chrono::steady_clock::time_point next_scan_ EFS_GUARDED_BY(scan_mutex_){};
};

}  // namespace

Result<std::unique_ptr<Backend>> make_fsdax(FsdaxOptions options) {
  auto backend = std::make_unique<Fsdax>(std::move(options));
  EFS_TRY(backend->prepare());
  return backend;
}

}  // namespace efs
