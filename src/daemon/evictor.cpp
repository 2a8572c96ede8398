// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/evictor.hpp"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "base/log.hpp"
#include "base/text.hpp"
#include "base/thread.hpp"

namespace efs::daemon {
namespace {

std::uint64_t with_reserve(std::uint64_t bytes, const Space& space) {
  return bytes == 0 ? 0 : bytes + reserve_of(space);
}

}  // namespace

std::uint64_t bytes_to_free(const Space& space, std::uint64_t wanted) {
  const std::uint64_t low = reserve_of(space), high = space.capacity / 4;
  const std::uint64_t needed = std::max(space.available < low ? high : 0,
                                        wanted == 0 ? 0 : std::min(wanted, space.capacity));
  return needed - std::min(needed, space.available);
}

Evictor::Evictor(Parts parts)
    : its_(parts), figures_(its_.figures != nullptr ? *its_.figures : own_figures_) {}

Evictor::~Evictor() {
  (void)end(Clock::time_point::max());
}

void Evictor::begin(fs::Filesystem& files) {
  const MutexLock lock(mutex_);
  files_ = &files;
  progress_.cancel = false;
  auto thread = start_thread([this] { work(); });
  if (!thread) {
    log::warn("event=evict_off reason=\"{}\"", describe(thread.error()));
    return;
  }
  thread_ = std::move(*thread);
  serves_ = works_ = true;
  files.use_room_maker(this);
}

// An eviction that is running ends at its next call to the PFS.
bool Evictor::end(Clock::time_point until) {
  std::jthread ended;  // joined without the lock
  {
    const MutexLock lock(mutex_);
    if (files_ == nullptr) {
      return true;
    }
    serves_ = false;
    progress_.cancel = true;
    changed_.notify_all();
    while (works_) {
      if (until == Clock::time_point::max()) {
        changed_.wait(mutex_);
      } else if (!changed_.wait_until(mutex_, until) && works_) {
        return false;
      }
    }
    files_->use_room_maker(nullptr);
    files_ = nullptr;
    ended = std::move(thread_);
  }
  return true;
}

// Room may also come from removals, closes and exports. What is on its way when the call begins
// gets a round of its own.
bool Evictor::make_room(std::uint64_t bytes) noexcept {
  const Space space = its_.transfers.space();
  if (bytes > 0 && space.available >= bytes) {
    keep_behind(bytes);
    return true;
  }
  const auto end = Clock::now() + (bytes > 0 ? patience_of_fetches : patience);
  const MutexLock lock(mutex_);
  while (serves_ && Clock::now() < end) {
    const bool more_comes = bytes > 0 || (its_.drainer != nullptr && its_.drainer->has_due());
    await_rest(end);
    const bool has_freed = frees_some(with_reserve(bytes, space), end);
    const std::uint64_t available = its_.transfers.space().available;
    if (bytes > 0 ? available >= bytes : has_freed || available > space.available) {
      return true;
    }
    if (!more_comes || (bytes == 0 && waiting_ >= most_waiting)) {
      return false;
    }
    ++waiting_;
    (void)changed_.wait_until(mutex_, std::min(end, Clock::now() + look_if_scarce));
    --waiting_;
  }
  return false;
}

void Evictor::keep_reserve() noexcept {
  if (bytes_to_free(its_.transfers.space(), 0) > 0) {
    keep_behind(0);
  }
}

void Evictor::keep_behind(std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  if (serves_ && !is_running_ && Clock::now() >= rests_until_) {
    const std::uint64_t wanted = with_reserve(bytes, its_.transfers.space());
    (void)frees_some(wanted, Clock::now() + patience_of_opens);
  }
}

void Evictor::await_rest(Clock::time_point end) {
  while (serves_ && Clock::now() < rests_until_ && Clock::now() < end) {
    (void)changed_.wait_until(mutex_, std::min(end, rests_until_));
  }
}

// A round that runs already may have begun before the room was found missing.
bool Evictor::frees_some(std::uint64_t bytes, Clock::time_point end) {
  const std::uint64_t last = rounds_ + (is_running_ ? 2 : 1);
  wanted_ = std::max({wanted_, bytes, std::uint64_t{1}});
  ++asking_;
  changed_.notify_all();
  while (serves_ && rounds_ < last && changed_.wait_until(mutex_, end)) {
  }
  --asking_;
  return serves_ && rounds_ >= last && has_freed_;
}

void Evictor::work() noexcept {
  try {
    its_.transfers.end_evictions();
  } catch (const std::bad_alloc&) {
  }  // that room stays taken until the files are fetched
  mutex_.lock();
  while (serves_) {
    const std::uint64_t wanted = std::exchange(wanted_, 0);
    const bool is_asked = asking_ > 0;
    std::uint64_t freed = 0;
    if (is_asked || Clock::now() >= rests_until_) {
      is_running_ = true;
      mutex_.unlock();
      freed = evict(wanted);
      mutex_.lock();
      is_running_ = false;
      ++rounds_;
      has_freed_ = freed > 0;
      changed_.notify_all();
    }
    if (serves_ && wanted_ == 0) {
      const Space space = its_.transfers.space();
      const auto pause = space.available < space.capacity / 2 ? look_if_scarce : look_if_ample;
      (void)changed_.wait_until(mutex_, Clock::now() + pause);
    }
  }
  mutex_.unlock();
  try {
    tell_sum(true);
  } catch (const std::exception&) {
  }  // the status has the figures
  mutex_.lock();
  works_ = false;
  changed_.notify_all();
  mutex_.unlock();
}

// An operation that found no room may need more than is missing by the figures of the backend.
std::uint64_t Evictor::evict(std::uint64_t wanted) try {
  tell_sum(false);
  const Space space = its_.transfers.space();
  std::uint64_t bytes = bytes_to_free(space, wanted);
  if (bytes == 0 && wanted == 0) {
    const MutexLock lock(mutex_);
    why_.clear();
    return 0;
  }
  bytes = std::max(bytes, space.capacity / 64);
  if (std::exchange(is_unfinished_, false)) {
    its_.transfers.end_evictions();
  }
  const auto begin = Clock::now();
  const stage::Eviction done = its_.transfers.evict(bytes, progress_);
  is_unfinished_ = done.is_unfinished;
  figures_.files += done.files;
  figures_.bytes += done.bytes;
  tell(done);
  const MutexLock lock(mutex_);
  const auto end = Clock::now();
  rests_until_ = done.bytes == 0
                     ? end + std::clamp<Clock::duration>(10 * (end - begin), rest, longest_rest)
                     : Clock::time_point{};
  why_ = done.bytes > 0 ? "" : done.why.empty() ? "no file may be evicted" : done.why;
  return done.bytes;
} catch (const std::exception& problem) {  // no memory: tried again after a rest

  const MutexLock lock(mutex_);
  rests_until_ = Clock::now() + rest;
  return 0;
}

// A job whose buffer is always full has many rounds.
void Evictor::tell_sum(bool is_last) {
  const auto now = Clock::now();
  if (untold_bytes_ > 0 && (is_last || now >= tells_at_)) {
    log::info("event=evicted files={} bytes={}", std::exchange(untold_files_, 0),
              std::exchange(untold_bytes_, 0));
    tells_at_ = now + between_lines;
  }
}

void Evictor::tell(const stage::Eviction& done) {
  untold_files_ += done.files;
  untold_bytes_ += done.bytes;
  if (done.bytes > 0) {
    is_told_ = false;
    tell_sum(false);
  } else if (!std::exchange(is_told_, true)) {
    log::warn("event=nothing_to_evict tried={} reason=\"{}\"", done.stayed,
              printable(done.why.empty() ? "no file may be evicted" : done.why));
  }
}

void Evictor::add_status(control::replies::Status& status) {
  const MutexLock lock(mutex_);
  if (files_ == nullptr && figures_.files == 0) {
    return;
  }
  auto& evict = status.evict.emplace();
  evict.evicted = figures_.files;
  evict.evicted_bytes = figures_.bytes;
  if (!why_.empty()) {
    evict.last_error = why_;
  }
}

}  // namespace efs::daemon
