// SPDX-License-Identifier: BSD-3-Clause
#include "run.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace efs::intercept_random {

long result_of(long returned) {
  return returned < 0 ? -errno : returned;
}

Run::Run(std::string directory, std::uint64_t seed, Outsider& outsider)
    : directory_(std::move(directory)), seed_(seed), rng_(seed), outsider_(outsider) {
  for (int i = 0; i < file_names; ++i) {
    paths_.push_back(directory_ + "/f" + std::to_string(i));
  }
  for (int fd = 0; fd < 1024; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) {
      foreign_.insert(fd);
    }
  }
}

std::size_t Run::pick(std::size_t below) {
  return static_cast<std::size_t>(rng_() % below);
}

bool Run::chance(int percent) {
  return pick(100) < static_cast<std::size_t>(percent);
}

std::size_t Run::some_size() {
  if (burst_ != nullptr) {
    return pick(2000);
  }
  const auto kind = pick(100);
  if (kind < 50) {
    return pick(600);
  }
  if (kind < 80) {
    return chance(30) ? 4096 : pick(9000);
  }
  return kind < 95 ? pick(70'000) : kind < 99 ? pick(300'000) : pick(1'300'000);
}

std::size_t Run::some_offset(const File& file) {
  const std::size_t size = file.data.size();
  if (burst_ != nullptr && size > 2000 && chance(95)) {
    return pick(size - 2000);
  }
  const auto kind = pick(100);
  std::size_t offset = size + pick(100'000);
  if (kind < 60 && size > 0) {
    offset = pick(size);
  } else if (kind < 80) {
    offset = size - std::min(size, pick(5000));
  } else if (kind < 92) {
    offset = pick(size / 4096 + 1) * 4096;
  }
  return std::min(offset, largest_file);
}

Bytes Run::some_bytes(std::size_t count) {
  Bytes bytes(count);
  std::uint64_t word = rng_();
  for (auto& byte : bytes) {
    word ^= word << 13;
    word ^= word >> 7;
    word ^= word << 17;
    byte = static_cast<std::uint8_t>(word);
  }
  return bytes;
}

Slot* Run::some_slot() {
  if (burst_ != nullptr) {
    return burst_;
  }
  return slots_.empty() ? nullptr : &slots_[pick(slots_.size())];
}

Slot* Run::some_slot(bool (Description::*can)() const) {
  for (int tries = 0; tries < 4; ++tries) {
    Slot* const slot = some_slot();
    if (slot != nullptr && ((*slot->description).*can)()) {
      return slot;
    }
  }
  return nullptr;
}

bool Run::may_grow(const Slot& slot) {
  constexpr std::size_t margin = 2'000'000;
  return slot.description->offset <= largest_file &&
         slot.description->file->data.size() <= largest_file + margin;
}

int Run::some_name() {
  const auto first = pick(file_names);
  for (std::size_t i = 0; i < file_names; ++i) {
    const auto name = (first + i) % file_names;
    if (names_[name]) {
      return static_cast<int>(name);
    }
  }
  return -1;
}

int Run::lowest_free() const {
  int fd = 0;
  const auto is_used = [&] {
    return foreign_.contains(fd) || std::ranges::find(slots_, fd, &Slot::fd) != slots_.end();
  };
  while (is_used()) {
    ++fd;
  }
  return fd;
}

int Run::check_new(long got, int expected) {
  const auto number = static_cast<int>(got);
  foreign_.erase(number);
  for (int fd = expected; fd < number; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) {
      check(got, fd);
    }
    foreign_.insert(fd);
  }
  if (got < 0) {
    check(got, expected);
  }
  return number;
}

void Run::add_slot(Slot slot) {
  slots_.push_back(std::move(slot));
}

void Run::differ(const std::string& what) {
  std::fflush(stdout);
  for (const auto& line : log_) {
    std::fprintf(stderr, "  %s\n", line.c_str());
  }
  std::fprintf(stderr, "DIFFERENT: seed %llu, step %d%s: %s\n",
               static_cast<unsigned long long>(seed_), step_, is_child_ ? " in a child" : "",
               what.c_str());
  ::_exit(1);
}

void Run::check(long got, long expected) {
  if (got != expected) {
    differ("result " + std::to_string(got) + ", expected " + std::to_string(expected));
  }
}

void Run::check_bytes(std::span<const std::uint8_t> got, std::span<const std::uint8_t> expected) {
  if (got.size() != expected.size()) {
    differ("length " + std::to_string(got.size()) + ", expected " +
           std::to_string(expected.size()));
  }
  if (got.empty() || std::memcmp(got.data(), expected.data(), got.size()) == 0) {
    return;
  }
  const auto [here, there] = std::ranges::mismatch(got, expected);
  differ("byte " + std::to_string(here - got.begin()) + " of " + std::to_string(got.size()) +
         " is " + std::to_string(*here) + ", expected " + std::to_string(*there));
}

const std::vector<Run::Kind>& Run::kinds() {
  static const std::vector<Kind> all{{14, &Run::pread_once},      {14, &Run::pwrite_once},
                                     {12, &Run::read_once},       {12, &Run::write_once},
                                     {3, &Run::readv_once},       {3, &Run::writev_once},
                                     {2, &Run::preadv_once},      {2, &Run::pwritev_once},
                                     {10, &Run::burst},           {6, &Run::seek},
                                     {4, &Run::resize_open},      {1, &Run::sync},
                                     {3, &Run::look_at_size},     {2, &Run::raw_pread},
                                     {2, &Run::by_syscall},       {1, &Run::bad_pointer},
                                     {1, &Run::in_thread},        {1, &Run::map_new},
                                     {3, &Run::map_load},         {3, &Run::map_store},
                                     {1, &Run::map_end},          {1, &Run::send_file},
                                     {6, &Run::open_one},         {3, &Run::close_one},
                                     {2, &Run::dup_one},          {2, &Run::dup_onto},
                                     {1, &Run::dup_by_fcntl},     {2, &Run::change_flags},
                                     {1, &Run::close_range_one},  {1, &Run::write_by_stream},
                                     {1, &Run::read_by_stream},   {1, &Run::unlink_or_rename},
                                     {1, &Run::truncate_by_name}, {2, &Run::fork_one},
                                     {1, &Run::exec_one},         {3, &Run::outsider_reads},
                                     {3, &Run::outsider_writes},  {1, &Run::outsider_truncates},
                                     {1, &Run::pass_descriptor}};
  return all;
}

void Run::one_step() {
  static const std::size_t sum = [] {
    std::size_t weights = 0;
    for (const auto& kind : kinds()) {
      weights += static_cast<std::size_t>(kind.weight);
    }
    return weights;
  }();
  auto at = static_cast<int>(pick(sum));
  for (const auto& kind : kinds()) {
    at -= kind.weight;
    if (at < 0) {
      (this->*kind.step)();
      return;
    }
  }
}

void Run::steps(int count) {
  for (int i = 0; i < count; ++i) {
    ++step_;
    one_step();
    if (i % 100 == 99) {
      check_all();
    }
  }
}

void Run::check_all() {
  say("check all");
  for (int name = 0; name < file_names; ++name) {
    const auto& file = names_[static_cast<std::size_t>(name)];
    struct stat st{};
    const char* const path = paths_[static_cast<std::size_t>(name)].c_str();
    if (!file) {
      check(result_of(::stat(path, &st)), -ENOENT);
      continue;
    }
    say("file", name, "has", file->data.size());
    check(result_of(::stat(path, &st)), 0);
    check(st.st_size, static_cast<long>(file->data.size()));
    say("from outside");
    check_bytes(outsider_.read_all(name), file->data);
    say("by a mapping");
    const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
    if (!file->data.empty()) {
      void* const memory = ::mmap(nullptr, file->data.size(), PROT_READ, MAP_SHARED, fd, 0);
      check(memory == MAP_FAILED ? -errno : 0, 0);
      check_bytes({static_cast<std::uint8_t*>(memory), file->data.size()}, file->data);
      ::munmap(memory, file->data.size());
    }
    say("by the library");
    buffer_.resize(largest_file * 2);
    const long got = result_of(::read(fd, buffer_.data(), buffer_.size()));
    check(got, static_cast<long>(file->data.size()));
    check_bytes({buffer_.data(), static_cast<std::size_t>(got)}, file->data);
    ::close(fd);
  }
}

void Run::finish() {
  check_all();
  for (const auto& mapping : mappings_) {
    ::munmap(mapping.address, mapping.bytes);
  }
  for (const auto& slot : slots_) {
    say("close", slot.fd);
    check(result_of(::close(slot.fd)), 0);
  }
  for (std::size_t name = 0; name < file_names; ++name) {
    if (names_[name]) {
      check(result_of(::unlink(paths_[name].c_str())), 0);
    }
  }
}

}  // namespace efs::intercept_random
