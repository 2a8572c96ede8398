// SPDX-License-Identifier: BSD-3-Clause
// Zeros that take space. A tmpfs with huge pages stores one byte into a file that has its size
// already by allocating 2 MiB. When the last writer has closed the file, what is zero in it is
// punched. Content, size and times stay as they are, so there is no record of it: a crash leaves a
// file of the same content that takes more space. If it comes within a punch, the file's mtime is
// that moment.
//
// The proof that no program can store into a page between its examination and its punch:
// 1. This process made the inode, so it counted each open (owns_pages()).
// 2. Staging::writers() reports that no program can write, in one of two cases. In the first case
//    no open for writing waits for its RELEASE, and the file was never open read-write, so it
//    cannot be mapped. In the second case the kernel has granted a read lease on the container.
//    With passthrough a mapping of the file is a mapping of the container, which outlives the
//    RELEASE and prevents the lease. efs reads Inode::edits before the lease. An idle registration
//    is read-only, and no program writes through it without an open.
// 3. efs examines the pages after step 2. Each open for writing increments Inode::edits and
//    write_opens before the reply. So if edits is unchanged and no open is counted, there was no
//    writer. efs checks this under the exclusive namespace lock and holds the lock until the punch
//    is done. An open needs the lock to be counted, so it waits.
// 4. Staging writes to containers that have no inode yet, and efs never examines those. A sealed
//    container is shared with another file and is not punched. A truncation by path has no open. It
//    only adds or removes zeros; MappedFile::alone() excludes it to keep the times right.
// Outside the proof: a device that still writes into a page of a mapping which the program has
// unmapped before its asynchronous read into it has completed.
#include <linux/falloc.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>

#include "base/slow_work.hpp"
#include "fs/filesystem.hpp"
#include "fs/kernel_view.hpp"
#include "fs/mapped_file.hpp"
#include "fs/removing.hpp"
#include "fs/seal.hpp"
#include "fs/staging.hpp"

namespace efs::fs {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t page = 4096;        // bytes
constexpr std::uint64_t extent = 2U << 20;  // bytes: a huge page
// bytes: an extent with fewer zero bytes is not punched, so it keeps its huge page
constexpr std::uint64_t worthwhile = extent / 8;
// runs punched under one hold of the namespace lock: about 0.2 ms
constexpr std::size_t runs_at_once = 64;
// time of one call; free_zeros_left() does the rest
constexpr auto longest = std::chrono::seconds(1);
// the most extents that are sampled without handing over the lead
constexpr std::uint64_t sampled_quickly = 8;
constexpr std::size_t most_left = 1024;  // files

bool is_zero(std::span<const std::byte> bytes) {
  return bytes.empty() || (bytes.front() == std::byte{0} &&
                           std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

bool reads_zero(Container& container, std::span<std::byte> buffer, std::uint64_t offset) {
  const auto n = container.read(buffer, offset);
  return n && *n == buffer.size() && is_zero(buffer);
}

/// Returns the first extent at or after `offset` that has data and is within the file.
std::optional<std::uint64_t> next_extent(Container& container, std::uint64_t offset,
                                         std::uint64_t size) {
  const auto data = container.seek(offset, SEEK_DATA);
  const std::uint64_t at = data ? *data / extent * extent : size;
  return at + extent <= size ? std::optional(at) : std::nullopt;
}

/// True if one of the sampled pages of this extent is zero and takes space. The samples include
/// pages of every remainder modulo 8, so that data stored at regular distances do not hide the
/// zeros.
bool has_zero_sample(Container& container, std::uint64_t at) {
  constexpr std::uint64_t samples = 8, step = 197, first = 61, pages = extent / page;
  std::array<std::byte, page> buffer;
  for (std::uint64_t i = 0; i < samples; ++i) {
    const std::uint64_t offset = at + (i * step + first) % pages * page;
    // A few bytes decide most pages.
    if (reads_zero(container, std::span(buffer).first(64), offset + page / 2) &&
        reads_zero(container, buffer, offset) && container.seek(offset, SEEK_DATA) == offset) {
      return true;
    }
  }
  return false;
}

bool has_zero_sample(Container& container, std::uint64_t begin, std::uint64_t size) {
  for (auto at = next_extent(container, begin, size); at;
       at = next_extent(container, *at + extent, size)) {
    if (has_zero_sample(container, *at)) {
      return true;
    }
  }
  return false;
}

}  // namespace

/// Finds the zero pages of one extent that take space.
class Filesystem::ZeroPages {
 public:
  /// Throws std::bad_alloc.
  explicit ZeroPages(Container& container) : container_(container), buffer_(piece) {}

  /// Returns the runs, or none if a punch is not worthwhile. Valid until the next call.
  std::span<const Run> find(std::uint64_t at) {
    runs_.clear();
    for (std::uint64_t begin = at; begin < at + extent;) {
      const auto data = container_.seek(begin, SEEK_DATA);
      if (!data || *data >= at + extent) {
        break;
      }
      const auto hole = container_.seek(*data, SEEK_HOLE);
      begin = hole ? std::min(*hole, at + extent) : at + extent;
      look({*data, begin - *data});
    }
    std::uint64_t sum = 0;
    for (const Run& run : runs_) {
      sum += run.length;
    }
    return sum < worthwhile ? std::span<const Run>() : runs_;
  }

 private:
  static constexpr std::size_t piece = 256U << 10;

  void look(Run data) {
    const std::uint64_t end = data.offset + data.length;
    for (std::uint64_t at = data.offset; at < end;) {
      const auto want = std::min<std::uint64_t>(piece, end - at);
      const auto n = container_.read(std::span(buffer_).first(want), at);
      if (!n || *n < page) {
        return;
      }
      for (std::uint64_t i = 0; i + page <= *n; i += page) {
        if (is_zero(std::span(buffer_).subspan(i, page))) {
          add(at + i);
        }
      }
      at += *n / page * page;
    }
  }

  void add(std::uint64_t offset) {
    if (!runs_.empty() && runs_.back().offset + runs_.back().length == offset) {
      runs_.back().length += page;
    } else {
      runs_.push_back({offset, page});
    }
  }

  Container& container_;
  std::vector<std::byte> buffer_;
  std::vector<Run> runs_;
};

Status Filesystem::punch(std::uint64_t ino, std::uint64_t edits, MappedFile& content,
                         std::span<const Run> zeros) {
  WriteLock lock(mutex_);
  Inode* inode = names_.find(ino);
  if (inode == nullptr || !owns_pages(*inode) || inode->write_opens > 0 || inode->edits != edits ||
      held_ > 0) {
    return fail(EAGAIN);
  }
  auto& kept = inode->more().kept_time;
  return content.alone([&](Container& container) -> Status {
    const auto before = container.attributes();
    if (!before || is_sealed(*before)) {
      return fail(EAGAIN);
    }
    const FileTime shown = shown_ctime(*inode, *before);
    Status done;
    for (const Run& run : zeros) {
      done = container.allocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, run.offset, run.length);
      if (!done) {
        break;
      }
    }
    epoch_ends(ino);
    EFS_TRY(container.set_times(std::nullopt, before->st_mtim));
    const auto after = container.attributes();
    EFS_TRY(after);
    kept = InodeExtra::KeptTime{.shown = shown, .ctime = after->st_ctim, .mtime = after->st_mtim};
    return done;
  });
}

Filesystem::Zeros Filesystem::punch_all(std::uint64_t ino, std::uint64_t proof) {
  const auto end = Clock::now() + longest;
  const auto content = file(ino);
  const auto attributes =
      content ? (*content)->container().attributes() : std::unexpected(content.error());
  if (!attributes) {
    return {};
  }
  Container& container = (*content)->container();
  const auto size = static_cast<std::uint64_t>(attributes->st_size);
  ZeroPages pages(container);
  Zeros result;
  for (auto at = next_extent(container, 0, size); at;
       at = next_extent(container, *at + extent, size)) {
    for (auto zeros = pages.find(*at); !zeros.empty();) {
      const auto some = zeros.first(std::min(zeros.size(), runs_at_once));
      const Status done = punch(ino, proof, **content, some);
      if (!done) {
        result.left = done.error().code == EAGAIN || done.error().code == EBUSY;
        return result;
      }
      result.freed = true;
      zeros = zeros.subspan(some.size());
    }
    if (Clock::now() >= end) {
      result.left = true;
      return result;
    }
  }
  return result;
}

std::optional<std::uint64_t> Filesystem::prove_no_writer(std::uint64_t ino, int tries) {
  for (int i = 0; i < tries; ++i) {
    if (i > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const auto writers = Staging(*this).writers(ino);
    if (!writers || writers->open > 0) {
      return std::nullopt;
    }
    if (!writers->possible) {
      return writers->edits;
    }
  }
  return std::nullopt;
}

// Samples the file before the proof: a fully written file then costs only its samples.
Filesystem::Zeros Filesystem::free_zeros_of(std::uint64_t ino, int tries) {
  {
    const auto container = this->container(ino);
    const auto attributes =
        container ? (*container)->attributes() : std::unexpected(container.error());
    if (!attributes || is_sealed(*attributes) ||
        !has_zero_sample(**container, 0, static_cast<std::uint64_t>(attributes->st_size))) {
      return {};
    }
  }
  slow_work_begins();
  {
    ReadLock lock(mutex_);
    const Inode* inode = names_.find(ino);
    if (inode == nullptr || !may_punch(*inode) || inode->write_opens > 0) {
      return {};  // the next close tries again
    }
  }
  const auto proof = prove_no_writer(ino, tries);
  const Zeros result = proof ? punch_all(ino, *proof) : Zeros{.left = true};
  if (KernelView* kernel = kernel_; kernel != nullptr && result.freed) {
    kernel->space_given_back(ino);
  }
  return result;
}

void Filesystem::free_zeros(std::uint64_t ino) try {
  if (!holder_of(ino).zeros_take_space()) {
    return;
  }
  const auto attributes = backend_.attributes(ino);
  const auto bytes = attributes ? static_cast<std::uint64_t>(attributes->st_blocks) * 512 : 0;
  if (bytes < extent || static_cast<std::uint64_t>(attributes->st_size) < extent) {
    return;
  }
  {
    const Removing removing(removing_);
    ++removals_;
    // Before the lead is handed over, because the next request may need the space.
    const unsigned place = backend_.place_of(ino);
    space_.owe(place, bytes);
    if (bytes > sampled_quickly * extent) {
      slow_work_begins();
    }
    constexpr int tries = 4;
    if (!free_zeros_of(ino, tries).left) {
      return space_.pay(place, bytes);
    }
    leave_zeros(ino);
  }
  // The kernel closes the container's file after the RELEASE, on a busy machine some time later.
  // This thread tries again until then. Requests that need space do not wait for it. If more than a
  // few files are left, the thread stops, because files that stay mapped may never become free.
  constexpr std::size_t few = 4;
  for (std::chrono::milliseconds pause(8); pause.count() <= 256; pause *= 2) {
    std::this_thread::sleep_for(pause);
    free_zeros_left();
    ReadLock lock(mutex_);
    if (!zeros_left_.contains(ino) || zeros_left_.size() > few) {
      return;
    }
  }
} catch (const std::bad_alloc&) {
}  // the zeros keep their space

void Filesystem::leave_zeros(std::uint64_t ino) {
  WriteLock lock(mutex_);
  if (zeros_left_.size() < most_left) {
    zeros_left_.insert(ino);
  }
}

bool Filesystem::free_zeros_left() {
  std::unordered_set<std::uint64_t> files;
  {
    ReadLock lock(mutex_);
    if (zeros_left_.empty()) {
      return false;
    }
  }
  {
    WriteLock lock(mutex_);
    files.swap(zeros_left_);
  }
  bool any = false;
  const auto end = Clock::now() + longest;
  for (const auto ino : files) {
    const Removing removing(removing_);
    try {
      const Zeros result = Clock::now() < end ? free_zeros_of(ino, 1) : Zeros{.left = true};
      any = any || result.freed;
      if (result.left) {
        leave_zeros(ino);
      }
    } catch (const std::bad_alloc&) {
    }  // this file's zeros keep their space until its next close
  }
  return any;
}

}  // namespace efs::fs
