// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/fetcher.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "base/log.hpp"
#include "base/text.hpp"
#include "base/thread.hpp"
#include "fs/staging.hpp"

namespace efs::daemon {
namespace {

constexpr auto next_try = std::chrono::seconds(1);  // after a shortage of memory

}  // namespace

Fetcher::Fetcher(Parts parts)
    : its_(parts), figures_(its_.figures != nullptr ? *its_.figures : own_figures_), aside_([this] {
        auto made = fuse::PutAside::make([this](std::uint64_t ino) { want(ino); });
        if (!made) {
          log::warn("event=fetch_off reason=\"{}\"", describe(made.error()));
        }
        return made ? std::move(*made) : nullptr;
      }()) {
  if (aside_) {
    aside_->set_opened([this](std::uint64_t ino) { opened(ino); });
  }
}

Fetcher::~Fetcher() {
  (void)end(Time::max());
}

void Fetcher::begin(fs::Filesystem& files) {
  const MutexLock lock(mutex_);
  files_ = &files;
  serves_ = true;
  progress_.cancel = false;
}

void Fetcher::fetch_all() {
  const auto background = fs::Staging(*files_).remote_files(true);
  const MutexLock lock(mutex_);
  fetches_ = serves_;
  queue_background(background);
  const auto threads = queue_.wanted() + std::min<std::size_t>(background.size(), most_background);
  for (std::size_t i = 0; i < std::min<std::size_t>(threads, most_threads); ++i) {
    add_thread();
  }
  if (working_ == 0) {
    refuse_all();
    fail_background();
  }
  changed_.notify_all();
}

// Whoever waits for the background learns that nothing fetches it: the next open tries again.
void Fetcher::fail_background() {
  if (!background_left_.empty()) {
    background_failed_.merge(background_left_);
    error_ = "no thread could be started for fetches";
  }
}

void Fetcher::queue_background(const std::vector<fs::Staging::RemoteFile>& files) {
  for (const auto& file : files) {
    background_left_.insert(file.ino);
    queue_.add_background(file.ino, file.priority);
  }
}

void Fetcher::refuse_all() {
  for (const auto ino : queue_.drop()) {
    refuse(ino, EIO);
  }
}

// A fetch that is running ends at its next call to the PFS.
bool Fetcher::end(Time until) {
  std::vector<std::jthread> ended;  // joined without the lock
  {
    const MutexLock lock(mutex_);
    serves_ = fetches_ = false;
    progress_.cancel = true;
    refuse_all();
    changed_.notify_all();
    while (working_ > 0) {
      if (until == Time::max()) {
        changed_.wait(mutex_);
      } else if (!changed_.wait_until(mutex_, until)) {
        return working_ == 0;
      }
    }
    ended = std::exchange(threads_, {});
    files_ = nullptr;
  }
  return true;
}

void Fetcher::refuse(std::uint64_t ino, int error) {
  if (aside_) {
    aside_->fetched(ino, error);
  }
}

// Called by a thread that serves requests.
void Fetcher::want(std::uint64_t ino) noexcept try {
  const MutexLock lock(mutex_);
  if (!serves_) {
    return refuse(ino, EIO);
  }
  queue_.want(ino);
  note_opened(ino);
  if (!fetches_) {
    return;
  }
  if (queue_.wanted() + (opened_.empty() ? 0 : 1) > idle_) {
    add_thread();
  }
  if (working_ == 0) {
    return refuse_all();
  }
  changed_.notify_all();
} catch (const std::bad_alloc&) {
  refuse(ino, ENOMEM);
}

void Fetcher::add_thread() {
  if (working_ >= most_threads) {
    return;
  }
  threads_.reserve(threads_.size() + 1);
  auto thread = start_thread([this] { work(); });
  if (!thread) {
    log::warn("event=no_thread_for_fetch threads={} reason=\"{}\"", working_,
              describe(thread.error()));
    return;
  }
  threads_.push_back(std::move(*thread));
  ++working_;
}

void Fetcher::add_threads(std::size_t files) {
  for (std::size_t i = 0; i < std::min<std::size_t>(files, most_background); ++i) {
    if (idle_ <= i) {
      add_thread();
    }
  }
}

void Fetcher::work() noexcept {
  mutex_.lock();
  while (serves_) {
    bool has_worked = false;
    bool is_left = false;  // in the queue, for want of memory
    try {
      has_worked = fetch_next(FetchQueue::Least::wanted) || look_ahead() ||
                   (background_running_ < most_background &&
                    (fetch_next(FetchQueue::Least::expected) || fetch_background()));
    } catch (const std::bad_alloc&) {
      is_left = true;
    }
    if (has_worked) {
      continue;
    }
    ++idle_;
    if (is_left) {
      (void)changed_.wait_until(mutex_, std::chrono::steady_clock::now() + next_try);
    } else {
      changed_.wait(mutex_);
    }
    --idle_;
  }
  if (turn_ == Turn::held && in_turn_ == 0) {
    (void)end_turn();
  }
  --working_;
  changed_.notify_all();
  mutex_.unlock();
}

bool Fetcher::fetch_next(FetchQueue::Least least) {
  const bool wanted = queue_.wanted() > 0;
  const auto ino = queue_.take(least);
  if (!ino) {
    return false;
  }
  background_running_ += wanted ? 0 : 1;
  mutex_.unlock();
  fetch(*ino);
  mutex_.lock();
  background_running_ -= wanted ? 0 : 1;
  changed_.notify_all();
  return true;
}

// Fetches share a turn. It ends when it was long, when a load waits for it, or when no fetch needs
// it.
bool Fetcher::fetch_background() {
  if (!its_.transfers.takes_turns()) {
    return fetch_next(FetchQueue::Least::background);
  }
  const bool is_over = turn_ == Turn::held && (!queue_.is_background_next() ||
                                               std::chrono::steady_clock::now() > turn_until_ ||
                                               its_.transfers.is_turn_awaited());
  if (is_over) {
    return in_turn_ == 0 && end_turn();
  }
  if (turn_ != Turn::held) {
    return turn_ == Turn::none && queue_.is_background_next() && begin_turn();
  }
  ++in_turn_;
  try {
    const bool has_worked = fetch_next(FetchQueue::Least::background);
    --in_turn_;
    return has_worked;
  } catch (const std::bad_alloc&) {
    --in_turn_;
    throw;
  }
}

bool Fetcher::begin_turn() {
  turn_ = Turn::changes;
  mutex_.unlock();
  const auto bytes = fs::Staging(*files_).remote_totals().bytes;
  const bool is_begun = its_.transfers.begin_turn(bytes, progress_).has_value();
  mutex_.lock();
  turn_ = is_begun ? Turn::held : Turn::none;
  turn_until_ = std::chrono::steady_clock::now() + longest_turn;
  changed_.notify_all();
  return is_begun || !serves_;  // the caller looks at serves_ again, and does not wait
}

bool Fetcher::end_turn() {
  turn_ = Turn::changes;
  mutex_.unlock();
  its_.transfers.end_turn();
  mutex_.lock();
  turn_ = Turn::none;
  changed_.notify_all();
  return true;
}

// The queue forgets the file first: a request that is put aside from then on begins a new fetch.
void Fetcher::fetch(std::uint64_t ino) {
  const FetchOutcome outcome = its_.transfers.fetch(ino, progress_);
  {
    const MutexLock lock(mutex_);
    queue_.done(ino);
  }
  try {
    tell(ino, outcome);
  } catch (const std::bad_alloc&) {
  }  // the figures count
  {
    const MutexLock lock(mutex_);
    count(ino, outcome);
  }
  // After ESTALE the kernel looks the name up again: it has the size of the former version.
  const int error = outcome.kind == FetchOutcome::Kind::here && !outcome.has_changed ? 0
                    : outcome.kind == FetchOutcome::Kind::failed                     ? EIO
                    : outcome.kind == FetchOutcome::Kind::cancelled                  ? EIO
                                                                                     : ESTALE;
  refuse(ino, error);
}

void Fetcher::count(std::uint64_t ino, const FetchOutcome& outcome) noexcept {
  const bool has_failed = outcome.kind == FetchOutcome::Kind::failed;
  if (outcome.kind == FetchOutcome::Kind::cancelled) {
    return;
  }
  if (auto left = background_left_.extract(ino); left && has_failed) {
    background_failed_.insert(std::move(left));
  } else if (!has_failed) {
    background_failed_.erase(ino);
  }
  for (auto& asked : asked_) {
    count(asked, ino, outcome);
  }
  if (has_failed && expected_.contains(ino)) {
    note_opened(0);
  }
}

void Fetcher::tell(std::uint64_t ino, const FetchOutcome& outcome) {
  if (outcome.kind == FetchOutcome::Kind::here) {
    ++figures_.files;
    figures_.bytes += outcome.bytes;
    if (outcome.has_changed) {
      log::info("event=input_changed path=\"{}\" bytes={}",
                escaped(fs::Staging(*files_).path_of(ino)), outcome.bytes);
    }
    const MutexLock lock(mutex_);
    error_.clear();
    return;
  }
  if (outcome.kind != FetchOutcome::Kind::failed) {
    return;
  }
  ++figures_.failures;
  fs::Staging staging(*files_);
  staging.note_fetch_failure(ino, describe(outcome.error));
  const std::string path = staging.path_of(ino);
  log::warn("event=fetch_failed path=\"{}\" reason=\"{}\"", escaped(path),
            printable(describe(outcome.error)));
  const MutexLock lock(mutex_);
  error_ = path + ": " + describe(outcome.error);
}

void Fetcher::add_status(control::replies::Status& status) {
  const MutexLock lock(mutex_);
  if (files_ == nullptr) {
    return;
  }
  const auto left = fs::Staging(*files_).remote_totals();
  if (left.files == 0 && figures_.files == 0 && figures_.failures == 0) {
    return;
  }
  auto& fetch = status.fetch.emplace();
  fetch.fetched = figures_.files;
  fetch.fetched_bytes = figures_.bytes;
  fetch.failures = figures_.failures;
  fetch.remote = left.files;
  fetch.remote_bytes = left.bytes;
  fetch.running = queue_.running();
  fetch.waiting = aside_ ? aside_->waiting() : 0;
  if (!error_.empty()) {
    fetch.last_error = error_;
  }
}

}  // namespace efs::daemon
