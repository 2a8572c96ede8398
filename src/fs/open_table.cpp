// SPDX-License-Identifier: BSD-3-Clause
#include "fs/open_table.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace efs::fs {
namespace {

constexpr std::uint64_t low_half = 0xFFFF'FFFF;
constexpr std::uint64_t next_tag = std::uint64_t{1} << 32U;
constexpr std::size_t cache_line = 64;                         // bytes
constexpr std::uint32_t daemon_bit = std::uint32_t{1} << 31U;  // no flag of open(2)

}  // namespace

void OpenTable::Unmap::operator()(std::byte* memory) const {
  ::munmap(memory, bytes);
}

// Zeroed memory is an empty table. It has atomic integers only, which need no constructor.
OpenTable::OpenTable(Memory memory, std::size_t slots)
    : memory_(std::move(memory)),
      used_(*reinterpret_cast<std::atomic<std::uint64_t>*>(memory_.get())),
      slots_(reinterpret_cast<Slot*>(memory_.get() + cache_line)),
      most_(slots) {}

// Not a memory file: its size would count against RLIMIT_FSIZE. MAP_NORESERVE: a page counts when
// it is touched, but from the beginning if vm.overcommit_memory is 2. Then, or within RLIMIT_AS,
// there may be memory for fewer slots only.
Result<std::unique_ptr<OpenTable>> OpenTable::make(std::size_t slots) {
  constexpr int shared = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
  std::size_t bytes = cache_line + slots * sizeof(Slot);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, shared, -1, 0);
  while (memory == MAP_FAILED && errno == ENOMEM && slots > fewest_slots) {
    slots = std::max(slots / 2, fewest_slots);
    bytes = cache_line + slots * sizeof(Slot);
    memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, shared, -1, 0);
  }
  if (memory == MAP_FAILED) {
    return fail_errno("memory for the table of open files");
  }
  return std::unique_ptr<OpenTable>(
      new OpenTable(Memory(static_cast<std::byte*>(memory), Unmap{.bytes = bytes}), slots));
}

Result<std::uint64_t> OpenTable::open(const OpenFile& file) {
  const auto index = take_slot();
  if (!index) {
    return fail(ENFILE);  // no text, which may need memory: the caller has counted the open
  }
  Slot& slot = slots_[*index];
  const std::uint64_t generation = (slot.state.load(std::memory_order_relaxed) | low_half) + 1;
  const std::uint64_t state = generation | static_cast<std::uint64_t>(file.owner.kind);
  // Released each: a visit that reads one of them finds that the state has changed.
  slot.ino.store(file.ino, std::memory_order_release);
  slot.request.store(file.request, std::memory_order_release);
  slot.flags.store(static_cast<std::uint32_t>(file.flags) | (file.by_daemon ? daemon_bit : 0),
                   std::memory_order_release);
  slot.number.store(file.owner.number, std::memory_order_release);
  slot.state.store(state, std::memory_order_release);
  return handle_of(*index, state);
}

std::optional<OpenFile> OpenTable::close(std::uint64_t handle) {
  const std::uint64_t index = handle & low_half;
  if (index >= most_) {
    return std::nullopt;
  }
  std::uint64_t state = slots_[index].state.load(std::memory_order_acquire);
  if (handle_of(index, state) != handle) {
    return std::nullopt;
  }
  const auto file = entry(index, state);
  // The generation stays, so a later entry of the slot has the next one.
  if (!file || !slots_[index].state.compare_exchange_strong(state, state & ~low_half)) {
    return std::nullopt;
  }
  give_back(index);
  return file;
}

void OpenTable::note_daemon_path(std::uint64_t handle) {
  slots_[handle & low_half].flags.fetch_or(daemon_bit, std::memory_order_release);
}

std::optional<std::uint64_t> OpenTable::find(const Owner& owner, std::uint64_t request) const {
  std::optional<std::uint64_t> found;
  for_each([&](std::uint64_t handle, const OpenFile& file) {
    if (request != 0 && file.request == request && file.owner == owner) {
      found = handle;
    }
  });
  return found;
}

void OpenTable::restore() {
  free_ = 0;
  for (std::uint64_t i = used_.load(); i > 0; --i) {
    if ((slots_[i - 1].state.load() & low_half) == 0) {
      give_back(i - 1);
    }
  }
}

void OpenTable::clear() {
  restore();
  for_each([this](std::uint64_t handle, const OpenFile&) { close(handle); });
}

std::optional<OpenFile> OpenTable::entry(std::uint64_t index, std::uint64_t state) const {
  if ((state & low_half) == 0) {
    return std::nullopt;
  }
  const Slot& slot = slots_[index];
  OpenFile file;
  file.ino = slot.ino.load(std::memory_order_acquire);
  file.request = slot.request.load(std::memory_order_acquire);
  const std::uint32_t flags = slot.flags.load(std::memory_order_acquire);
  file.flags = static_cast<int>(flags & ~daemon_bit);
  file.by_daemon = (flags & daemon_bit) != 0;
  file.owner = {.kind = static_cast<Owner::Kind>(state & low_half),
                .number = slot.number.load(std::memory_order_acquire)};
  return slot.state.load(std::memory_order_acquire) == state ? std::optional(file) : std::nullopt;
}

std::optional<std::uint64_t> OpenTable::take_slot() {
  std::uint64_t first = free_.load(std::memory_order_acquire);
  while ((first & low_half) != 0) {
    const std::uint64_t index = (first & low_half) - 1;
    // If another thread has taken the slot meanwhile, this is no link, and the tag differs.
    const std::uint64_t next = slots_[index].ino.load(std::memory_order_relaxed) & low_half;
    if (free_.compare_exchange_weak(first, ((first & ~low_half) + next_tag) | next)) {
      return index;
    }
  }
  // Before the entry: a successor looks at no slot beyond `used`.
  std::uint64_t used = used_.load();
  while (used < most_) {
    if (used_.compare_exchange_weak(used, used + 1)) {
      return used;
    }
  }
  return std::nullopt;
}

void OpenTable::give_back(std::uint64_t index) {
  std::uint64_t first = free_.load(std::memory_order_relaxed);
  do {
    // Released, as in open(): a visit that reads the link for the inode of the entry that was
    // closed finds that the state has changed.
    slots_[index].ino.store(first & low_half, std::memory_order_release);
  } while (!free_.compare_exchange_weak(first, ((first & ~low_half) + next_tag) | (index + 1)));
}

}  // namespace efs::fs
