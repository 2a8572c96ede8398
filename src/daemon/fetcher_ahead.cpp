// SPDX-License-Identifier: BSD-3-Clause
// Fetches of what a program will probably open next.
#include <new>

#include "daemon/fetcher.hpp"
#include "fs/staging.hpp"

namespace efs::daemon {
namespace {

constexpr std::size_t most_opened = 256;

class StagingOrder final : public FileOrder {
 public:
  explicit StagingOrder(const fs::Staging& staging) : staging_(staging) {}

  std::uint64_t directory_of(std::uint64_t ino) const override {
    return staging_.directory_of(ino);
  }

  std::vector<File> files_in(std::uint64_t directory) const override {
    std::vector<File> files;
    for (auto& file : staging_.files_in(directory)) {
      files.push_back({.name = std::move(file.name), .ino = file.ino, .size = file.size});
    }
    return files;
  }

  bool is_remote(std::uint64_t ino) const override { return staging_.is_remote(ino); }

 private:
  const fs::Staging& staging_;
};

}  // namespace

// Called by a thread that serves requests.
void Fetcher::opened(std::uint64_t ino) noexcept {
  const MutexLock lock(mutex_);
  if (expected_.contains(ino)) {
    note_opened(ino);
    changed_.notify_all();
  }
}

void Fetcher::note_opened(std::uint64_t ino) noexcept {
  if (expected_.erase(ino) > 0) {
    aside_->watch_opens(expected_.size());
  }
  if (opened_.size() < most_opened) {
    try {
      opened_.push_back(ino);
    } catch (const std::bad_alloc&) {
    }  // less is fetched ahead
  }
}

bool Fetcher::look_ahead() {
  if (opened_.empty() || looks_ || !fetches_) {
    return false;
  }
  const std::uint64_t ino = opened_.front();
  opened_.pop_front();
  looks_ = true;
  mutex_.unlock();
  LookAhead::Next next;
  try {
    fs::Staging staging(*files_);
    if (ino == 0) {
      next.forget = ahead_.end_all();
    } else {
      next = ahead_.opened(ino, staging.room_to_spare(), StagingOrder(staging));
    }
  } catch (const std::bad_alloc&) {
  }  // less is fetched ahead
  mutex_.lock();
  looks_ = false;
  expect(next);
  return true;
}

void Fetcher::expect(const LookAhead::Next& next) {
  for (const auto ino : next.forget) {
    expected_.erase(ino);
  }
  queue_.forget_ahead(next.forget);
  for (const auto ino : next.fetch) {
    expected_.insert(ino);
    queue_.add_ahead(ino);
  }
  if (aside_) {
    aside_->watch_opens(expected_.size());
  }
  if (!next.fetch.empty()) {
    add_threads(next.fetch.size());
    changed_.notify_all();
  }
}

}  // namespace efs::daemon
