// SPDX-License-Identifier: BSD-3-Clause
#include "backends/container_file.hpp"

#include <fcntl.h>
#include <libpmem.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "base/slow_work.hpp"

namespace efs {
namespace {

constexpr std::uint64_t page_bytes = 4096;

std::uint64_t round_up(std::uint64_t n) {
  return (n + page_bytes - 1) / page_bytes * page_bytes;
}

// Returns the bytes of all pages that the range touches.
std::uint64_t pages_of(std::uint64_t offset, std::uint64_t length) {
  return round_up(offset + length) - offset / page_bytes * page_bytes;
}

// While so many times the bytes of a write are left, it is counted as if it filled holes only: the
// search for holes walks the file's pages from the write to the next hole, which may be at the end.
// More than there are threads that write at once, so that none of them meets a full store.
constexpr std::uint64_t ample_factor = 256;

class MappedSegment final : public Segment {
 public:
  MappedSegment(void* address, std::size_t length) : address_(address), length_(length) {}

  ~MappedSegment() override { ::munmap(address_, length_); }

  MappedSegment(const MappedSegment&) = delete;
  MappedSegment& operator=(const MappedSegment&) = delete;

  std::span<std::byte> bytes() override { return {static_cast<std::byte*>(address_), length_}; }

  void store(std::size_t offset, std::span<const std::byte> data) override {
    pmem_memcpy(static_cast<std::byte*>(address_) + offset, data.data(), data.size(),
                PMEM_F_MEM_NODRAIN);
  }

 private:
  void* address_;
  std::size_t length_;
};

}  // namespace

bool CapacityAccount::take(std::uint64_t bytes) {
  const auto want = static_cast<std::int64_t>(bytes);
  auto now = used_.load();
  do {
    if (now + want > static_cast<std::int64_t>(limit_)) {
      return false;
    }
  } while (!used_.compare_exchange_weak(now, now + want));
  return true;
}

std::int64_t ContainerFile::allocated() const {
  struct stat st{};
  return ::fstat(fd_.get(), &st) == 0 ? static_cast<std::int64_t>(st.st_blocks) * 512 : 0;
}

// Returns the bytes that a store to [offset, offset + length) would allocate, counted in pages.
std::uint64_t ContainerFile::missing(std::uint64_t offset, std::uint64_t length) const {
  const std::uint64_t end = round_up(offset + length);
  std::uint64_t at = offset / page_bytes * page_bytes;
  std::uint64_t holes = 0;
  while (at < end) {
    const off_t data = ::lseek(fd_.get(), static_cast<off_t>(at), SEEK_DATA);
    // ENXIO: only a hole follows, up to and beyond the end of the file
    if (data < 0) {
      return holes + (end - at);
    }
    const auto data_at = std::min(static_cast<std::uint64_t>(data), end);
    holes += data_at - at;
    if (data_at == end) {
      break;
    }
    const off_t hole = ::lseek(fd_.get(), data, SEEK_HOLE);
    if (hole < 0) {
      break;
    }
    at = static_cast<std::uint64_t>(hole) / page_bytes * page_bytes;
    if (static_cast<std::uint64_t>(hole) % page_bytes != 0) {
      at += page_bytes;
    }
  }
  return holes;
}

// Runs a change that allocates at most `upper_bound` bytes, and counts the bytes it really
// allocated. A change that allocates none is made also while more than the capacity is in use.
template <typename Change>
Status ContainerFile::counted(std::uint64_t upper_bound, Change change) {
  if (!account_) {
    return change();
  }
  MutexLock lock(growth_);
  if (upper_bound != 0 && !account_->take(upper_bound)) {
    return fail(ENOSPC);
  }
  const auto before = allocated();
  Status status = change();
  account_->adjust(allocated() - before - static_cast<std::int64_t>(upper_bound));
  return status;
}

Result<std::size_t> ContainerFile::read(std::span<std::byte> into, std::uint64_t offset) {
  std::size_t done = 0;
  if (waits_ && slow_work_is_heard()) {
    iovec all{into.data(), into.size()};
    done = static_cast<std::size_t>(std::max<ssize_t>(
        0, ::preadv2(fd_.get(), &all, 1, static_cast<off_t>(offset), RWF_NOWAIT)));
    if (done < into.size()) {
      slow_work_begins();  // not cached, or at the end
    }
  }
  while (done < into.size()) {
    const ssize_t n = ::pread(fd_.get(), into.data() + done, into.size() - done,
                              static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return fail_errno();
    }
    if (n == 0) {
      break;
    }
    done += static_cast<std::size_t>(n);
  }
  return done;
}

Result<std::size_t> ContainerFile::write(std::span<const std::byte> from, std::uint64_t offset) {
  std::size_t done = 0;
  if (waits_) {
    slow_work_begins();
  }
  auto store = [&]() -> Status {
    while (done < from.size()) {
      const ssize_t n = ::pwrite(fd_.get(), from.data() + done, from.size() - done,
                                 static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) {
        continue;
      }
      if (n < 0) {
        return done > 0 ? Status{} : fail_errno();
      }
      done += static_cast<std::size_t>(n);
    }
    return {};
  };
  if (!account_) {
    EFS_TRY(store());
    return done;
  }
  const std::uint64_t left = account_->left();
  if (const std::uint64_t most = pages_of(offset, from.size()); most <= left / ample_factor) {
    EFS_TRY(counted(most, store));
    return done;
  }
  // A short write is legal; it shows a program that the store is full.
  if (const std::uint64_t need = missing(offset, from.size()); need > left) {
    const std::uint64_t excess = need - left;
    if (excess >= from.size()) {
      return fail(ENOSPC);
    }
    from = from.first(from.size() - excess);
  }
  EFS_TRY(counted(missing(offset, from.size()), store));
  return done;
}

Status ContainerFile::truncate(std::uint64_t size) {
  return counted(0, [&]() -> Status {
    return ::ftruncate(fd_.get(), static_cast<off_t>(size)) == 0 ? Status{} : fail_errno();
  });
}

Status ContainerFile::allocate(int mode, std::uint64_t offset, std::uint64_t length) {
  const bool frees = (mode & FALLOC_FL_PUNCH_HOLE) != 0;
  const std::uint64_t bound = frees || !account_ ? 0 : missing(offset, length);
  return counted(bound, [&]() -> Status {
    return ::fallocate(fd_.get(), mode, static_cast<off_t>(offset), static_cast<off_t>(length)) == 0
               ? Status{}
               : fail_errno();
  });
}

Result<std::uint64_t> ContainerFile::seek(std::uint64_t offset, int whence) {
  const off_t at = ::lseek(fd_.get(), static_cast<off_t>(offset), whence);
  if (at < 0) {
    return fail_errno();
  }
  return static_cast<std::uint64_t>(at);
}

Result<struct stat> ContainerFile::attributes() {
  struct stat st{};
  if (::fstat(fd_.get(), &st) != 0) {
    return fail_errno();
  }
  return st;
}

std::array<timespec, 2> times_to_set(std::optional<FileTime> atime, std::optional<FileTime> mtime) {
  constexpr timespec omit{.tv_sec = 0, .tv_nsec = UTIME_OMIT};
  return {atime ? to_timespec(*atime) : omit, mtime ? to_timespec(*mtime) : omit};
}

Status ContainerFile::set_times(std::optional<FileTime> atime, std::optional<FileTime> mtime) {
  return ::futimens(fd_.get(), times_to_set(atime, mtime).data()) == 0 ? Status{} : fail_errno();
}

// Our descriptor has O_NOATIME, and setting a time would change ctime too. So a read makes the
// kernel update the access time.
void ContainerFile::accessed(AccessTimes policy) {
  struct stat st{};
  if (::fstat(fd_.get(), &st) != 0 || !atime_is_due(policy, st.st_atim, st.st_mtim, st.st_ctim)) {
    return;
  }
  const UniqueFd reader(
      ::open(("/proc/self/fd/" + std::to_string(fd_.get())).c_str(), O_RDONLY | O_CLOEXEC));
  char byte = 0;
  if (reader) {
    (void)!::pread(reader.get(), &byte, 1, 0);
  }
}

Status ContainerFile::sync(bool metadata) {
  if (pmem_) {
    pmem_drain();
  }
  return (metadata ? ::fsync(fd_.get()) : ::fdatasync(fd_.get())) == 0 ? Status{} : fail_errno();
}

// Memory needs no reading ahead.
void ContainerFile::will_need(std::uint64_t offset, std::uint64_t length) {
  if (waits_) {
    (void)::posix_fadvise(fd_.get(), static_cast<off_t>(offset), static_cast<off_t>(length),
                          POSIX_FADV_WILLNEED);
  }
}

Status ContainerFile::clone(const Container& other) {
  const auto from = other.descriptor();
  struct stat st{};
  if (!from) {
    return fail(EOPNOTSUPP);
  }
  if (account_ && ::fstat(*from, &st) != 0) {
    return fail_errno();
  }
  return counted(static_cast<std::uint64_t>(st.st_blocks) * 512, [&]() -> Status {
    return ::ioctl(fd_.get(), FICLONE, *from) == 0 ? Status{} : fail_errno();
  });
}

Result<std::unique_ptr<Segment>> ContainerFile::map(std::uint64_t offset, std::size_t length) {
  if (!pmem_) {
    return fail(ENOTSUP);
  }
  void* address = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC,
                         fd_.get(), static_cast<off_t>(offset));
  // Without MAP_SYNC (a page-cache file system under PMEM_IS_PMEM_FORCE), fsync provides the
  // durability instead.
  if (address == MAP_FAILED) {
    address = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(),
                     static_cast<off_t>(offset));
  }
  if (address == MAP_FAILED) {
    return fail_errno();
  }
  try {
    return std::make_unique<MappedSegment>(address, length);
  } catch (const std::bad_alloc&) {  // no other code has the mapping
    ::munmap(address, length);
    throw;
  }
}

}  // namespace efs
