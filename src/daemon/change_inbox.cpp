// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/change_inbox.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace efs::daemon {

void ChangeInbox::closed(std::uint64_t ino) noexcept {
  add(Change::Kind::closed, ino, 0, {});
}

void ChangeInbox::changed(std::uint64_t ino) noexcept {
  add(Change::Kind::changed, ino, 0, {});
}

void ChangeInbox::named(std::uint64_t ino, std::uint64_t parent, std::string_view name) noexcept {
  add(Change::Kind::named, ino, parent, name);
}

void ChangeInbox::moved(std::uint64_t parent, std::string_view name) noexcept {
  add(Change::Kind::moved, 0, parent, name);
}

// Without memory the change is lost, as with too many changes.
void ChangeInbox::add(Change::Kind kind, std::uint64_t ino, std::uint64_t parent,
                      std::string_view name) noexcept {
  const MutexLock lock(mutex_);
  if (content_.changes.empty()) {
    told_.notify_one();
  }
  if (content_.changes.size() >= most) {
    content_.lost = true;
    return;
  }
  last_ = std::max(last_ + 1, wall_clock());
  try {
    content_.changes.push_back(
        {.kind = kind, .ino = ino, .parent = parent, .name = std::string(name), .at = last_});
  } catch (const std::bad_alloc&) {
    content_.lost = true;
  }
}

void ChangeInbox::poke() {
  const MutexLock lock(mutex_);
  is_poked_ = true;
  told_.notify_one();
}

void ChangeInbox::wait(std::optional<Time> end) {
  const MutexLock lock(mutex_);
  while (!is_poked_ && content_.changes.empty() && !content_.lost) {
    if (!end) {
      told_.wait(mutex_);
    } else if (!told_.wait_until(mutex_, *end)) {
      break;
    }
  }
  const auto gathered = std::chrono::steady_clock::now() + gathering;
  while (!is_poked_ && !content_.changes.empty() && told_.wait_until(mutex_, gathered)) {
  }
  is_poked_ = false;
}

ChangeInbox::Content ChangeInbox::take() {
  const MutexLock lock(mutex_);
  return std::exchange(content_, {});
}

}  // namespace efs::daemon
