// SPDX-License-Identifier: BSD-3-Clause
// A tmpfs with huge pages stores one byte into a file that has its size already by allocating
// 2 MiB. When the last writer has closed the file, what is zero in it is punched
// (fs/quiet_files.cpp).
#include "fs/free_zeros.hpp"

#include <algorithm>
#include <chrono>
#include <new>
#include <thread>

#include "base/slow_work.hpp"
#include "fs/seal.hpp"

namespace efs::fs {
namespace {

using Clock = std::chrono::steady_clock;

// time of one call; free_left() does the rest
constexpr auto longest = std::chrono::seconds(1);
// the most extents that are sampled without handing over the lead
constexpr std::uint64_t sampled_quickly = 8;
constexpr std::size_t most_left = 1024;  // files

}  // namespace

FreeZeros::Outcome FreeZeros::punch_all(std::uint64_t ino, std::uint64_t proof) {
  const auto end = Clock::now() + longest;
  const auto content = files_.file(ino);
  const auto attributes =
      content ? (*content)->container().attributes() : std::unexpected(content.error());
  if (!attributes) {
    return {};
  }
  const auto size = static_cast<std::uint64_t>(attributes->st_size);
  ZeroPages pages((*content)->container());
  Outcome outcome;
  for (auto at = pages.next_extent(0, size); at;
       at = pages.next_extent(*at + ZeroPages::extent, size)) {
    for (auto zeros = pages.find(*at); !zeros.empty();) {
      const auto some = zeros.first(std::min(zeros.size(), QuietFiles::runs_at_once));
      const Status done = files_.punch(ino, proof, **content, some);
      if (!done) {
        outcome.left = done.error().code == EAGAIN || done.error().code == EBUSY;
        return outcome;
      }
      outcome.freed = true;
      zeros = zeros.subspan(some.size());
    }
    if (Clock::now() >= end) {
      outcome.left = true;
      return outcome;
    }
  }
  return outcome;
}

// Samples the file before the proof: a fully written file then costs only its samples.
FreeZeros::Outcome FreeZeros::free(std::uint64_t ino, int tries) {
  {
    const auto container = files_.container(ino);
    const auto attributes =
        container ? (*container)->attributes() : std::unexpected(container.error());
    if (!attributes || is_sealed(*attributes) ||
        !ZeroPages::has_sample(**container, static_cast<std::uint64_t>(attributes->st_size))) {
      return {};
    }
  }
  slow_work_begins();
  if (!files_.is_closed_with_zeros(ino)) {
    return {};  // the next close tries again
  }
  const auto proof = files_.prove_no_writer(ino, tries);
  const Outcome outcome = proof ? punch_all(ino, *proof) : Outcome{.left = true};
  if (outcome.freed) {
    files_.space_given_back(ino);
  }
  return outcome;
}

void FreeZeros::closed(std::uint64_t ino) try {
  const unsigned place = backend_.place_of(ino);
  if (!backend_.at(place).zeros_take_space()) {
    return;
  }
  const auto attributes = backend_.attributes(ino);
  const auto bytes = attributes ? static_cast<std::uint64_t>(attributes->st_blocks) * 512 : 0;
  if (bytes < ZeroPages::extent ||
      static_cast<std::uint64_t>(attributes->st_size) < ZeroPages::extent) {
    return;
  }
  {
    const Removing removing(removals_);
    removals_.note();
    // Before the lead is handed over, because the next request may need the space.
    space_.owe(place, bytes);
    if (bytes > sampled_quickly * ZeroPages::extent) {
      slow_work_begins();
    }
    constexpr int tries = 4;
    if (!free(ino, tries).left) {
      return space_.pay(place, bytes);
    }
    leave(ino);
  }
  // The kernel closes the container's file after the RELEASE, on a busy machine some time later.
  // This thread tries again until then. Requests that need space do not wait for it.
  for (std::chrono::milliseconds pause(8); pause.count() <= 256; pause *= 2) {
    std::this_thread::sleep_for(pause);
    free_left();
    if (!is_one_of_few_left(ino)) {
      return;
    }
  }
} catch (const std::bad_alloc&) {
}  // the zeros keep their space

/// If more than a few files are left, no thread waits for one: files that stay mapped may never
/// become free.
bool FreeZeros::is_one_of_few_left(std::uint64_t ino) const {
  constexpr std::size_t few = 4;
  const MutexLock lock(mutex_);
  return left_.contains(ino) && left_.size() <= few;
}

void FreeZeros::leave(std::uint64_t ino) {
  const MutexLock lock(mutex_);
  if (left_.size() < most_left) {
    left_.insert(ino);
  }
}

bool FreeZeros::free_left() {
  std::unordered_set<std::uint64_t> files;
  {
    const MutexLock lock(mutex_);
    files.swap(left_);
  }
  bool any = false;
  const auto end = Clock::now() + longest;
  for (const auto ino : files) {
    const Removing removing(removals_);
    try {
      const Outcome outcome = Clock::now() < end ? free(ino, 1) : Outcome{.left = true};
      any = any || outcome.freed;
      if (outcome.left) {
        leave(ino);
      }
    } catch (const std::bad_alloc&) {
    }  // this file's zeros keep their space until its next close
  }
  return any;
}

}  // namespace efs::fs
