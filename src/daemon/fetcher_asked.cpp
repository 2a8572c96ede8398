// SPDX-License-Identifier: BSD-3-Clause
// Fetches that clients ask for or wait for.
#include <cerrno>
#include <new>
#include <utility>

#include "base/text.hpp"
#include "daemon/fetcher.hpp"
#include "fs/staging.hpp"

namespace efs::daemon {
namespace {

namespace replies = control::replies;
using Clock = std::chrono::steady_clock;

constexpr auto look_at_cancel = std::chrono::milliseconds(100);

}  // namespace

void Fetcher::count(Asked& asked, std::uint64_t ino, const FetchOutcome& outcome) const noexcept {
  if (asked.left.erase(ino) == 0) {
    return;
  }
  ++asked.progress->files_done;
  switch (outcome.kind) {
    case FetchOutcome::Kind::here:
      ++asked.files;
      asked.bytes += outcome.bytes;
      asked.progress->bytes_done += outcome.bytes;
      return;
    case FetchOutcome::Kind::failed: break;
    default: return;  // a program has removed it
  }
  if (++asked.failures == 1) {
    asked.error.code = outcome.error.code;
    try {
      asked.error.what = error_;
    } catch (const std::bad_alloc&) {
    }  // the code says enough
  }
}

void Fetcher::prepare(std::size_t files) {
  const MutexLock lock(mutex_);
  if (fetches_) {
    add_threads(files);
  }
}

void Fetcher::queue_asked(Asks::iterator asked, const Request& what) {
  for (const auto& file : what.files) {
    queue_.ask(file.ino);
  }
  if (working_ == 0) {
    add_threads(asked->left.size());
  }
  changed_.notify_all();
}

replies::TaskOutcome Fetcher::outcome_of(const Asked& asked, std::uint64_t already, double seconds,
                                         bool is_ending) {
  const std::uint64_t all = asked.files + asked.failures + asked.left.size();
  const std::string so_far =
      std::to_string(asked.files) + " of " + std::to_string(all) + " inputs were fetched";
  if (!asked.left.empty()) {
    return replies::failed_task(is_ending
                                    ? Error{ESHUTDOWN, "the instance is being stopped: " + so_far}
                                    : Error{ECANCELED, "cancelled: " + so_far});
  }
  if (asked.failures > 0) {
    constexpr int some = 3, none = 1;  // as in efs(1)
    return replies::failed_task(
        {asked.error.code, so_far + "; the first failure: " + describe(asked.error)},
        asked.files > 0 ? some : none);
  }
  return {
      .ok = true,
      .failure = {},
      .loaded =
          replies::Loaded{
              .files = asked.files, .already = already, .bytes = asked.bytes, .seconds = seconds},
      .unloaded = {}};
}

replies::TaskOutcome Fetcher::fetch_files(const Request& what, stage::Progress& progress) {
  const auto begun = Clock::now();
  Asks mine(1);
  std::uint64_t bytes = 0;
  for (const auto& file : what.files) {
    mine.front().left.insert(file.ino);
    bytes += file.size;
  }
  const auto asked = mine.begin();
  asked->progress = &progress;
  progress.begin(what.files.size(), bytes);
  bool is_ending = false;
  {
    const MutexLock lock(mutex_);
    asked_.splice(asked_.end(), mine);
    try {
      queue_asked(asked, what);
    } catch (const std::bad_alloc&) {
      mine.splice(mine.end(), asked_, asked);
      throw;
    }
    while (!asked->left.empty() && serves_ && working_ > 0 && !progress.cancel) {
      (void)changed_.wait_until(mutex_, Clock::now() + look_at_cancel);
    }
    is_ending = !serves_;
    mine.splice(mine.end(), asked_, asked);
    if (!asked->left.empty() && !is_ending) {
      queue_.forget_asked(asked->left);
      queue_background(fs::Staging(*files_).remote_files(true));
    }
  }
  return outcome_of(*asked, what.already,
                    std::chrono::duration<double>(Clock::now() - begun).count(), is_ending);
}

bool Fetcher::is_fetching(std::uint64_t ino) {
  const MutexLock lock(mutex_);
  return queue_.is_running(ino);
}

Fetcher::Background Fetcher::await_background(std::chrono::milliseconds time) {
  const auto end = Clock::now() + time;
  const MutexLock lock(mutex_);
  while (serves_ && (!fetches_ || !background_left_.empty()) && changed_.wait_until(mutex_, end)) {
  }
  // before fetch_all() none is queued, although all may be left
  const bool is_starting = serves_ && !fetches_;
  return {.left = is_starting ? fs::Staging(*files_).remote_files(true).size()
                              : background_left_.size(),
          .failed = background_failed_.size(),
          .last_error = error_,
          .is_over = fetches_ && background_left_.empty(),
          .is_ending = !serves_};
}

}  // namespace efs::daemon
