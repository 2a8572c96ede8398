// SPDX-License-Identifier: BSD-3-Clause
#include "fs/room_ahead.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <span>
#include <utility>

namespace efs::fs {
namespace {

constexpr const char* room_list_name = "room-ahead";  // beside the journal

}  // namespace

std::uint64_t RoomAhead::grant(const Space& space, std::uint64_t held, std::uint64_t wanted) {
  const std::uint64_t all = space.capacity / 20;
  if (space.available < space.capacity / 4 || held >= all) {
    return 0;
  }
  const std::uint64_t bytes = std::min({wanted, most, all - held}) / page * page;
  return bytes < least ? 0 : bytes;
}

bool RoomAhead::open_list(bool make) {
  if (window_ != nullptr) {
    return true;
  }
  if (!medium_) {
    return false;
  }
  auto file = medium_->open(room_list_name, false);
  if (!file && file.error().code == ENOENT && make) {
    file = medium_->create(room_list_name);
  }
  if (!file || !(*file)->allocate(sizeof slots_)) {
    return false;
  }
  const auto mapped = (*file)->map(0, sizeof slots_);
  if (!mapped) {
    return false;
  }
  list_ = std::move(*file);
  window_ = *mapped;
  return true;
}

void RoomAhead::read_list() {
  if (open_list(false)) {
    std::memcpy(slots_.data(), window_, sizeof slots_);
  }
}

void RoomAhead::set_slot(std::size_t slot, std::uint64_t ino) {
  if (slot == no_slot) {
    return;
  }
  slots_.at(slot) = ino;
  list_->store(window_ + (slot * sizeof ino), std::as_bytes(std::span(&ino, 1)));
}

std::size_t RoomAhead::free_slot() const {
  return static_cast<std::size_t>(std::ranges::find(slots_, 0U) - slots_.begin());
}

std::vector<std::uint64_t> RoomAhead::left_over() {
  MutexLock lock(mutex_);
  read_list();
  std::vector<std::uint64_t> files;
  for (const auto ino : slots_) {
    if (ino != 0) {
      files.push_back(ino);
    }
  }
  return files;
}

void RoomAhead::inherit() {
  MutexLock lock(mutex_);
  read_list();
  for (std::size_t slot = 0; slot < most_files; ++slot) {
    if (slots_.at(slot) != 0 &&
        rooms_.try_emplace(slots_.at(slot), Held{.stays = true, .slot = slot}).second) {
      ++files_now_;
    }
  }
}

void RoomAhead::strike(std::uint64_t ino) {
  MutexLock lock(mutex_);
  for (std::size_t slot = 0; slot < most_files; ++slot) {
    if (slots_.at(slot) == ino) {
      set_slot(slot, 0);
    }
  }
  if (list_) {
    list_->drain();
  }
}

bool RoomAhead::hold(std::uint64_t ino, const Room& room) try {
  MutexLock lock(mutex_);
  const std::uint64_t bytes = room.end - room.begin;
  const auto known = rooms_.find(ino);
  if (known != rooms_.end()) {
    Held& had = known->second;
    if (had.stays) {
      return false;
    }
    held_ += bytes - (had.room.end - had.room.begin);
    had.room = room;
    return true;
  }
  const std::size_t slot = free_slot();
  if (slot == no_slot || !open_list(true)) {
    return false;
  }
  rooms_.try_emplace(ino, Held{.room = room, .slot = slot});
  set_slot(slot, ino);
  held_ += bytes;
  ++files_now_;
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

void RoomAhead::keep(std::uint64_t ino) {
  if (!any()) {
    return;
  }
  MutexLock lock(mutex_);
  if (const auto known = rooms_.find(ino); known != rooms_.end()) {
    known->second.stays = true;
    const Room had = std::exchange(known->second.room, {});
    held_ -= had.end - had.begin;
    set_slot(std::exchange(known->second.slot, no_slot), 0);
  }
}

void RoomAhead::forget(std::unordered_map<std::uint64_t, Held>::iterator held) {
  held_ -= held->second.room.end - held->second.room.begin;
  set_slot(held->second.slot, 0);
  rooms_.erase(held);
  --files_now_;
}

void RoomAhead::drop(std::uint64_t ino) {
  if (!any()) {
    return;
  }
  MutexLock lock(mutex_);
  if (const auto known = rooms_.find(ino); known != rooms_.end()) {
    forget(known);
  }
}

void RoomAhead::drop(std::uint64_t ino, const Room& room) {
  MutexLock lock(mutex_);
  if (const auto known = rooms_.find(ino);
      known != rooms_.end() && known->second.room == room && !known->second.stays) {
    forget(known);
  }
}

std::optional<RoomAhead::Room> RoomAhead::of(std::uint64_t ino) const {
  if (!any()) {
    return std::nullopt;
  }
  MutexLock lock(mutex_);
  const auto known = rooms_.find(ino);
  return known == rooms_.end() || known->second.stays ? std::nullopt
                                                      : std::optional(known->second.room);
}

bool RoomAhead::has(std::uint64_t ino) const {
  if (!any()) {
    return false;
  }
  MutexLock lock(mutex_);
  return rooms_.contains(ino);
}

std::vector<std::uint64_t> RoomAhead::files() const {
  std::vector<std::uint64_t> files;
  MutexLock lock(mutex_);
  files.reserve(rooms_.size());
  for (const auto& [ino, held] : rooms_) {
    if (!held.stays) {
      files.push_back(ino);
    }
  }
  return files;
}

std::uint64_t RoomAhead::held() const {
  MutexLock lock(mutex_);
  return held_;
}

}  // namespace efs::fs
