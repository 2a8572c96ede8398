// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/backing.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "base/open_files.hpp"
#include "base/slow_work.hpp"

namespace efs::fuse {
namespace {

constexpr std::uint64_t row_length = BackingRegistrar::most_at_once;

std::uint64_t row_of(std::uint64_t ino) {
  return ino / row_length * row_length;
}

}  // namespace

bool FullTablePolicy::has_neighbour(std::uint64_t ino) const {
  return std::ranges::any_of(lately_, [ino](std::uint64_t other) {
    return other != 0 && other != ino && row_of(other) == row_of(ino);
  });
}

std::size_t ids_to_keep_of(std::size_t kept, std::uint64_t open, std::uint64_t file_max) {
  const std::uint64_t quarter = file_max / 4;
  std::uint64_t most = BackingTable::idle_if_unknown;
  if (open > quarter) {
    most = kept - kept / 8;
  } else if (open > 0) {
    most = kept + (quarter - open) / 2;
  }
  return std::clamp<std::uint64_t>(most, BackingTable::fewest_idle, BackingTable::most_idle);
}

std::size_t ids_to_keep(std::size_t kept) {
  return ids_to_keep_of(kept, open_files_of_machine(), most_open_files_of_machine());
}

void BackingTable::prepare(std::span<const fs::ContainerPool::Ready> containers) {
  while (enabled() && !containers.empty()) {
    const auto batch =
        containers.first(std::min(containers.size(), BackingRegistrar::most_at_once));
    containers = containers.subspan(batch.size());
    std::vector<Registration> files;
    files.reserve(batch.size());
    for (const auto& one : batch) {
      files.push_back({.ino = one.ino, .fd = one.container->descriptor().value_or(-1)});
    }
    // No lock is needed: no open can name these inodes yet.
    const auto ids = registrar_->open_backing(files);
    MutexLock lock(mutex_);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (ids[i]) {
        add_idle(batch[i].ino, *ids[i]);  // else the open tries again and logs why
      }
    }
    close_pending(false);
  }
}

void BackingTable::inherit(std::span<const InheritedBacking> inherited, const OpensByInode& opens,
                           const std::function<bool(std::uint64_t)>& exists) {
  if (registrar_ == nullptr) {
    return;
  }
  // If an inode has two ids, the predecessor had not yet sent the message that closes the earlier
  // id. The kernel counts ids up, so the larger id is the later one.
  std::vector<InheritedBacking> in_order(inherited.begin(), inherited.end());
  std::ranges::sort(in_order, {}, &InheritedBacking::id);
  Ids unused;
  unused.reserve(in_order.size());
  {
    MutexLock lock(mutex_);
    for (const auto& [ino, open] : opens) {
      if (open.by_daemon > 0) {
        add(ino, 0, open.by_daemon);
      }
    }
    for (const auto& [ino, id, _] : in_order) {
      const auto known = slots_.find(ino);
      if (!exists(ino) || (known != slots_.end() && known->second.id == 0)) {
        unused.push_back(id);
      } else if (known != slots_.end()) {
        unused.push_back(std::exchange(known->second.id, id));
      } else {
        const auto open = opens.find(ino);
        add(ino, id, open != opens.end() ? open->second.through : 0);
      }
    }
    for (const auto& one : in_order) {
      if (const auto known = slots_.find(one.ino);
          known != slots_.end() && known->second.opens == 0 && !known->second.idle) {
        make_idle(known->second);
      }
    }
    close_pending(false);
  }
  close(unused);
}

BackingTable::Slot& BackingTable::add(std::uint64_t ino, int id, std::uint64_t opens) {
  std::list<std::uint64_t> place{ino};
  Slot& slot = slots_
                   .insert_or_assign(
                       ino, Slot{.id = id, .opens = opens, .idle = false, .place = place.begin()})
                   .first->second;
  open_.splice(open_.begin(), place);
  return slot;
}

void BackingTable::add_idle(std::uint64_t ino, int id) try {
  make_idle(add(ino, id, 0));
} catch (const std::bad_alloc&) {
  close_later(id, 0);
}

void BackingTable::make_idle(Slot& slot) {
  idle_.splice(idle_.begin(), open_, slot.place);
  slot.idle = true;
  if (++since_limit_ >= renewed_after) {
    since_limit_ = 0;
    try {
      idle_limit_ = most_idle_now_(idle_.size());
    } catch (const std::bad_alloc&) {
    }  // as before
  }
  // Two at a time: a lowered limit is reached step by step.
  for (int closed = 0; closed < 2 && idle_.size() > idle_limit_; ++closed) {
    const auto oldest = slots_.find(idle_.back());
    close_later(oldest->second.id, 0);
    erase(oldest);
  }
}

void BackingTable::make_used(Slot& slot) {
  if (slot.idle) {
    open_.splice(open_.begin(), idle_, slot.place);
  }
  slot.idle = false;
}

void BackingTable::erase(std::unordered_map<std::uint64_t, Slot>::iterator it) {
  (it->second.idle ? idle_ : open_).erase(it->second.place);
  slots_.erase(it);
}

// A refusal costs only speed: the daemon's path serves the file. The log has each reason once, not
// once for each file.
int BackingTable::register_now(std::uint64_t ino, int descriptor) {
  if (refused_) {
    return 0;
  }
  try {
    const Registration file{.ino = ino, .fd = descriptor};
    const auto opened = std::move(registrar_->open_backing(std::span(&file, 1)).front());
    const int code = opened ? 0 : opened.error().code;
    if (code != 0 && code != last_refusal_) {
      log::warn(
          "event=passthrough_refused ino={} reason=\"{}\" note=\"further files that are refused "
          "for this reason are not logged\"",
          ino, describe(opened.error()));
    }
    if (code != 0) {
      last_refusal_ = code;
    }
    return opened.value_or(0);
  } catch (const std::bad_alloc&) {
    log::warn("event=passthrough_refused ino={} reason=\"out of memory\"", ino);
    return 0;
  }
}

// The file gained a privilege bit since its last open: it returns to the daemon's path.
void BackingTable::revoke_unopened(Slot& slot) {
  if (slot.opens != 0 || slot.id == 0) {
    return;
  }
  close_later(std::exchange(slot.id, 0), 0);
  close_pending(false);
}

Result<BackingTable::Acquired> BackingTable::acquire(std::uint64_t ino, bool wanted,
                                                     std::optional<int> descriptor) try {
  const bool lacks_container = wanted && !descriptor;
  if (registrar_ == nullptr) {
    return Acquired{.needs_container = lacks_container};
  }
  Acquired acquired;
  {
    MutexLock lock(mutex_);
    const auto known = slots_.find(ino);
    const bool fresh = known == slots_.end();
    if (fresh && lacks_container) {
      return Acquired{.needs_container = true,
                      .small_without = is_full() && full_.allows_daemon(ino)};
    }
    Slot& slot = fresh ? add(ino, 0, 0) : known->second;
    make_used(slot);
    if (fresh && wanted) {
      slot.id = register_now(ino, *descriptor);
      acquired.row = slot.id != 0 && deserves_batch(ino);
      full_.opened(ino);
    } else if (!wanted) {
      revoke_unopened(slot);
    }
    ++slot.opens;
    acquired.id = slot.id;
  }
  return acquired;
} catch (const std::bad_alloc&) {  // add() failed: nothing has changed

  return fail(ENOMEM);
}

Result<BackingTable::Acquired> BackingTable::acquire_unregistered(std::uint64_t ino) try {
  MutexLock lock(mutex_);
  const auto known = slots_.find(ino);
  Slot& slot = known == slots_.end() ? add(ino, 0, 0) : known->second;
  make_used(slot);
  full_.opened(ino);
  ++slot.opens;
  return Acquired{.id = slot.id, .unregistered = slot.id == 0};
} catch (const std::bad_alloc&) {  // add() failed: nothing has changed

  return fail(ENOMEM);
}

// The first open of a batch does not register the batch: otherwise each file that is opened alone
// would register its neighbours.
bool BackingTable::has_others_of_row(std::uint64_t ino) const {
  for (std::uint64_t one = row_of(ino); one < row_of(ino) + row_length; ++one) {
    if (one != ino && slots_.contains(one)) {
      return true;
    }
  }
  return false;
}

std::vector<std::uint64_t> BackingTable::rest_of_batch(std::uint64_t ino) const {
  std::vector<std::uint64_t> rest;
  rest.reserve(row_length);
  MutexLock lock(mutex_);
  if (!enabled() || !has_room_for_row()) {
    return rest;
  }
  for (std::uint64_t one = row_of(ino); one < row_of(ino) + row_length; ++one) {
    if (!slots_.contains(one)) {
      rest.push_back(one);
    }
  }
  return rest;
}

std::size_t BackingTable::register_batch(std::span<const fs::ContainerPool::Ready> files) {
  if (!enabled()) {
    return 0;
  }
  std::size_t registered = 0;
  std::vector<Registration> unknown;
  unknown.reserve(files.size());
  {
    MutexLock lock(mutex_);
    for (const auto& file : files) {
      if (!slots_.contains(file.ino)) {
        unknown.push_back({.ino = file.ino, .fd = file.container->descriptor().value_or(-1)});
      }
    }
    if (unknown.empty()) {
      return 0;
    }
    const auto ids = registrar_->open_backing(unknown);
    for (std::size_t i = 0; i < unknown.size(); ++i) {
      if (!ids[i]) {
        continue;  // the file's open tries again and logs the reason
      }
      add_idle(unknown[i].ino, *ids[i]);
      ++registered;
    }
    close_pending(false);
  }
  return registered;
}

bool BackingTable::passes_through(std::uint64_t ino) const {
  if (registrar_ == nullptr) {
    return false;
  }
  MutexLock lock(mutex_);
  const auto known = slots_.find(ino);
  return known != slots_.end() && known->second.id != 0 && known->second.opens > 0;
}

bool BackingTable::keeps_to_daemon(std::uint64_t ino) const {
  if (registrar_ == nullptr) {
    return true;
  }
  MutexLock lock(mutex_);
  const auto known = slots_.find(ino);
  return known != slots_.end() && known->second.id == 0;
}

void BackingTable::let_go(std::uint64_t ino) {
  if (registrar_ == nullptr) {
    return;
  }
  {
    MutexLock lock(mutex_);
    if (const auto it = slots_.find(ino); it != slots_.end()) {
      if (it->second.opens > 0) {
        return;
      }
      if (it->second.id != 0) {
        close_later(it->second.id, 0);
      }
      erase(it);
    }
  }
  close_dropped();
}

// The kernel keeps a container open while it is registered, so this waits until the registrations
// have ended. The registrar answers the empty call after it has processed all earlier messages.
void BackingTable::close_dropped() {
  if (registrar_ == nullptr) {
    return;
  }
  run();
  (void)registrar_->open_backing({});
}

void BackingTable::release(std::uint64_t ino) {
  if (registrar_ == nullptr) {
    return;
  }
  {
    MutexLock lock(mutex_);
    const auto it = slots_.find(ino);
    if (it == slots_.end() || it->second.opens == 0 || --it->second.opens > 0) {
      return;
    }
    if (it->second.id == 0) {
      return erase(it);
    }
    make_idle(it->second);
    close_pending(false);
  }
}

void BackingTable::drop(std::uint64_t ino, std::uint64_t bytes) {
  if (registrar_ == nullptr) {
    return;
  }
  {
    MutexLock lock(mutex_);
    const auto it = slots_.find(ino);
    if (it == slots_.end()) {
      // The id may already be pending, and the table may not have counted its bytes.
      if (bytes >= most_held) {
        close_pending(true);
      }
    } else {
      if (it->second.id != 0) {
        close_later(it->second.id, bytes);
      }
      erase(it);
      close_pending(false);
    }
  }
}

void BackingTable::run() {
  {
    MutexLock lock(mutex_);
    close_pending(true);
  }
}

void BackingTable::close_later(int id, std::uint64_t bytes) {
  try {
    closing_.push_back(id);
  } catch (const std::bad_alloc&) {
    return registrar_->close_backing(std::span(&id, 1));
  }
  closing_bytes_ += bytes;
  waiting_ = true;
}

// Under the lock: who calls close_dropped() after another thread has taken the ids must find their
// messages sent.
void BackingTable::close_pending(bool all) {
  if (!all && closing_.size() < BackingRegistrar::most_at_once && closing_bytes_ < most_held) {
    return;
  }
  close(closing_);
  closing_.clear();
  closing_bytes_ = 0;
  waiting_ = false;
}

void BackingTable::close(const Ids& ids) {
  for (std::span<const int> left(ids); !left.empty();
       left = left.subspan(std::min(left.size(), BackingRegistrar::most_at_once))) {
    registrar_->close_backing(left.first(std::min(left.size(), BackingRegistrar::most_at_once)));
  }
}

}  // namespace efs::fuse
