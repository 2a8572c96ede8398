// SPDX-License-Identifier: BSD-3-Clause
// With passthrough the kernel writes without a word to us. So a file that is open for writing keeps
// its room, also while the store is full. Room is given back like zero pages, with the proof that
// no program can write to the file (fs/quiet_files.cpp). There is none on a file system with a page
// cache, where both would wait for the disk under the namespace lock.
#include "fs/append_room.hpp"

#include <linux/falloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <span>
#include <thread>
#include <vector>

#include "base/slow_work.hpp"
#include "fs/seal.hpp"

namespace efs::fs {
namespace {

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

Result<std::uint64_t> AppendRoom::take(std::uint64_t ino, std::uint64_t bytes) {
  Backend& holder = backend_.at(backend_.place_of(ino));
  if (holder.durability() == Durability::page || !holder.offers_descriptor()) {
    return fail(EAGAIN);
  }
  const Space space = holder.space();
  Result<std::uint64_t> end = fail(EAGAIN);
  const Status done = files_.while_open(ino, [&](MappedFile& content) -> Status {
    end = reserve(ino, content, space, bytes);
    return end ? Status() : std::unexpected(end.error());
  });
  if (!done) {
    give_back_all();  // closed files may have what is missing
  }
  settle(ino);  // closes are counted under a shared lock, too
  EFS_TRY(done);
  return end;
}

Result<std::uint64_t> AppendRoom::reserve(std::uint64_t ino, MappedFile& content,
                                          const Space& space, std::uint64_t bytes) {
  std::uint64_t end = 0;
  const Status done = content.alone([&](Container& container) -> Status {
    const auto now = container.attributes();
    EFS_TRY(now);
    const auto size = static_cast<std::uint64_t>(now->st_size);
    const auto had = rooms_.of(ino);
    if (is_sealed(*now) || (had && !is_used_up(container, *had, size))) {
      return fail(EAGAIN);
    }
    const std::uint64_t used = had ? had->end - had->begin : 0;
    const std::uint64_t begin = round_up(size);
    const std::uint64_t length = RoomAhead::grant(space, rooms_.held() - used, bytes);
    end = begin + length;
    if (length == 0 || !rooms_.hold(ino, {.begin = begin, .end = end})) {
      return fail(EAGAIN);
    }
    return container.allocate(FALLOC_FL_KEEP_SIZE, begin, length);
  });
  EFS_TRY(done);
  return end;
}

// After the RELEASE the kernel closes the container's file, on a busy machine some time later. One
// thread tries until then, for all files. A file that stays mapped waits for the next call of
// give_back_all().
void AppendRoom::settle(std::uint64_t ino) try {
  if (!rooms_.of(ino) || !files_.is_closed(ino)) {
    return;
  }
  slow_work_begins();
  constexpr int tries = 4;
  (void)give_back(ino, tries);
  if (!rooms_.of(ino) || settling_.test_and_set()) {
    return;
  }
  for (std::chrono::milliseconds pause(8); pause.count() <= 256 && rooms_.of(ino); pause *= 2) {
    std::this_thread::sleep_for(pause);
    give_back_all();
  }
  settling_.clear();
} catch (const std::bad_alloc&) {
}  // give_back_all() tries again

bool AppendRoom::give_back(std::uint64_t ino, int tries) {
  if (!files_.is_closed(ino)) {
    return false;
  }
  const auto proof = files_.prove_no_writer(ino, tries);
  const auto content = proof ? files_.file(ino) : fail(EAGAIN);
  const auto room = rooms_.of(ino);
  const auto now = content ? (*content)->container().attributes() : fail(EAGAIN);
  if (!room || !now) {
    return false;
  }
  const auto runs =
      unused((*content)->container(), *room, static_cast<std::uint64_t>(now->st_size));
  for (std::span<const Run> left(runs); !left.empty();) {
    const auto some = left.first(std::min(left.size(), QuietFiles::runs_at_once));
    if (!files_.punch(ino, *proof, **content, some)) {
      return false;
    }
    left = left.subspan(some.size());
  }
  rooms_.drop(ino, *room);
  if (!runs.empty()) {
    files_.space_given_back(ino);
  }
  return !runs.empty();
}

std::vector<Run> AppendRoom::unused(Container& container, const RoomAhead::Room& room,
                                    std::uint64_t size) {
  std::vector<Run> runs;
  const auto add = [&runs](std::uint64_t begin, std::uint64_t end) {
    if (begin < end) {
      runs.push_back({.offset = begin, .length = end - begin});
    }
  };
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

bool AppendRoom::give_back_all() {
  if (!rooms_.any()) {
    return false;
  }
  bool any = false;
  try {
    for (const auto ino : rooms_.files()) {
      any = give_back(ino, 1) || any;
    }
  } catch (const std::bad_alloc&) {
  }
  return any;
}

// A program may have outlived a mount, and writes to a container.
bool AppendRoom::cut(std::uint64_t ino) {
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

void AppendRoom::give_back_left(const std::function<bool(std::uint64_t)>& is_file) {
  for (const auto ino : rooms_.left_over()) {
    if (!is_file(ino) || cut(ino)) {
      rooms_.strike(ino);
    }
  }
}

}  // namespace efs::fs
