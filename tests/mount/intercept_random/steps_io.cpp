// SPDX-License-Identifier: BSD-3-Clause
// The steps that read, write, seek and map.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

#include "intercept/raw.hpp"
#include "run.hpp"

namespace efs::intercept_random {
namespace {

using intercept::raw;

// Cuts `bytes` into one to five parts at `memory`, some of them empty.
std::vector<iovec> parts_of(std::uint8_t* memory, std::size_t bytes, std::mt19937_64& rng) {
  std::vector<iovec> parts;
  const auto count = 1 + rng() % 5;
  for (std::size_t i = 1; i <= count; ++i) {
    const std::size_t length = i == count ? bytes : rng() % (bytes + 1);
    parts.push_back({.iov_base = memory, .iov_len = length});
    memory += length;
    bytes -= length;
  }
  return parts;
}

std::span<const std::uint8_t> first(const Bytes& buffer, long count) {
  return {buffer.data(), count > 0 ? static_cast<std::size_t>(count) : 0};
}

}  // namespace

void Run::pread_once() {
  Slot* const slot = some_slot();
  if (slot == nullptr) {
    return;
  }
  const std::size_t bytes = some_size(), offset = some_offset(*slot->description->file);
  say("pread", slot->fd, bytes, "at", offset);
  const Read expected = read_at(*slot->description, bytes, offset);
  if (is_real_) {
    buffer_.resize(bytes + 1);
    const long got =
        result_of(::pread(slot->fd, buffer_.data(), bytes, static_cast<off_t>(offset)));
    check(got, bytes == 0 && expected.result >= 0 ? 0 : expected.result);
    check_bytes(first(buffer_, got), expected.bytes);
  }
}

void Run::pwrite_once() {
  Slot* const slot = some_slot();
  if (slot == nullptr || !may_grow(*slot)) {
    return;
  }
  const std::size_t offset = some_offset(*slot->description->file);
  const Bytes bytes = some_bytes(some_size());
  say("pwrite", slot->fd, bytes.size(), "at", offset);
  const long expected = write_at(*slot->description, bytes, offset);
  if (is_real_) {
    check(result_of(::pwrite(slot->fd, bytes.data(), bytes.size(), static_cast<off_t>(offset))),
          expected);
  }
}

void Run::read_once() {
  Slot* const slot = some_slot();
  if (slot == nullptr) {
    return;
  }
  const std::size_t bytes = some_size();
  say("read", slot->fd, bytes, "from", slot->description->offset);
  const Read expected = read_next(*slot->description, bytes);
  if (is_real_) {
    buffer_.resize(bytes + 1);
    const long got = result_of(::read(slot->fd, buffer_.data(), bytes));
    check(got, expected.result);
    check_bytes(first(buffer_, got), expected.bytes);
  }
}

void Run::write_once() {
  Slot* const slot = some_slot();
  if (slot == nullptr || !may_grow(*slot)) {
    return;
  }
  const Bytes bytes = some_bytes(some_size());
  say("write", slot->fd, bytes.size(), "from", slot->description->offset);
  const long expected = write_next(*slot->description, bytes);
  if (is_real_) {
    check(result_of(::write(slot->fd, bytes.data(), bytes.size())), expected);
  }
}

void Run::readv_once() {
  Slot* const slot = some_slot(&Description::reads);
  if (slot == nullptr) {
    return;
  }
  const std::size_t bytes = some_size();
  say("readv", slot->fd, bytes, "from", slot->description->offset);
  buffer_.resize(bytes + 1);
  const auto parts = parts_of(buffer_.data(), bytes, rng_);
  const Read expected = read_next(*slot->description, bytes);
  if (is_real_) {
    const long got = result_of(::readv(slot->fd, parts.data(), static_cast<int>(parts.size())));
    check(got, expected.result);
    check_bytes(first(buffer_, got), expected.bytes);
  }
}

void Run::writev_once() {
  Slot* const slot = some_slot(&Description::writes);
  if (slot == nullptr || !may_grow(*slot)) {
    return;
  }
  Bytes bytes = some_bytes(some_size());
  say("writev", slot->fd, bytes.size(), "from", slot->description->offset);
  const auto parts = parts_of(bytes.data(), bytes.size(), rng_);
  const long expected = write_next(*slot->description, bytes);
  if (is_real_) {
    check(result_of(::writev(slot->fd, parts.data(), static_cast<int>(parts.size()))), expected);
  }
}

void Run::preadv_once() {
  Slot* const slot = some_slot(&Description::reads);
  if (slot == nullptr) {
    return;
  }
  const std::size_t bytes = some_size(), offset = some_offset(*slot->description->file);
  const bool second = chance(50);
  say(second ? "preadv2" : "preadv", slot->fd, bytes, "at", offset);
  buffer_.resize(bytes + 1);
  const auto parts = parts_of(buffer_.data(), bytes, rng_);
  const Read expected = read_at(*slot->description, bytes, offset);
  if (is_real_) {
    const auto count = static_cast<int>(parts.size());
    const auto at = static_cast<off_t>(offset);
    const long got = result_of(second ? ::preadv2(slot->fd, parts.data(), count, at, 0)
                                      : ::preadv(slot->fd, parts.data(), count, at));
    check(got, expected.result);
    check_bytes(first(buffer_, got), expected.bytes);
  }
}

void Run::pwritev_once() {
  Slot* const slot = some_slot(&Description::writes);
  if (slot == nullptr || !may_grow(*slot)) {
    return;
  }
  // An offset of -1 makes preadv2 and pwritev2 use the file's offset.
  const bool next = chance(30);
  const std::size_t offset = some_offset(*slot->description->file);
  Bytes bytes = some_bytes(some_size());
  say(next ? "pwritev2 next" : "pwritev2", slot->fd, bytes.size(), "at", offset);
  const auto parts = parts_of(bytes.data(), bytes.size(), rng_);
  const long expected =
      next ? write_next(*slot->description, bytes) : write_at(*slot->description, bytes, offset);
  if (is_real_) {
    const off_t at = next ? -1 : static_cast<off_t>(offset);
    check(result_of(::pwritev2(slot->fd, parts.data(), static_cast<int>(parts.size()), at, 0)),
          expected);
  }
}

// Small calls on one descriptor, most of them inside of the file: the library maps it and serves.
void Run::burst() {
  burst_ = some_slot();
  if (burst_ == nullptr) {
    return;
  }
  say("burst", burst_->fd);
  constexpr std::array calls{&Run::pread_once, &Run::pread_once,   &Run::pwrite_once,
                             &Run::read_once,  &Run::write_once,   &Run::preadv_once,
                             &Run::seek,       &Run::pwritev_once, &Run::readv_once};
  const std::size_t kinds = 1 + pick(calls.size());
  for (int i = 0; i < 80; ++i) {
    (this->*calls[pick(kinds)])();
  }
  burst_ = nullptr;
}

void Run::seek() {
  Slot* const slot = some_slot();
  if (slot == nullptr) {
    return;
  }
  auto& description = *slot->description;
  const auto size = static_cast<long>(description.file->data.size());
  const auto before = static_cast<long>(description.offset);
  const auto target =
      static_cast<long>(some_offset(*description.file)) - (chance(3) ? size + 1 : 0);
  const int whence = static_cast<int>(pick(3));
  const long from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? before : size;
  say("lseek", slot->fd, target - from, "whence", whence);
  if (is_real_) {
    check(result_of(::lseek(slot->fd, target - from, whence)), target < 0 ? -EINVAL : target);
  }
  if (target >= 0) {
    description.offset = static_cast<std::size_t>(target);
  }
}

void Run::resize_open() {
  Slot* const slot = some_slot();
  if (slot == nullptr) {
    return;
  }
  const std::size_t size = chance(50) ? pick(slot->description->file->data.size() + 1)
                                      : std::min(largest_file, pick(3) * 1'000'000 + pick(9000));
  say("ftruncate", slot->fd, size);
  const long expected = resize(*slot->description, size);
  if (is_real_) {
    check(result_of(::ftruncate(slot->fd, static_cast<off_t>(size))), expected);
  }
}

void Run::sync() {
  Slot* const slot = some_slot();
  if (slot != nullptr && is_real_) {
    say("fsync", slot->fd);
    check(result_of(::fsync(slot->fd)), 0);
    check(result_of(::fdatasync(slot->fd)), 0);
  }
}

void Run::look_at_size() {
  Slot* const slot = some_slot();
  if (slot == nullptr || !is_real_) {
    return;
  }
  say("fstat", slot->fd);
  struct stat st{};
  check(result_of(::fstat(slot->fd, &st)), 0);
  check(st.st_size, static_cast<long>(slot->description->file->data.size()));
  check(result_of(::lseek(slot->fd, 0, SEEK_CUR)), static_cast<long>(slot->description->offset));
  constexpr int shown = O_ACCMODE | O_APPEND;
  check(result_of(::fcntl(slot->fd, F_GETFL)) & shown, slot->description->flags & shown);
}

// The program makes a system call of its own beside those of the C library.
void Run::raw_pread() {
  Slot* const slot = some_slot();
  if (slot == nullptr) {
    return;
  }
  const std::size_t bytes = some_size(), offset = some_offset(*slot->description->file);
  say("raw pread", slot->fd, bytes, "at", offset);
  const Read expected = read_at(*slot->description, bytes, offset);
  if (is_real_) {
    buffer_.resize(bytes + 1);
    const long got = raw(SYS_pread64, slot->fd, buffer_.data(), bytes, offset);
    check(got, expected.result);
    check_bytes(first(buffer_, got), expected.bytes);
  }
}

void Run::by_syscall() {
  Slot* const slot = some_slot();
  if (slot == nullptr || !may_grow(*slot)) {
    return;
  }
  const std::size_t bytes = some_size();
  if (chance(50)) {
    say("syscall read", slot->fd, bytes, "from", slot->description->offset);
    const Read expected = read_next(*slot->description, bytes);
    if (is_real_) {
      buffer_.resize(bytes + 1);
      const long got = result_of(::syscall(SYS_read, slot->fd, buffer_.data(), bytes));
      check(got, expected.result);
      check_bytes(first(buffer_, got), expected.bytes);
    }
    return;
  }
  const Bytes text = some_bytes(bytes);
  say("syscall write", slot->fd, bytes, "from", slot->description->offset);
  const long expected = write_next(*slot->description, text);
  if (is_real_) {
    check(result_of(::syscall(SYS_write, slot->fd, text.data(), bytes)), expected);
  }
}

void Run::bad_pointer() {
  Slot* const slot = some_slot();
  if (slot == nullptr) {
    return;
  }
  const auto& description = *slot->description;
  const std::size_t bytes = 1 + pick(5000), offset = some_offset(*description.file);
  if (!is_real_) {
    return;
  }
  auto* const nowhere = reinterpret_cast<std::uint8_t*>(8);
  say("pread into nowhere", slot->fd, bytes, "at", offset);
  const Read there = read_at(description, bytes, offset);
  check(result_of(::pread(slot->fd, nowhere, bytes, static_cast<off_t>(offset))),
        there.result > 0 ? -EFAULT : there.result);
  if (offset + bytes <= description.file->data.size()) {
    say("pwrite from nowhere", slot->fd, bytes, "at", offset);
    check(result_of(::pwrite(slot->fd, nowhere, bytes, static_cast<off_t>(offset))),
          description.writes() ? -EFAULT : -EBADF);
  }
  check(result_of(::pread(slot->fd, buffer_.data(), 0, -5)), -EINVAL);
}

void Run::in_thread() {
  if (is_real_) {
    say("in a thread");
    std::jthread([this] {
      pread_once();
      pwrite_once();
      read_once();
    });
    return;
  }
  pread_once();
  pwrite_once();
  read_once();
}

void Run::map_new() {
  Slot* const slot = some_slot(&Description::reads);
  if (slot == nullptr || !slot->description->writes() || !is_real_ || is_child_ ||
      slot->description->file->data.empty() || mappings_.size() > 5) {
    return;
  }
  const std::size_t bytes = slot->description->file->data.size();
  say("mmap", slot->fd, bytes);
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, slot->fd, 0);
  check(memory == MAP_FAILED ? -errno : 0, 0);
  mappings_.push_back({.file = slot->description->file,
                       .address = static_cast<std::uint8_t*>(memory),
                       .offset = 0,
                       .bytes = bytes});
}

void Run::map_load() {
  if (mappings_.empty()) {
    return;
  }
  const Mapping& mapping = mappings_[pick(mappings_.size())];
  const std::size_t size = std::min(mapping.bytes, mapping.file->data.size());
  const std::size_t at = size == 0 ? 0 : pick(size), bytes = std::min(some_size(), size - at);
  say("load", bytes, "at", at);
  if (is_real_) {
    check_bytes({mapping.address + at, bytes}, std::span(mapping.file->data).subspan(at, bytes));
  }
}

void Run::map_store() {
  if (mappings_.empty()) {
    return;
  }
  const Mapping& mapping = mappings_[pick(mappings_.size())];
  const std::size_t size = std::min(mapping.bytes, mapping.file->data.size());
  const std::size_t at = size == 0 ? 0 : pick(size), count = std::min(some_size(), size - at);
  const Bytes bytes = some_bytes(count);
  say("store", count, "at", at);
  store(*mapping.file, bytes, at);
  if (is_real_) {
    std::ranges::copy(bytes, mapping.address + at);
  }
}

void Run::map_end() {
  if (mappings_.empty() || !is_real_ || is_child_) {
    return;
  }
  const std::size_t which = pick(mappings_.size());
  say("munmap", which);
  ::munmap(mappings_[which].address, mappings_[which].bytes);
  mappings_.erase(mappings_.begin() + static_cast<std::ptrdiff_t>(which));
}

// The kernel may send less than asked for: its result decides.
void Run::send_file() {
  Slot* const from = some_slot(&Description::reads);
  Slot* const to = some_slot(&Description::writes);
  if (!is_real_ || is_child_ || from == nullptr || to == nullptr ||
      from->description->file == to->description->file ||
      (to->description->flags & O_APPEND) != 0 || !may_grow(*to)) {
    return;
  }
  const std::size_t bytes = some_size();
  const bool is_range = chance(50);
  say(is_range ? "copy_file_range" : "sendfile", to->fd, from->fd, bytes);
  const Read expected = read_at(*from->description, bytes, from->description->offset);
  const Bytes moved(expected.bytes.begin(), expected.bytes.end());
  const long got =
      result_of(is_range ? ::copy_file_range(from->fd, nullptr, to->fd, nullptr, bytes, 0)
                         : ::sendfile(to->fd, from->fd, nullptr, bytes));
  if (got < 0 || got > expected.result || (got == 0 && expected.result > 0)) {
    check(got, expected.result);
  }
  from->description->offset += static_cast<std::size_t>(got);
  check(write_next(*to->description, std::span(moved).first(static_cast<std::size_t>(got))), got);
}

}  // namespace efs::intercept_random
