// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/put_aside.hpp"

#include <linux/fuse.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "fuse/wire.hpp"

namespace efs::fuse {
namespace {

std::uint64_t unique_of(std::span<const std::byte> request) {
  fuse_in_header header{};
  if (!request.empty()) {  // memcpy accepts no null pointer
    std::memcpy(&header, request.data(), std::min(sizeof header, request.size()));
  }
  return header.unique & ~resent_bit;
}

}  // namespace

Result<std::unique_ptr<PutAside>> PutAside::make(std::function<void(std::uint64_t)> wanted) {
  UniqueFd ready(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!ready) {
    return fail(errno);
  }
  return std::unique_ptr<PutAside>(new PutAside(std::move(wanted), std::move(ready)));
}

void PutAside::park(std::uint64_t ino, std::span<const std::byte> request) {
  const std::uint64_t unique = unique_of(request);
  Parked parked{.unique = unique, .error = 0, .request = {request.begin(), request.end()}};
  const MutexLock lock(mutex_);
  by_file_[ino].push_back(std::move(parked));
  ++waiting_;
  if (const auto known = std::ranges::find(not_found_, unique); known != not_found_.end()) {
    *known = 0;
    (void)interrupt_locked(unique);
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
  request->error = error;
  ready_.splice(ready_.end(), from, request);
  ready_count_ = ready_.size();
  --waiting_;
  const std::uint64_t one = 1;
  (void)!::write(ready_fd_.get(), &one, sizeof one);
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
    make_ready(waiting, found, EINTR);
    return true;
  }
  return false;
}

PutAside::Taken PutAside::take(std::span<std::byte> into) {
  if (ready_count_ == 0) {
    return {};
  }
  const MutexLock lock(mutex_);
  if (ready_.empty()) {
    return {};
  }
  const Parked taken = std::move(ready_.front());
  ready_.pop_front();
  ready_count_ = ready_.size();
  if (ready_.empty()) {
    std::uint64_t count = 0;
    (void)!::read(ready_fd_.get(), &count, sizeof count);
  }
  std::memcpy(into.data(), taken.request.data(), taken.request.size());
  return {.size = taken.request.size(), .error = taken.error};
}

void PutAside::clear() {
  const MutexLock lock(mutex_);
  by_file_.clear();
  ready_.clear();
  waiting_ = ready_count_ = 0;
  std::uint64_t count = 0;
  (void)!::read(ready_fd_.get(), &count, sizeof count);
}

}  // namespace efs::fuse
