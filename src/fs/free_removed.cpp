// SPDX-License-Identifier: BSD-3-Clause
// The space of removed files. A removal is answered before the kernel gives back its last
// reference, before the journal is synced on a page-cache file system, and before the kernel closes
// the passthrough registration. Each of them holds the container's space. With passthrough the
// kernel then rejects the next write without asking the daemon.
#include <algorithm>
#include <chrono>
#include <new>
#include <thread>

#include "base/log.hpp"
#include "base/slow_work.hpp"
#include "fs/filesystem.hpp"
#include "fs/kernel_view.hpp"

namespace efs::fs {

bool Filesystem::waits_for_journal(std::uint64_t ino) {
  if (options_.read_only || backend_.durability() != Durability::page ||
      !options_.rules.free_after_durable) {
    return false;
  }
  const auto held = backend_.attributes(ino);
  const std::uint64_t bytes = held ? static_cast<std::uint64_t>(held->st_blocks) * 512 : 0;
  if (journal_) {
    try {  // without a journal there is nothing to wait for: the next start frees it
      released_.push_back({journal_->sequence(), ino});
      space_.owe(backend_.place_of(ino), bytes);
    } catch (const std::bad_alloc&) {
    }  // the next start frees it
  }
  return true;
}

Filesystem::Reaped Filesystem::reap(std::uint64_t ino) {
  Inode* inode = names_.find(ino);
  if (inode == nullptr || inode->nlink > 0 ||
      (inode->lookups > 0 && options_.rules.free_after_reader) || ino == root_ino) {
    return {};
  }
  // The kernel has forgotten the file: the program of an open that is not repeated after a takeover
  // was killed. What another owner has open stays.
  if (inode->is_open()) {
    const auto is_of_file = [ino](const OpenFile& file) {
      return file.ino == ino;
    };
    opens_.close_if(
        [&](const OpenFile& file) {
          return is_of_file(file) && file.owner.kind == Owner::Kind::kernel;
        },
        [inode](const OpenFile& file) { inode->count_close(file.flags); });
    if (opens_.count(is_of_file) > 0) {
      return {};
    }
  }
  const bool has_container = inode->is_regular() && !inode->freed;
  const Reaped reaped{.gone = true,
                      .container = has_container ? ino : 0,
                      .waits = has_container && waits_for_journal(ino)};
  unnamed_.erase(ino);
  names_.destroy(ino);
  return reaped;
}

Filesystem::Reaped Filesystem::withdraw(std::uint64_t ino) {
  if (Inode* inode = names_.find(ino)) {
    inode->withdrawn = inode->nlink == 0;
  }
  return reap(ino);
}

Filesystem::Reaped Filesystem::reap_unnamed(std::uint64_t ino, SpaceAccount::Level level) {
  if (const Reaped reaped = reap(ino); reaped.gone) {
    return reaped;
  }
  Inode* inode = names_.find(ino);
  if (inode == nullptr || inode->nlink > 0 || !inode->is_regular()) {
    return {};
  }
  removals_.note();
  bool now = level == SpaceAccount::Level::scarce;
  // A file that holds a noticeable part: its FORGET may wait behind the next create.
  if (!now && !inode->freed) {
    const auto held = backend_.attributes(ino);
    now = held && static_cast<std::uint64_t>(held->st_blocks) * 512 >
                      space_.available(backend_.place_of(ino)) / SpaceAccount::noticeable;
  }
  if (now && !inode->freed && inode->is_unreachable()) {
    return free_unopened(*inode);
  }
  try {
    unnamed_.insert(ino);
  } catch (const std::bad_alloc&) {
  }  // the kernel's FORGET frees it
  return {.open = now && !inode->freed ? ino : 0};
}

// Frees the file if its last RELEASE was received before the removal, and counted after it: the
// program has closed the file, and with passthrough its next write does not ask the daemon.
void Filesystem::reap_when_released(std::uint64_t ino, SpaceAccount::Level level) {
  KernelView* kernel = kernel_;
  if (ino == 0 || kernel == nullptr) {
    return;
  }
  kernel->await_received();
  const Removing removing(removals_);
  Reaped reaped;
  {
    WriteLock lock(mutex_);
    reaped = reap_unnamed(ino, level);
  }
  remove_container(reaped);
}

Filesystem::Reaped Filesystem::free_unopened(Inode& inode) {
  const auto last = backend_.attributes(inode.ino);
  if (!last) {
    return {};
  }
  try {
    inode.freed = std::make_unique<struct stat>(*last);
  } catch (const std::bad_alloc&) {
    return {};
  }
  unnamed_.erase(inode.ino);
  return {.gone = false, .container = inode.ino, .waits = waits_for_journal(inode.ino)};
}

void Filesystem::remove_container(const Reaped& reaped) {
  if (reaped.container == 0) {
    return;
  }
  KernelView* kernel = kernel_;
  // Owed before: a removal of much hands over the lead, and the next create must wait for it.
  if (const auto held = backend_.attributes(reaped.container);
      held && !reaped.waits && kernel != nullptr) {
    space_.owe(backend_.place_of(reaped.container),
               static_cast<std::uint64_t>(held->st_blocks) * 512);
  }
  room_.drop(reaped.container);
  removals_.note();
  const bool later = kernel != nullptr && !reaped.waits && kernel->removes_later() &&
                     space_.level() == SpaceAccount::Level::ample;
  const std::size_t waiting = later ? put_off_.add(reaped.container) : 0;
  if (waiting == 0) {
    return remove_container_now(reaped);
  }
  if (waiting == 1) {
    kernel->removals_wait();
  }
}

void Filesystem::remove_put_off() {
  if (put_off() == 0) {
    return;
  }
  const Removing removing(removals_);  // before take(): no removal may be out of sight
  while (const std::uint64_t container = put_off_.take()) {
    remove_container_now({.gone = true, .container = container});
  }
}

void Filesystem::remove_container_now(const Reaped& reaped) {
  std::shared_ptr<MappedFile> closed;  // after the lock is released
  {
    MutexLock lock(files_mutex_);
    if (const auto it = files_.find(reaped.container); it != files_.end()) {
      closed = std::move(it->second);
      files_.erase(it);
    }
  }
  closed.reset();
  const std::uint64_t bytes = reaped.waits ? 0 : backend_.remove(reaped.container).value_or(0);
  if (KernelView* kernel = kernel_) {
    kernel->container_removed(reaped.container, bytes);
  }
}

bool Filesystem::has_open_removed() const {
  ReadLock lock(mutex_);
  return !unnamed_.empty();
}

void Filesystem::make_room_ahead() {
  KernelView* kernel = kernel_;
  if (kernel != nullptr && space_.level() != SpaceAccount::Level::ample) {
    remove_put_off();
    // Counted, but not owed yet: a RELEASE that another thread handles.
    if (has_open_removed() || removals_.any_running()) {
      kernel->await_received();
      free_removed();
      return;
    }
  }
  free_removed_if(SpaceAccount::noticeable);
}

bool Filesystem::await_release() {
  if (!has_open_removed()) {
    return false;
  }
  slow_work_begins();
  if (KernelView* kernel = kernel_) {
    kernel->await_received();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return true;
}

bool Filesystem::await_removed() {
  const auto removals = removals_.noted();
  if (needs_no_sync() || awaited_.exchange(removals) == removals) {
    return false;
  }
  slow_work_begins();
  backend_.await_removed();
  return true;
}

bool Filesystem::free_removed() try {
  // In this order: a removal goes from the last of them to the first.
  if (put_off() == 0 && !removals_.any_running() && freed_up_to_ == removals_.noted()) {
    space_.settle();
    const bool any = room_.give_back_all();
    return zeros_.free_left() || any;
  }
  slow_work_begins();
  MutexLock turn(freeing_);
  const auto removals = removals_.noted();
  const auto debts = space_.debts();  // later ones may have to wait for another sync
  std::vector<Reaped> unopened;
  bool waits = false;
  {
    const Removing removing(removals_);
    {
      WriteLock lock(mutex_);
      try {
        unopened.reserve(unnamed_.size());
        const std::vector<std::uint64_t> candidates(unnamed_.begin(), unnamed_.end());
        for (const auto ino : candidates) {
          if (Inode* inode = names_.find(ino); inode != nullptr && inode->is_unreachable()) {
            unopened.push_back(free_unopened(*inode));
          }
        }
      } catch (const std::bad_alloc&) {
      }  // the kernel's FORGET frees them
      waits = !released_.empty();
    }
    for (const Reaped& one : unopened) {
      remove_container(one);
    }
  }
  if (waits) {
    (void)sync_journal();  // logged; a file system that failed frees nothing
  }
  zeros_.free_left();
  room_.give_back_all();
  // Upkeep may take one after the wait, and before remove_put_off().
  constexpr int most_rounds = 16;
  for (int rounds = 0; rounds < most_rounds && (put_off() > 0 || removals_.any_running());
       ++rounds) {
    remove_put_off();
    removals_.wait();
  }
  if (KernelView* kernel = kernel_) {
    kernel->release_space();
  }
  space_.pay(debts);  // not before: who finds nothing owed does not wait for the kernel
  backend_.look_again(true);
  freed_up_to_ = removals;  // not before: others come here to wait for it
  ++times_freed_;
  return true;
} catch (const std::bad_alloc&) {  // the kernel's FORGET and tend() free it

  return false;
}

}  // namespace efs::fs
