// SPDX-License-Identifier: BSD-3-Clause
#include "intercept/file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "intercept/fault_handler.hpp"
#include "intercept/raw.hpp"
#include "intercept/settings.hpp"

namespace efs::intercept {
namespace {

constexpr std::uint64_t room_ahead = 2 << 20;  // bytes; the daemon grants no more

constexpr std::size_t most_files = 512;
constexpr std::size_t page = 4096;
constexpr std::uint64_t most_bytes = std::uint64_t{1} << 44;  // of a file; an address has 47 bits
constexpr std::uint32_t fewest_calls = 32, most_calls = 4096;

constinit File files[most_files];
constinit std::atomic<std::size_t> files_begun{0};  // none behind these was ever in use
constinit std::atomic_flag adopting;
constinit std::atomic<std::uint32_t> calls_before{fewest_calls};
constinit std::atomic<bool> no_more{false};

bool failed(long address) {
  return address < 0 && address > -4096;
}

// A mapping costs some 30 calls' time.
void learn(std::uint64_t served) {
  const std::uint32_t calls = calls_before.load(std::memory_order_relaxed);
  if (served < 64 && calls < most_calls) {
    calls_before.store(calls * 2, std::memory_order_relaxed);
  } else if (served > 256 && calls > fewest_calls) {
    calls_before.store(calls / 2, std::memory_order_relaxed);
  }
}

// Large ones begin where a page of 2 MiB can.
long map_aligned(int fd, std::size_t bytes, int protection, std::size_t alignment) {
  if (bytes < 2 * alignment) {
    return raw(SYS_mmap, nullptr, bytes, protection, MAP_SHARED, fd, 0);
  }
  const long whole = raw(SYS_mmap, nullptr, bytes + alignment, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (failed(whole)) {
    return whole;
  }
  const long mask = static_cast<long>(alignment) - 1;
  const long begin = (whole + mask) & ~mask;
  const long mapped = raw(SYS_mmap, begin, bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0);
  if (failed(mapped)) {
    raw(SYS_munmap, whole, bytes + alignment);
    return mapped;
  }
  if (begin > whole) {
    raw(SYS_munmap, whole, begin - whole);
  }
  const long left = whole + static_cast<long>(alignment) - begin;
  if (left > 0) {
    raw(SYS_munmap, begin + static_cast<long>(bytes), left);
  }
  return mapped;
}

// A limit of the address space is the program's to use.
bool has_memory_limit() {
  rlimit limit{};
  return raw(SYS_prlimit64, 0, RLIMIT_AS, nullptr, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY;
}

// Beyond this size a write sends SIGXFSZ, which the kernel must do.
bool has_size_limit() {
  rlimit limit{};
  return raw(SYS_prlimit64, 0, RLIMIT_FSIZE, nullptr, &limit) != 0 ||
         limit.rlim_cur != RLIM_INFINITY;
}

}  // namespace

std::uint32_t File::calls_before_mapping() {
  return settings().calls != 0 ? settings().calls : calls_before.load(std::memory_order_relaxed);
}

void File::map_no_more() {
  no_more.store(true);
}

bool File::is_written_by_memory(int fd) {
  DoorFile said{};
  return raw(SYS_ioctl, fd, door_ask, &said) == 0 && said.magic == door_magic &&
         (said.flags & door_map_write) != 0;
}

File* File::find(const Identity& identity) {
  const std::size_t begun = files_begun.load();
  for (std::size_t i = 0; i < begun; ++i) {
    if (files[i].in_use_.load() && files[i].hold()) {
      if (files[i].identity_ == identity) {
        return &files[i];
      }
      files[i].release();
    }
  }
  return nullptr;
}

File* File::begin(int fd, const Identity& identity, bool writes) {
  DoorFile probe{};
  if (raw(SYS_ioctl, fd, door_ask, &probe) != 0 || probe.magic != door_magic ||
      (probe.flags & door_map_read) == 0 || !fault_handler::install()) {
    return nullptr;
  }
  std::size_t i = 0;
  while (i < most_files && files[i].in_use_.load()) {
    ++i;
  }
  Mount* mount = i == most_files ? nullptr : Mount::of(identity.device);
  if (mount == nullptr) {
    return nullptr;
  }
  File& file = files[i];
  file.identity_ = identity;
  file.mount_ = mount;
  file.served_ = file.next_offset_ = 0;
  file.asked_at_ = 0;
  file.ask_beyond_ = calls_that_pay;
  file.unmappable_ = false;
  file.appended_ = file.room_end_ = 0;
  file.stored_ = false;
  file.written_tick_ = 0;
  mount->mapped_files.fetch_add(1);
  file.in_use_.store(true);
  if (files_begun.load() <= i) {
    files_begun.store(i + 1);
  }
  file.references_.store(1, std::memory_order_release);
  if (!file.ask(fd, 0) || !file.map(fd, writes && file.may_write_)) {
    file.release();
    return nullptr;
  }
  return &file;
}

File* File::adopt(int fd, const Identity& identity, bool writes) {
  if (no_more.load() || adopting.test_and_set(std::memory_order_acquire)) {
    return nullptr;
  }
  File* file = find(identity);
  if (file == nullptr) {
    file = begin(fd, identity, writes);
  }
  adopting.clear(std::memory_order_release);
  return file;
}

// No call sees the begin of one and the end of the other.
void File::set_range(const KnownRange& range) {
  if (range.begin != begin_.load()) {
    end_.store(0);
  }
  begin_.store(range.begin);
  end_.store(range.end);
}

// Rule 3: the epoch is loaded before the question.
bool File::ask(int fd, std::uint64_t offset) {
  const std::uint64_t now = epoch();
  if (now == Mount::no_epoch) {
    return false;
  }
  DoorFile said{};
  said.offset = offset;
  const long result = raw(SYS_ioctl, fd, door_ask, &said);
  const std::uint64_t twice = 2 * ask_beyond_.load(std::memory_order_relaxed);
  ask_beyond_ = has_paid() ? calls_that_pay : twice < rarest_question ? twice : rarest_question;
  beyond_ = 0;
  asked_at_ = served_.load(std::memory_order_relaxed);
  if (result != 0 || said.inode != identity_.inode || (said.flags & door_map_read) == 0) {
    set_range({});
    return false;
  }
  const std::uint64_t end = said.data_end < said.size ? said.data_end : said.size;
  set_range(end > said.data_begin ? KnownRange{said.data_begin, end} : KnownRange{});
  may_write_.store((said.flags & door_map_write) != 0 && (said.mode & (S_ISUID | S_ISGID)) == 0 &&
                   !has_size_limit());
  epoch_.store(now, std::memory_order_release);
  return true;
}

// A number may have become another file's. Asks the kernel alone.
bool File::is_of(int fd) const {
  struct statx status{};
  return raw(SYS_statx, fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &status) == 0 &&
         Identity{makedev(status.stx_dev_major, status.stx_dev_minor), status.stx_ino} == identity_;
}

bool File::map(int fd, bool writable) {
  const Mapping* last = mapping_.load();
  std::uint64_t bytes = last == nullptr ? 2 * chunk : last->bytes;
  if (unmappable_ || no_more.load() || mapped_ == most_mappings || end_.load() > most_bytes ||
      has_memory_limit() || !is_of(fd)) {
    return false;
  }
  while (bytes < 2 * end_.load()) {
    bytes *= 4;
  }
  Mapping& mapping = mappings_[mapped_];
  const long base = map_aligned(fd, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, chunk);
  if (failed(base)) {
    unmappable_ = !writable;
    return false;
  }
  raw(SYS_madvise, base, bytes, MADV_DONTDUMP);
  mapping.base = reinterpret_cast<char*>(base);
  mapping.bytes = bytes;
  mapping.writable = writable;
  mapping.chunks = mapping.few;
  if (mapping.count() <= sizeof mapping.few) {
    for (auto& one : mapping.few) {
      one.store(0, std::memory_order_relaxed);
    }
  } else if (const long memory = raw(SYS_mmap, nullptr, mapping.count(), PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
             !failed(memory)) {
    mapping.chunks = reinterpret_cast<std::atomic<std::uint8_t>*>(memory);
  } else {
    raw(SYS_munmap, base, bytes);
    unmappable_ = true;
    return false;
  }
  ++mapped_;
  mapping_.store(&mapping, std::memory_order_release);
  return true;
}

const File::Mapping* File::serving(const Run& run) const {
  if (!is_current() || !range().holds(run.offset, run.bytes)) {
    return nullptr;
  }
  const Mapping* mapping = mapping_.load(std::memory_order_acquire);
  if (mapping == nullptr || run.offset + run.bytes > mapping->bytes ||
      (run.for_write && !(mapping->writable && may_write_.load(std::memory_order_relaxed)))) {
    return nullptr;
  }
  return mapping;
}

// A file that grows by others, or has holes, is asked about now and then: a question costs as much
// as some 20 calls. After questions that did not pay it is asked about less and less.
const File::Mapping* File::prepare(int fd, const Run& run) {
  if (busy_.test_and_set(std::memory_order_acquire)) {
    return nullptr;
  }
  const Mapping* mapping = nullptr;
  if (!unmappable_) {
    if (!is_current() || (!range().holds(run.offset, run.bytes) && may_ask())) {
      ask(fd, run.offset);
    }
    if (needs_longer(run)) {
      // a descriptor for reading cannot map for others that write
      const Mapping* last = mapping_.load();
      if (!(last != nullptr && last->writable && !run.for_write && map(fd, true))) {
        map(fd, run.for_write);
      }
    }
    mapping = serving(run);
  }
  busy_.clear(std::memory_order_release);
  return mapping;
}

bool File::needs_longer(const Run& run) const {
  if (!is_current() || !range().holds(run.offset, run.bytes) ||
      (run.for_write && !may_write_.load())) {
    return false;
  }
  const Mapping* last = mapping_.load();
  return last == nullptr || run.offset + run.bytes > last->bytes ||
         (run.for_write && !last->writable);
}

// Only what is known to be data: a hole would be filled.
void File::populate(const Mapping& mapping, std::uint64_t from, std::uint64_t until) const {
  const KnownRange known = range();
  from = (from > known.begin ? from : known.begin) & ~(page - 1);
  until = until < known.end ? until : known.end;
  if (until > from) {
    raw(SYS_madvise, mapping.base + from, (until - from + page - 1) & ~(page - 1),
        MADV_POPULATE_READ);
  }
}

bool File::touch(const Mapping& mapping, const Run& run) {
  const bool in_a_row = next_offset_.load(std::memory_order_relaxed) == run.offset;
  next_offset_.store(run.offset + run.bytes, std::memory_order_relaxed);
  const std::uint64_t last = (run.offset + run.bytes - 1) / chunk;
  for (std::uint64_t i = run.offset / chunk; i <= last; ++i) {
    auto& state = mapping.chunks[i];
    if (state.load(std::memory_order_relaxed) == populated) [[likely]] {
      continue;
    }
    const std::uint8_t passed = state.load(std::memory_order_relaxed);
    if (run.bytes >= large && passed < chunk / large) {
      const std::uint64_t now = passed + (run.bytes / large);
      state.store(static_cast<std::uint8_t>(now < chunk / large ? now : chunk / large),
                  std::memory_order_relaxed);
      return false;
    }
    if (run.bytes >= large || in_a_row) {
      populate(mapping, i * chunk, (i + 1) * chunk);
      state.store(populated, std::memory_order_relaxed);
    }
  }
  return true;
}

char* File::at(int fd, std::uint64_t offset, std::uint64_t bytes, bool for_write) {
  const Run run{offset, bytes, for_write};
  const Mapping* mapping = serving(run);
  if (mapping == nullptr) [[unlikely]] {
    if (is_current() && !range().holds(offset, bytes) && !may_ask()) {
      if (!for_write) {
        add(beyond_, 1);
      }
      return nullptr;  // an append, mostly
    }
    mapping = prepare(fd, run);
  }
  if (mapping == nullptr || !touch(*mapping, run)) {
    return nullptr;
  }
  return mapping->base + offset;
}

// Rule 11. Each append to a file without room allocates its pages one by one. If the daemon grants
// none, it is asked again after as many bytes. A cut file has lost its room.
bool File::needs_room(std::uint64_t offset, std::uint64_t bytes) {
  constexpr std::uint64_t enough = 128 << 10;
  appended_ = offset == end_.load(std::memory_order_relaxed) ? appended_ + bytes : 0;
  const std::uint64_t end = offset + bytes;
  const bool has_room = end < room_end_ && end + room_ahead >= room_end_;
  if (bytes > large || appended_ < enough || has_room) {
    return false;
  }
  room_end_ = end + room_ahead;
  return true;
}

void File::extend(int fd, std::uint64_t epoch, std::uint64_t offset, std::uint64_t bytes) {
  if (bytes == 0 || busy_.test_and_set(std::memory_order_acquire)) {
    return;
  }
  const bool asks = needs_room(offset, bytes);
  if (epoch_.load(std::memory_order_relaxed) == epoch) {
    KnownRange known = range();
    known.add(offset, bytes);
    begin_.store(known.begin);  // it grows only
    end_.store(known.end);
  }
  busy_.clear(std::memory_order_release);
  if (asks) {
    const DoorAhead ahead{.bytes = room_ahead};
    raw(SYS_ioctl, fd, door_ahead, &ahead);
  }
}

// Rule 6. The stores came within the tick of the kernel's last write. If that is long ago, the
// time now would be untrue: the end of that tick is the latest that the stores may have been.
void File::stamp(int fd) {
  if (!stored_.exchange(false, std::memory_order_relaxed) || written_epoch_.load() != epoch()) {
    return;
  }
  timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, {.tv_sec = 0, .tv_nsec = UTIME_NOW}};
  if (tick_of(cycles()) - written_tick_.load() > 2) {
    struct stat status{};
    if (raw(SYS_fstat, fd, &status) != 0) {
      return;
    }
    constexpr long second = 1'000'000'000, tick = 100'000;
    times[1] = status.st_mtim;
    times[1].tv_nsec += tick;
    if (times[1].tv_nsec >= second) {
      times[1].tv_nsec -= second;
      ++times[1].tv_sec;
    }
  }
  raw(SYS_utimensat, fd, nullptr, times, 0);
}

void File::end() {
  for (std::size_t i = 0; i < mapped_; ++i) {
    Mapping& mapping = mappings_[i];
    if (mapping.chunks != mapping.few) {
      raw(SYS_munmap, mapping.chunks, mapping.count());
    }
    raw(SYS_munmap, mapping.base, mapping.bytes);
  }
  mapped_ = 0;
  mapping_.store(nullptr);
  learn(served_.load(std::memory_order_relaxed));
  mount_->mapped_files.fetch_sub(1);
  mount_->leave();
  in_use_.store(false);
}

void File::after_fork(std::uint32_t (*references)(const File&)) {
  adopting.clear();
  for (std::size_t i = 0; i < files_begun.load(); ++i) {
    File& file = files[i];
    // without references another thread of the parent was ending it: it stays as it is
    if (file.in_use_.load() && file.references_.load() != 0) {
      file.busy_.clear();
      file.references_.store(references(file));
      if (file.references_.load() == 0) {
        file.end();
      }
    }
  }
}

}  // namespace efs::intercept
