// SPDX-License-Identifier: BSD-3-Clause
#include "support/slab_backend.hpp"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/unique_fd.hpp"

namespace efs::test {
namespace {

constexpr std::uint64_t block_bytes = 4096, entries = 8192,
                        mark = 0x62616c7320736665;  // "efs slab"
constexpr std::uint64_t largest_index = UINT32_MAX;

// --- the file: a header, the entries, the blocks' owners, the blocks
struct Header {
  std::uint64_t mark, blocks;
};

enum class State : std::uint64_t { free, used, removed };

/// A container. An entry that is `removed` has blocks that the next process frees.
struct Entry {
  std::uint64_t state, id, label, size;
  Nanoseconds atime, mtime, ctime;
};

/// The container of a block, and the position in it. One word: a block belongs to one container or
/// to none, whenever the process dies.
struct alignas(8) Owner {
  std::uint32_t entry_plus_one = 0;  // 0: the block is free
  std::uint32_t index = 0;
};

static_assert(sizeof(Owner) == 8);

std::uint64_t round_up(std::uint64_t bytes) {
  return (bytes + block_bytes - 1) / block_bytes * block_bytes;
}

std::uint64_t label_of(const std::string& owner) {
  std::uint64_t label = 0xcbf29ce484222325;
  for (const char c : owner) {
    label = (label ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return label | 1;  // 0 is no label
}

Nanoseconds stamp() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME_COARSE, &now);  // as the kernel stamps files
  return to_ns(now);
}

/// Stores a word after everything that was stored before it.
template <typename Word>
void publish(Word& word, Word value) {
  std::atomic_ref(word).store(value, std::memory_order_release);
}

class SlabSegment;

/// A container in memory. `mutex` of the slab guards it.
struct Content {
  std::uint32_t entry = 0;
  std::map<std::uint64_t, std::uint32_t> blocks;  // by position
  std::set<SlabSegment*> segments;
  unsigned users = 0;    // containers and segments
  unsigned writers = 0;  // those that can write
};

/// The mapped file. Every public member that changes or reads a container takes the mutex.
class Slab : public std::enable_shared_from_this<Slab> {
 public:
  Slab() = default;

  ~Slab() {
    if (base_ != nullptr) {
      ::munmap(base_, length_);
    }
  }

  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  Status open(const SlabOptions& options);

  Result<std::shared_ptr<Content>> create(std::uint64_t id);
  Result<std::shared_ptr<Content>> find(std::uint64_t id);
  std::optional<std::uint64_t> remove(std::uint64_t id);
  Status label(std::uint64_t id);
  Ownership ownership(std::uint64_t id);

  void use(Content& content, bool writes) {
    const std::lock_guard lock(mutex);
    ++content.users;
    content.writers += writes ? 1 : 0;
  }

  void release(const std::shared_ptr<Content>& content, bool writes);

  std::vector<std::uint64_t> ids() {
    const std::lock_guard lock(mutex);
    std::vector<std::uint64_t> all;
    for (const auto& [id, content] : contents_) {
      all.push_back(id);
    }
    return all;
  }

  bool is_written(std::uint64_t id, bool unknown) {
    const std::lock_guard lock(mutex);
    const auto found = contents_.find(id);
    return found == contents_.end() ? unknown : found->second->writers > 0;
  }

  Space space() {
    const std::lock_guard lock(mutex);
    const std::uint64_t capacity = blocks_ * block_bytes, available = free_.size() * block_bytes;
    return {.capacity = capacity, .used = capacity - available, .available = available};
  }

  // --- under `mutex`
  std::mutex mutex;

  Entry& entry(const Content& content) { return entries_[content.entry]; }

  std::byte* at(std::uint32_t block) { return data_ + block * block_bytes; }

  Status allocate(Content& content, std::uint64_t index);
  void free(Content& content, std::uint64_t index);
  /// Zeroes the bytes of the range that have a block.
  void zero(Content& content, std::uint64_t begin, std::uint64_t end);
  Status truncate(Content& content, std::uint64_t size);
  Status reserve(Content& content, std::uint64_t begin, std::uint64_t end);
  void punch(Content& content, std::uint64_t begin, std::uint64_t end);
  std::size_t write(Content& content, std::span<const std::byte> from, std::uint64_t offset);
  std::size_t read(Content& content, std::span<std::byte> into, std::uint64_t offset);
  struct stat attributes(const Content& content);

  void changed(Content& content) { entry(content).mtime = entry(content).ctime = stamp(); }

  /// Shows the block, or nothing, at this address of a segment.
  void show(std::byte* address, std::optional<std::uint32_t> block) {
    const void* shown =
        block ? ::mmap(address, block_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                       fd_.get(), at(*block) - base_)
              : ::mmap(address, block_bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (shown != address) {
      std::abort();  // the segment would show another container's block
    }
  }

 private:
  bool is_used(std::uint32_t entry) const {
    return entries_[entry].state == static_cast<std::uint64_t>(State::used);
  }

  void recover();
  void free_all(Content& content);
  void show_in_segments(Content& content, std::uint64_t index, std::optional<std::uint32_t> block);

  UniqueFd fd_;
  std::byte* base_ = nullptr;
  std::size_t length_ = 0;
  std::uint64_t label_ = 0, blocks_ = 0;
  Entry* entries_ = nullptr;
  Owner* owners_ = nullptr;
  std::byte* data_ = nullptr;
  std::set<std::uint32_t> free_, free_entries_;
  std::unordered_map<std::uint64_t, std::shared_ptr<Content>> contents_;
};

/// A window of a container: reserved addresses that show the blocks it has now.
class SlabSegment final : public Segment {
 public:
  SlabSegment(std::shared_ptr<Slab> slab, std::shared_ptr<Content> content, std::uint64_t offset,
              std::span<std::byte> window, bool writes)
      : slab_(std::move(slab)),
        content_(std::move(content)),
        offset_(offset),
        window_(window),
        writes_(writes) {
    slab_->use(*content_, writes_);
    const std::lock_guard lock(slab_->mutex);
    for (const auto& [index, block] : content_->blocks) {
      show(index, block);
    }
    content_->segments.insert(this);
  }

  ~SlabSegment() override {
    {
      const std::lock_guard lock(slab_->mutex);
      content_->segments.erase(this);
    }
    ::munmap(window_.data(), window_.size());
    slab_->release(content_, writes_);
  }

  SlabSegment(const SlabSegment&) = delete;
  SlabSegment& operator=(const SlabSegment&) = delete;

  void show(std::uint64_t index, std::optional<std::uint32_t> block) {
    if (const std::uint64_t at = index * block_bytes;
        at >= offset_ && at < offset_ + window_.size()) {
      slab_->show(window_.data() + (at - offset_), block);
    }
  }

  std::span<std::byte> bytes() override { return window_; }

  void store(std::size_t offset, std::span<const std::byte> data) override {
    std::memcpy(window_.data() + offset, data.data(), data.size());
    const std::lock_guard lock(slab_->mutex);
    slab_->changed(*content_);
  }

 private:
  const std::shared_ptr<Slab> slab_;
  const std::shared_ptr<Content> content_;
  const std::uint64_t offset_;
  const std::span<std::byte> window_;
  const bool writes_;
};

Status Slab::open(const SlabOptions& options) {
  fd_.reset(::open(options.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  struct stat st{};
  if (!fd_ || ::fstat(fd_.get(), &st) != 0) {
    return fail_errno(options.path);
  }
  Header header{.mark = mark, .blocks = round_up(options.size) / block_bytes};
  if (st.st_size > 0 &&
      (::pread(fd_.get(), &header, sizeof header, 0) != sizeof header || header.mark != mark)) {
    return fail(EUCLEAN, options.path + " is no slab");
  }
  blocks_ = header.blocks;
  label_ = label_of(options.owner);
  const std::uint64_t entries_at = block_bytes,
                      owners_at = entries_at + round_up(entries * sizeof(Entry)),
                      data_at = owners_at + round_up(blocks_ * sizeof(Owner));
  length_ = data_at + blocks_ * block_bytes;
  if (st.st_size == 0 && ::ftruncate(fd_.get(), static_cast<off_t>(length_)) != 0) {
    return fail_errno(options.path);
  }
  void* base = ::mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (base == MAP_FAILED) {
    return fail_errno(options.path);
  }
  base_ = static_cast<std::byte*>(base);
  std::memcpy(base_, &header, sizeof header);
  entries_ = reinterpret_cast<Entry*>(base_ + entries_at);
  owners_ = reinterpret_cast<Owner*>(base_ + owners_at);
  data_ = base_ + data_at;
  recover();
  return {};
}

/// Reads the table. Frees the containers that the former process had removed and still used, and
/// zeroes what it had written beyond the ends of others.
void Slab::recover() {
  const std::lock_guard lock(mutex);
  std::unordered_map<std::uint32_t, std::shared_ptr<Content>> by_entry;
  for (std::uint32_t i = 0; i < entries; ++i) {
    if (is_used(i)) {
      by_entry[i] = contents_[entries_[i].id] = std::make_shared<Content>();
      by_entry[i]->entry = i;
    } else {
      free_entries_.insert(i);
    }
  }
  for (std::uint32_t block = 0; block < blocks_; ++block) {
    Owner& owner = owners_[block];
    const auto found =
        owner.entry_plus_one == 0 ? by_entry.end() : by_entry.find(owner.entry_plus_one - 1);
    if (found != by_entry.end()) {
      found->second->blocks[owner.index] = block;
    } else {
      publish(owner, Owner{});
      free_.insert(block);
    }
  }
  for (const auto i : free_entries_) {
    publish(entries_[i].state, static_cast<std::uint64_t>(State::free));
  }
  for (auto& [id, content] : contents_) {
    zero(*content, entry(*content).size, UINT64_MAX);
  }
}

Result<std::shared_ptr<Content>> Slab::create(std::uint64_t id) {
  const std::lock_guard lock(mutex);
  if (contents_.contains(id)) {
    return fail(EEXIST);
  }
  if (free_entries_.empty()) {
    return fail(ENOSPC);
  }
  auto content = std::make_shared<Content>();
  content->entry = *free_entries_.begin();
  contents_[id] = content;
  free_entries_.erase(free_entries_.begin());
  Entry& made = entry(*content);
  made.id = id;
  made.label = label_;
  made.size = 0;
  made.atime = made.mtime = made.ctime = stamp();
  publish(made.state, static_cast<std::uint64_t>(State::used));
  return content;
}

Result<std::shared_ptr<Content>> Slab::find(std::uint64_t id) {
  const std::lock_guard lock(mutex);
  const auto found = contents_.find(id);
  if (found == contents_.end()) {
    return fail(ENOENT);
  }
  if (const auto label = entry(*found->second).label; label != label_) {
    return fail(EUCLEAN,
                "container " + std::to_string(id) +
                    (label == 0 ? " has lost its label" : " is labelled as another one's"));
  }
  return found->second;
}

std::optional<std::uint64_t> Slab::remove(std::uint64_t id) {
  const std::lock_guard lock(mutex);
  const auto found = contents_.find(id);
  if (found == contents_.end()) {
    return 0;
  }
  const auto content = found->second;
  if (const auto label = entry(*content).label; label != 0 && label != label_) {
    return std::nullopt;
  }
  const std::uint64_t freed = content->blocks.size() * block_bytes;
  publish(entry(*content).state, static_cast<std::uint64_t>(State::removed));
  contents_.erase(found);
  if (content->users == 0) {
    free_all(*content);
  }
  return freed;
}

Status Slab::label(std::uint64_t id) {
  if (ownership(id) == Ownership::another) {
    return fail(EUCLEAN, "container " + std::to_string(id) + " is labelled as another one's");
  }
  const std::lock_guard lock(mutex);
  const auto found = contents_.find(id);
  if (found == contents_.end()) {
    return fail(ENOENT);
  }
  entry(*found->second).label = label_;
  return {};
}

Ownership Slab::ownership(std::uint64_t id) {
  const std::lock_guard lock(mutex);
  const auto found = contents_.find(id);
  if (found == contents_.end() || entry(*found->second).label == label_) {
    return Ownership::own;
  }
  const Entry& entry = this->entry(*found->second);
  return entry.label != 0  ? Ownership::another
         : entry.size == 0 ? Ownership::unfinished
                           : Ownership::own;
}

void Slab::release(const std::shared_ptr<Content>& content, bool writes) {
  const std::lock_guard lock(mutex);
  content->writers -= writes ? 1 : 0;
  if (--content->users == 0 && !is_used(content->entry)) {
    free_all(*content);
  }
}

/// The blocks first: an entry that is free owns none.
void Slab::free_all(Content& content) {
  while (!content.blocks.empty()) {
    free(content, content.blocks.begin()->first);
  }
  publish(entry(content).state, static_cast<std::uint64_t>(State::free));
  free_entries_.insert(content.entry);
}

void Slab::show_in_segments(Content& content, std::uint64_t index,
                            std::optional<std::uint32_t> block) {
  for (auto* segment : content.segments) {
    segment->show(index, block);
  }
}

Status Slab::allocate(Content& content, std::uint64_t index) {
  if (content.blocks.contains(index)) {
    return {};
  }
  if (index > largest_index) {
    return fail(EFBIG);
  }
  if (free_.empty()) {
    return fail(ENOSPC);
  }
  const std::uint32_t block = *free_.begin();
  content.blocks[index] = block;
  free_.erase(free_.begin());
  std::memset(at(block), 0, block_bytes);  // before it is the container's
  publish(owners_[block], Owner{content.entry + 1, static_cast<std::uint32_t>(index)});
  show_in_segments(content, index, block);
  return {};
}

void Slab::free(Content& content, std::uint64_t index) {
  const auto found = content.blocks.find(index);
  if (found == content.blocks.end()) {
    return;
  }
  show_in_segments(content, index, std::nullopt);
  publish(owners_[found->second], Owner{});
  free_.insert(found->second);
  content.blocks.erase(found);
}

void Slab::zero(Content& content, std::uint64_t begin, std::uint64_t end) {
  for (auto block = content.blocks.lower_bound(begin / block_bytes);
       block != content.blocks.end() && block->first * block_bytes < end; ++block) {
    const std::uint64_t start = block->first * block_bytes;
    const std::uint64_t from = std::max(begin, start) - start,
                        to = std::min(end - start, block_bytes);
    std::memset(at(block->second) + from, 0, to - from);
  }
}

Status Slab::truncate(Content& content, std::uint64_t size) {
  const std::uint64_t before = entry(content).size;
  publish(entry(content).size, size);
  if (size < before) {
    for (auto block = content.blocks.lower_bound(round_up(size) / block_bytes);
         block != content.blocks.end();) {
      free(content, (block++)->first);
    }
    zero(content, size, UINT64_MAX);
  }
  changed(content);
  return {};
}

Status Slab::reserve(Content& content, std::uint64_t begin, std::uint64_t end) {
  std::uint64_t missing = 0;
  for (std::uint64_t index = begin / block_bytes; index * block_bytes < end; ++index) {
    missing += content.blocks.contains(index) ? 0 : 1;
    if (missing > free_.size()) {
      return fail(ENOSPC);
    }
  }
  for (std::uint64_t index = begin / block_bytes; index * block_bytes < end; ++index) {
    EFS_TRY(allocate(content, index));
  }
  return {};
}

void Slab::punch(Content& content, std::uint64_t begin, std::uint64_t end) {
  zero(content, begin, end);
  for (auto block = content.blocks.lower_bound(round_up(begin) / block_bytes);
       block != content.blocks.end() && (block->first + 1) * block_bytes <= end;) {
    free(content, (block++)->first);
  }
}

std::size_t Slab::write(Content& content, std::span<const std::byte> from, std::uint64_t offset) {
  std::size_t done = 0;
  while (done < from.size()) {
    const std::uint64_t at_byte = offset + done, index = at_byte / block_bytes,
                        within = at_byte % block_bytes;
    if (!allocate(content, index)) {
      break;
    }
    const auto part = std::min<std::uint64_t>(from.size() - done, block_bytes - within);
    std::memcpy(at(content.blocks[index]) + within, from.data() + done, part);
    done += part;
  }
  if (done > 0) {
    publish(entry(content).size, std::max(entry(content).size, offset + done));
    changed(content);
  }
  return done;
}

std::size_t Slab::read(Content& content, std::span<std::byte> into, std::uint64_t offset) {
  const std::uint64_t size = entry(content).size;
  const std::uint64_t most =
      offset < size ? std::min<std::uint64_t>(into.size(), size - offset) : 0;
  for (std::uint64_t done = 0; done < most;) {
    const std::uint64_t within = (offset + done) % block_bytes,
                        part = std::min(most - done, block_bytes - within);
    const auto block = content.blocks.find((offset + done) / block_bytes);
    if (block == content.blocks.end()) {
      std::memset(into.data() + done, 0, part);
    } else {
      std::memcpy(into.data() + done, at(block->second) + within, part);
    }
    done += part;
  }
  return most;
}

struct stat Slab::attributes(const Content& content) {
  const Entry& entry = this->entry(content);
  struct stat st{};
  st.st_mode = S_IFREG | 0600;
  st.st_nlink = 1;
  st.st_size = static_cast<off_t>(entry.size);
  st.st_blksize = block_bytes;
  st.st_blocks = static_cast<blkcnt_t>(content.blocks.size() * (block_bytes / 512));
  st.st_atim = to_timespec(entry.atime);
  st.st_mtim = to_timespec(entry.mtime);
  st.st_ctim = to_timespec(entry.ctime);
  return st;
}

void set_times_of(Entry& entry, std::optional<FileTime> atime, std::optional<FileTime> mtime) {
  const Nanoseconds now = entry.ctime = stamp();
  const auto time_of = [now](const FileTime& wanted) {
    return wanted == stamp_now ? now : to_ns(to_timespec(wanted));
  };
  entry.atime = atime ? time_of(*atime) : entry.atime;
  entry.mtime = mtime ? time_of(*mtime) : entry.mtime;
}

class SlabContainer final : public Container {
 public:
  SlabContainer(std::shared_ptr<Slab> slab, std::shared_ptr<Content> content, bool writes)
      : slab_(std::move(slab)), content_(std::move(content)), writes_(writes) {
    slab_->use(*content_, writes_);
  }

  ~SlabContainer() override { slab_->release(content_, writes_); }

  SlabContainer(const SlabContainer&) = delete;
  SlabContainer& operator=(const SlabContainer&) = delete;

  Result<std::size_t> read(std::span<std::byte> into, std::uint64_t offset) override {
    const std::lock_guard lock(slab_->mutex);
    return slab_->read(*content_, into, offset);
  }

  Result<std::size_t> write(std::span<const std::byte> from, std::uint64_t offset) override {
    EFS_TRY(may_write());
    const std::lock_guard lock(slab_->mutex);
    const std::size_t done = slab_->write(*content_, from, offset);
    return done > 0 || from.empty() ? Result<std::size_t>(done) : fail(ENOSPC);
  }

  Status truncate(std::uint64_t size) override {
    EFS_TRY(may_write());
    const std::lock_guard lock(slab_->mutex);
    return slab_->truncate(*content_, size);
  }

  Status allocate(int mode, std::uint64_t offset, std::uint64_t length) override {
    EFS_TRY(may_write());
    if (length == 0) {
      return fail(EINVAL);
    }
    const std::uint64_t end = offset + length;
    const bool keeps_size = (mode & FALLOC_FL_KEEP_SIZE) != 0;
    const std::lock_guard lock(slab_->mutex);
    switch (mode & ~FALLOC_FL_KEEP_SIZE) {
      case 0: EFS_TRY(slab_->reserve(*content_, offset, end)); break;
      case FALLOC_FL_ZERO_RANGE:
        EFS_TRY(slab_->reserve(*content_, offset, end));
        slab_->zero(*content_, offset, end);
        break;
      case FALLOC_FL_PUNCH_HOLE:
        if (!keeps_size) {
          return fail(EOPNOTSUPP);
        }
        slab_->punch(*content_, offset, end);
        break;
      default: return fail(EOPNOTSUPP);
    }
    Entry& entry = slab_->entry(*content_);
    if (!keeps_size && entry.size < end) {
      publish(entry.size, end);
    }
    slab_->changed(*content_);
    return {};
  }

  Result<std::uint64_t> seek(std::uint64_t offset, int whence) override {
    const std::lock_guard lock(slab_->mutex);
    const std::uint64_t size = slab_->entry(*content_).size;
    if (offset >= size) {
      return fail(ENXIO);
    }
    const auto& blocks = content_->blocks;
    auto block = blocks.lower_bound(offset / block_bytes);
    if (whence == SEEK_DATA) {
      return block == blocks.end() || block->first * block_bytes >= size
                 ? Result<std::uint64_t>(fail(ENXIO))
                 : std::max(offset, block->first * block_bytes);
    }
    std::uint64_t hole = offset / block_bytes;
    for (; block != blocks.end() && block->first == hole; ++block) {
      ++hole;
    }
    return std::min(size, std::max(offset, hole * block_bytes));
  }

  Result<struct stat> attributes() override {
    const std::lock_guard lock(slab_->mutex);
    return slab_->attributes(*content_);
  }

  Status set_times(std::optional<FileTime> atime, std::optional<FileTime> mtime) override {
    const std::lock_guard lock(slab_->mutex);
    set_times_of(slab_->entry(*content_), atime, mtime);
    return {};
  }

  void accessed(AccessTimes policy) override {
    const std::lock_guard lock(slab_->mutex);
    Entry& entry = slab_->entry(*content_);
    if (atime_is_due(policy, entry.atime, entry.mtime, entry.ctime)) {
      entry.atime = stamp();
    }
  }

  Status sync(bool) override { return {}; }

  Result<std::unique_ptr<Segment>> map(std::uint64_t offset, std::size_t length) override {
    if (offset % block_bytes != 0) {
      return fail(EINVAL);
    }
    void* window = ::mmap(nullptr, round_up(length), PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (window == MAP_FAILED) {
      return fail_errno();
    }
    return std::make_unique<SlabSegment>(
        slab_, content_, offset, std::span(static_cast<std::byte*>(window), round_up(length)),
        writes_);
  }

  void will_need(std::uint64_t, std::uint64_t) override {}

  Status clone(const Container&) override { return fail(EOPNOTSUPP); }

  std::optional<int> descriptor() const override { return std::nullopt; }

 private:
  Status may_write() const { return writes_ ? Status{} : fail(EBADF); }

  const std::shared_ptr<Slab> slab_;
  const std::shared_ptr<Content> content_;
  const bool writes_;
};

class SlabBackend final : public PlainBackend {
 public:
  explicit SlabBackend(std::shared_ptr<Slab> slab) : slab_(std::move(slab)) {}

  Result<std::shared_ptr<Container>> create(std::uint64_t id, CachePolicy) override {
    return opened(slab_->create(id), true);
  }

  Result<std::shared_ptr<Container>> open(std::uint64_t id, CachePolicy policy) override {
    return opened(slab_->find(id), policy != CachePolicy::only_read);
  }

  Result<std::shared_ptr<Container>> adopt(std::uint64_t, Container&) override {
    return fail(EXDEV);
  }

  Status label(std::uint64_t id) override { return slab_->label(id); }

  Ownership ownership(std::uint64_t id) override { return slab_->ownership(id); }

  std::optional<std::uint64_t> remove(std::uint64_t id) override { return slab_->remove(id); }

  Result<struct stat> attributes(std::uint64_t id) override {
    const auto container = open(id, CachePolicy::only_read);
    return container ? (*container)->attributes() : std::unexpected(container.error());
  }

  Status set_times(std::uint64_t id, std::optional<FileTime> atime,
                   std::optional<FileTime> mtime) override {
    const auto container = open(id, CachePolicy::only_read);
    return container ? (*container)->set_times(atime, mtime) : std::unexpected(container.error());
  }

  Status sync_name(std::uint64_t) override { return {}; }

  Status sync_all() override { return {}; }

  Status for_each(const std::function<void(std::uint64_t id)>& visit) override {
    for (const auto id : slab_->ids()) {
      visit(id);
    }
    return {};
  }

  // No process but this one has the file, and programs get no descriptor.
  bool may_be_written(std::uint64_t id) override { return slab_->is_written(id, true); }

  // The file system counts every open of its programs.
  bool may_be_open(std::uint64_t id) override { return slab_->is_written(id, true); }

  bool is_written(std::uint64_t id) override { return slab_->is_written(id, false); }

  Space space() override { return slab_->space(); }

  Status admit_writer() override { return {}; }

  void look_again(bool) override {}

  void await_removed() override {}

  Durability durability() const override { return Durability::cache_line; }

  bool offers_descriptor() const override { return false; }

  bool zeros_take_space() const override { return false; }

  std::string description() const override { return "slab"; }

 private:
  Result<std::shared_ptr<Container>> opened(Result<std::shared_ptr<Content>> content, bool writes) {
    if (!content) {
      return std::unexpected(content.error());
    }
    return std::make_shared<SlabContainer>(slab_, std::move(*content), writes);
  }

  const std::shared_ptr<Slab> slab_;
};

}  // namespace

Result<std::unique_ptr<Backend>> make_slab(const SlabOptions& options) {
  auto slab = std::make_shared<Slab>();
  EFS_TRY(slab->open(options));
  return std::make_unique<SlabBackend>(std::move(slab));
}

}  // namespace efs::test
