// SPDX-License-Identifier: BSD-3-Clause
// Room behind the end of files (fs/room_ahead.hpp): taken for appends, and given back.
//
// With passthrough the kernel writes without a word to us. So a file that is open for writing keeps
// its room, also while the store is full. Room is given back like zero pages, with the proof that
// no program can write to the file (fs/free_zeros.cpp). There is none on a file system with a page
// cache, where both would wait for the disk under the namespace lock.
#include <fcntl.h>
#include <linux/falloc.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <span>
#include <thread>
#include <vector>

#include "base/slow_work.hpp"
#include "fs/filesystem.hpp"
#include "fs/kernel_view.hpp"
#include "fs/mapped_file.hpp"
#include "fs/seal.hpp"

namespace efs::fs {
namespace {

// punched under one hold of the namespace lock, as in fs/free_zeros.cpp
constexpr std::size_t runs_at_once = 64;

std::uint64_t round_up(std::uint64_t bytes) {
  return (bytes + RoomAhead::page - 1) / RoomAhead::page * RoomAhead::page;
}

// True if the file may have other room: the program has written almost all of this, or has cut the
// file before it, which has freed it. A program that seeks on would leave the rest of each room in
// the file, as a hole that takes space. The next room has what is left of this one.
bool is_used_up(Container& container, const RoomAhead::Room& room, std::uint64_t size) {
  if (round_up(size) < room.begin) {
    return true;
  }
  if (size + RoomAhead::least < room.end) {
    return false;
  }
  const auto hole = container.seek(room.begin, SEEK_HOLE);
  return hole && *hole >= std::min(size, room.end);
}

}  // namespace

Result<std::uint64_t> Filesystem::take_room(std::uint64_t ino, std::uint64_t bytes) {
  Backend& holder = holder_of(ino);
  if (holder.durability() == Durability::page || !holder.offers_descriptor()) {
    return fail(EAGAIN);
  }
  const Space space = holder.space();
  Result<std::uint64_t> end = fail(EAGAIN);
  {
    const auto content = file(ino);
    EFS_TRY(content);
    // Under the lock, so that a program that reserves space comes before or after.
    ReadLock lock(mutex_);
    const auto found = regular(ino);
    EFS_TRY(found);
    if (owns_pages(**found) && (*found)->write_opens > 0) {
      end = reserve_room(ino, **content, space, bytes);
    }
  }
  if (!end) {
    give_back_rooms();  // closed files may have what is missing
  }
  settle_room(ino);  // closes are counted under a shared lock, too
  return end;
}

Result<std::uint64_t> Filesystem::reserve_room(std::uint64_t ino, MappedFile& content,
                                               const Space& space, std::uint64_t bytes) {
  std::uint64_t end = 0;
  const Status done = content.alone([&](Container& container) -> Status {
    const auto now = container.attributes();
    EFS_TRY(now);
    const auto size = static_cast<std::uint64_t>(now->st_size);
    const auto had = room_.of(ino);
    if (is_sealed(*now) || (had && !is_used_up(container, *had, size))) {
      return fail(EAGAIN);
    }
    const std::uint64_t used = had ? had->end - had->begin : 0;
    const std::uint64_t begin = round_up(size);
    const std::uint64_t length = RoomAhead::grant(space, room_.held() - used, bytes);
    end = begin + length;
    if (length == 0 || !room_.hold(ino, {.begin = begin, .end = end})) {
      return fail(EAGAIN);
    }
    return container.allocate(FALLOC_FL_KEEP_SIZE, begin, length);
  });
  EFS_TRY(done);
  return end;
}

// After the RELEASE the kernel closes the container's file, on a busy machine some time later. One
// thread tries until then, for all files. A file that stays mapped waits for the next call of
// give_back_rooms().
void Filesystem::settle_room(std::uint64_t ino) try {
  if (!room_.of(ino)) {
    return;
  }
  {
    ReadLock lock(mutex_);
    const Inode* inode = names_.find(ino);
    if (inode != nullptr && inode->write_opens > 0) {
      return;
    }
  }
  slow_work_begins();
  constexpr int tries = 4;
  (void)give_back_room(ino, tries);
  if (!room_.of(ino) || settling_room_.test_and_set()) {
    return;
  }
  for (std::chrono::milliseconds pause(8); pause.count() <= 256 && room_.of(ino); pause *= 2) {
    std::this_thread::sleep_for(pause);
    give_back_rooms();
  }
  settling_room_.clear();
} catch (const std::bad_alloc&) {
}  // give_back_rooms() tries again

bool Filesystem::give_back_room(std::uint64_t ino, int tries) {
  {
    ReadLock lock(mutex_);
    const Inode* inode = names_.find(ino);
    if (inode == nullptr || !owns_pages(*inode) || inode->write_opens > 0) {
      return false;
    }
  }
  const auto proof = prove_no_writer(ino, tries);
  const auto content = proof ? file(ino) : fail(EAGAIN);
  const auto room = room_.of(ino);
  const auto now = content ? (*content)->container().attributes() : fail(EAGAIN);
  if (!room || !now) {
    return false;
  }
  const auto runs = unused(**content, *room, static_cast<std::uint64_t>(now->st_size));
  for (std::span<const Run> left(runs); !left.empty();) {
    const auto some = left.first(std::min(left.size(), runs_at_once));
    if (!punch(ino, *proof, **content, some)) {
      return false;
    }
    left = left.subspan(some.size());
  }
  room_.drop(ino, *room);
  if (KernelView* kernel = kernel_; kernel != nullptr && !runs.empty()) {
    kernel->space_given_back(ino);
  }
  return !runs.empty();
}

std::vector<Filesystem::Run> Filesystem::unused(MappedFile& content, const RoomAhead::Room& room,
                                                std::uint64_t size) {
  std::vector<Run> runs;
  const auto add = [&runs](std::uint64_t begin, std::uint64_t end) {
    if (begin < end) {
      runs.push_back({.offset = begin, .length = end - begin});
    }
  };
  Container& container = content.container();
  const std::uint64_t end_of_data = std::min(room.end, round_up(size));
  for (std::uint64_t at = room.begin; at < end_of_data;) {
    const auto hole = container.seek(at, SEEK_HOLE);
    if (!hole || *hole >= end_of_data) {
      break;
    }
    const auto next = container.seek(*hole, SEEK_DATA);
    if (!next && next.error().code != ENXIO) {
      break;
    }
    const std::uint64_t data = std::min(next.value_or(end_of_data), end_of_data);
    add(round_up(*hole), data / RoomAhead::page * RoomAhead::page);
    at = data;
  }
  add(std::max(room.begin, round_up(size)), room.end);
  return runs;
}

bool Filesystem::give_back_rooms() {
  if (!room_.any()) {
    return false;
  }
  bool any = false;
  try {
    for (const auto ino : room_.files()) {
      any = give_back_room(ino, 1) || any;
    }
  } catch (const std::bad_alloc&) {
  }
  return any;
}

// At a start. A program may have outlived a mount, and writes to a container.
bool Filesystem::settle_left_room(std::uint64_t ino) {
  const Inode* inode = names_.find(ino);
  if (inode == nullptr || !inode->is_regular()) {
    return true;
  }
  if (backend_.may_be_written(ino)) {
    return false;
  }
  const auto container = backend_.open(ino, CachePolicy::closed);
  const auto now = container ? (*container)->attributes() : fail(container.error().code);
  if (!now || is_sealed(*now)) {
    return now.has_value() || now.error().code == ENOENT;
  }
  const auto end = round_up(static_cast<std::uint64_t>(now->st_size));
  const Status done =
      (*container)->allocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, end, RoomAhead::most);
  (void)(*container)->set_times(std::nullopt, now->st_mtim);
  return done.has_value();
}

void Filesystem::settle_rooms() {
  if (options_.takeover) {
    return room_.inherit();
  }
  for (const auto ino : room_.left_over()) {
    if (settle_left_room(ino)) {
      room_.strike(ino);
    }
  }
}

}  // namespace efs::fs
