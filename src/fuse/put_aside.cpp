// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/put_aside.hpp"

#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "fuse/wire.hpp"

namespace efs::fuse {
namespace {

constexpr auto look_interval = std::chrono::milliseconds(200);
// A notification of which the locks are free takes much less.
constexpr auto longest_telling = std::chrono::milliseconds(100);

fuse_in_header begin_of(std::span<const std::byte> request) {
  fuse_in_header header{};
  if (!request.empty()) {  // memcpy accepts no null pointer
    std::memcpy(&header, request.data(), std::min(sizeof header, request.size()));
  }
  return header;
}

// True if the kernel may hold locks of directories or files for the request. An open has one of its
// file if it truncates.
bool has_locks(const fuse_in_header& header, std::span<const std::byte> request) {
  fuse_open_in open{};
  if (header.opcode != FUSE_OPEN || request.size() < sizeof header + sizeof open) {
    return header.opcode != FUSE_OPEN;
  }
  std::memcpy(&open, request.data() + sizeof header, sizeof open);
  return (open.flags & O_TRUNC) != 0;
}

constexpr std::uint64_t bit_of(int signal) {
  return std::uint64_t{1} << static_cast<unsigned>(signal - 1);
}

// Their default action does not end a process.
constexpr std::uint64_t harmless = bit_of(SIGCHLD) | bit_of(SIGCONT) | bit_of(SIGURG) |
                                   bit_of(SIGWINCH) | bit_of(SIGSTOP) | bit_of(SIGTSTP) |
                                   bit_of(SIGTTIN) | bit_of(SIGTTOU);

// The set of signals in a line of /proc/PID/status.
std::uint64_t signals_in(std::string_view status, std::string_view name) {
  const auto at = status.find(name);
  std::uint64_t set = 0;
  if (at != std::string_view::npos) {
    const std::string_view digits = status.substr(at + name.size()).substr(0, 16);
    std::from_chars(digits.data(), digits.data() + digits.size(), set, 16);
  }
  return set;
}

}  // namespace

// A signal that ends a process by its default action is shown as it is, or as a SIGKILL for each of
// its threads. Reads without allocation.
bool is_being_killed(std::uint32_t thread) {
  std::array<char, 32> path{};
  std::array<char, 4096> status{};
  (void)std::snprintf(path.data(), path.size(), "/proc/%u/status", thread);
  const UniqueFd file(thread != 0 ? ::open(path.data(), O_RDONLY | O_CLOEXEC) : -1);
  const ssize_t got = file ? ::read(file.get(), status.data(), status.size()) : -1;
  if (got <= 0) {
    return true;
  }
  const std::string_view text(status.data(), static_cast<std::size_t>(got));
  const std::uint64_t own = signals_in(text, "SigPnd:\t");
  const std::uint64_t pending = own | signals_in(text, "ShdPnd:\t");
  const std::uint64_t handled = signals_in(text, "SigBlk:\t") | signals_in(text, "SigIgn:\t") |
                                signals_in(text, "SigCgt:\t") | harmless;
  return (own & bit_of(SIGKILL)) != 0 || (pending & ~handled) != 0;
}

Result<std::unique_ptr<PutAside>> PutAside::make(std::function<void(std::uint64_t)> wanted,
                                                 std::function<bool(std::uint32_t)> is_dying) {
  UniqueFd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer) {
    return fail(errno);
  }
  return std::unique_ptr<PutAside>(
      new PutAside(std::move(wanted), std::move(is_dying), std::move(timer)));
}

bool PutAside::park(std::uint64_t ino, std::span<const std::byte> request) {
  const auto header = begin_of(request);
  const std::uint64_t unique = header.unique & ~resent_bit;
  const bool locks = has_locks(header, request);
  Parked parked{.unique = unique,
                .client = header.pid,
                .signalled = false,
                .locks = locks,
                .error = 0,
                .request = {request.begin(), request.end()}};
  const MutexLock lock(mutex_);
  if (locks && !may_lock()) {
    return false;
  }
  try {
    by_file_[ino].push_back(std::move(parked));
  } catch (const std::bad_alloc&) {
    if (locks) {
      lock_less();
    }
    throw;
  }
  ++waiting_;
  if (const auto known = std::ranges::find(not_found_, unique); known != not_found_.end()) {
    *known = 0;
    (void)interrupt_locked(unique);
  }
  return true;
}

// The count comes first: no telling begins while this waits for the end of those that live. One of
// them may wait for the locks of this request.
bool PutAside::may_lock() {
  if (refusing_ || pressing_ > 0) {
    return false;
  }
  ++locking_;
  const auto end = std::chrono::steady_clock::now() + longest_telling;
  while (telling_ > 0) {
    if (!changed_.wait_until(mutex_, end) && telling_ > 0) {
      lock_less();
      return false;
    }
  }
  return true;
}

void PutAside::lock_less() {
  locking_ -= locking_ > 0 ? 1 : 0;  // clear() has forgotten it
  if (locking_ == 0) {
    changed_.notify_all();
  }
}

void PutAside::handled() {
  const MutexLock lock(mutex_);
  lock_less();
}

PutAside::Telling::Telling(PutAside* aside, bool refuses, std::chrono::milliseconds patience)
    : aside_(aside), refuses_(refuses) {
  if (aside_ == nullptr) {
    return;
  }
  const MutexLock lock(aside_->mutex_);
  const auto end = std::chrono::steady_clock::now() + patience;
  while (aside_->locking_ > 0 && aside_->changed_.wait_until(aside_->mutex_, end)) {
  }
  if (aside_->locking_ > 0) {
    ++aside_->pressing_;
    aside_->end_those_with_locks();
    while (aside_->locking_ > 0) {
      aside_->changed_.wait(aside_->mutex_);
    }
    --aside_->pressing_;
  }
  ++aside_->telling_;
  aside_->refusing_ = aside_->refusing_ || refuses_;
}

PutAside::Telling::~Telling() {
  if (aside_ == nullptr) {
    return;
  }
  const MutexLock lock(aside_->mutex_);
  aside_->refusing_ = aside_->refusing_ && !refuses_;
  if (--aside_->telling_ == 0) {
    aside_->changed_.notify_all();
  }
}

// Their fetches go on.
void PutAside::end_those_with_locks() {
  for (auto& [ino, waiting] : by_file_) {
    for (auto at = waiting.begin(); at != waiting.end();) {
      const auto request = at++;
      if (request->locks) {
        make_ready(waiting, request, EAGAIN);
      }
    }
  }
}

// A fetch that ended before park() has not seen the request: so each request begins another one,
// which finds the content here.
void PutAside::parked(std::uint64_t ino, std::uint64_t unique, bool interrupted) {
  if (interrupted) {
    const MutexLock lock(mutex_);
    (void)interrupt_locked(unique);
  }
  wanted_(ino);
}

void PutAside::make_ready(Requests& from, Requests::iterator request, int error) {
  signalled_ -= request->signalled ? 1 : 0;
  request->error = error;
  ready_.splice(ready_.end(), from, request);
  ready_count_ = ready_.size();
  --waiting_;
  set_timer();
}

void PutAside::set_timer() {
  itimerspec when{};
  if (!ready_.empty()) {
    when.it_value.tv_nsec = 1;
  } else if (signalled_ > 0) {
    when.it_value.tv_nsec = std::chrono::nanoseconds(look_interval).count();
  }
  ::timerfd_settime(ready_fd_.get(), 0, &when, nullptr);
}

void PutAside::fetched(std::uint64_t ino, int error) {
  const MutexLock lock(mutex_);
  const auto found = by_file_.find(ino);
  if (found == by_file_.end()) {
    return;
  }
  while (!found->second.empty()) {
    make_ready(found->second, found->second.begin(), error);
  }
  by_file_.erase(found);
}

bool PutAside::interrupt(std::uint64_t unique) {
  const MutexLock lock(mutex_);
  if (interrupt_locked(unique)) {
    return true;
  }
  not_found_[next_not_found_++ % not_found_.size()] = unique;
  return false;
}

bool PutAside::interrupt_locked(std::uint64_t unique) {
  for (auto& [ino, waiting] : by_file_) {
    const auto found = std::ranges::find(waiting, unique, &Parked::unique);
    if (found == waiting.end()) {
      continue;
    }
    signalled_ += found->signalled ? 0 : 1;
    found->signalled = true;
    if (is_dying_(found->client)) {
      make_ready(waiting, found, EINTR);
    } else {
      set_timer();
    }
    return true;
  }
  return false;
}

void PutAside::look_for_dying() {
  const auto now = std::chrono::steady_clock::now();
  if (signalled_ == 0 || now < looked_ + look_interval) {
    return;
  }
  looked_ = now;
  for (auto& [ino, waiting] : by_file_) {
    for (auto at = waiting.begin(); at != waiting.end();) {
      const auto request = at++;
      if (request->signalled && is_dying_(request->client)) {
        make_ready(waiting, request, EINTR);
      }
    }
  }
}

PutAside::Taken PutAside::take(std::span<std::byte> into) {
  if (ready_count_ == 0 && signalled_ == 0) {
    return {};
  }
  const MutexLock lock(mutex_);
  look_for_dying();
  if (ready_.empty()) {
    set_timer();
    return {};
  }
  const Parked taken = std::move(ready_.front());
  ready_.pop_front();
  ready_count_ = ready_.size();
  set_timer();
  if (taken.signalled) {  // the kernel does not tell again, and the request may wait again
    not_found_[next_not_found_++ % not_found_.size()] = taken.unique;
  }
  std::memcpy(into.data(), taken.request.data(), taken.request.size());
  return {.size = taken.request.size(), .error = taken.error, .locks = taken.locks};
}

void PutAside::clear() {
  const MutexLock lock(mutex_);
  by_file_.clear();
  ready_.clear();
  waiting_ = ready_count_ = signalled_ = 0;
  locking_ = 0;
  changed_.notify_all();
  set_timer();
}

}  // namespace efs::fuse
