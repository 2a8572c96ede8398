#include "fuse/backing.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "base/slow_work.hpp"

namespace efs::fuse {

void BackingTable::prepare(std::span<const fs::ContainerPool::Ready> containers) {
  while (registrar_ != nullptr && !containers.empty()) {
    const auto batch = containers.first(std::min(containers.size(), BackingRegistrar::most_at_once));
    containers = containers.subspan(batch.size());
    std::vector<Registration> files;
    for (const auto& one : batch) files.push_back({.ino = one.ino, .fd = one.container->descriptor()});
    // Without the lock: nobody knows these inodes yet.
    const auto ids = registrar_->open_backing(files);
    Ids due;
    {
      MutexLock lock(mutex_);
      for (std::size_t i = 0; i < batch.size(); ++i)
        if (ids[i]) make_idle(batch[i].ino, slots_.emplace(batch[i].ino, Slot{.id = *ids[i]}).first->second);  // else its open asks again, and says why
      due = take_closing(false);
    }
    close(due);
  }
}

void BackingTable::inherit(std::span<const InheritedBacking> inherited, const std::function<bool(std::uint64_t)>& exists) {
  constexpr std::uint64_t never_counted_down = std::uint64_t{1} << 62;
  Ids unused;
  {
    MutexLock lock(mutex_);
    for (const auto& one : inherited) {
      if (exists(one.ino)) slots_[one.ino] = Slot{.id = one.id, .opens = never_counted_down};
      else if (one.id != 0) unused.push_back(one.id);
    }
  }
  close(unused);
}

void BackingTable::make_idle(std::uint64_t ino, Slot& slot) {
  idle_.push_front(ino);
  slot.idle = true;
  slot.place = idle_.begin();
  if (idle_.size() <= most_idle) return;
  const auto oldest = slots_.find(idle_.back());
  close_later(oldest->second.id, 0);
  slots_.erase(oldest);
  idle_.pop_back();
}

Result<int> BackingTable::acquire(std::uint64_t ino, bool wanted, Container* container) {
  if (registrar_ == nullptr) return 0;
  Ids due;
  int id = 0;
  {
    MutexLock lock(mutex_);
    const auto [it, fresh] = slots_.try_emplace(ino);
    Slot& slot = it->second;
    if (slot.idle) idle_.erase(slot.place);
    slot.idle = false;
    if (fresh && wanted) {
      const Registration file{.ino = ino, .fd = container->descriptor()};
      const auto opened = std::move(registrar_->open_backing(std::span(&file, 1)).front());
      // The daemon's path serves the file as well; only speed is lost, and the log says so once per inode.
      if (!opened) log::warn("event=passthrough_refused ino={} reason=\"{}\"", ino, describe(opened.error()));
      slot.id = opened.value_or(0);
    } else if (slot.opens == 0 && !wanted && slot.id != 0) {  // it gained a privilege bit since: back to the daemon's path
      close_later(std::exchange(slot.id, 0), 0);
      due = take_closing(false);
    }
    if (slot.id == 0 && slot.opens == 0) registrar_->keep_to_daemon(ino, true);
    ++slot.opens;
    id = slot.id;
  }
  close(due);
  return id;
}

// The kernel keeps the container open for as long as it is registered, so this waits until it is not: an empty question
// is answered after everything that was said before it.
void BackingTable::let_go(std::uint64_t ino) {
  if (registrar_ == nullptr) return;
  Ids due;
  {
    MutexLock lock(mutex_);
    const auto it = slots_.find(ino);
    if (it == slots_.end() || it->second.opens > 0) return;
    if (it->second.idle) idle_.erase(it->second.place);
    if (it->second.id != 0) close_later(it->second.id, 0);
    slots_.erase(it);
    due = take_closing(true);
  }
  close(due);
  (void)registrar_->open_backing({});
}

void BackingTable::release(std::uint64_t ino) {
  if (registrar_ == nullptr) return;
  Ids due;
  {
    MutexLock lock(mutex_);
    const auto it = slots_.find(ino);
    if (it == slots_.end() || it->second.opens == 0 || --it->second.opens > 0) return;
    if (it->second.id == 0) {
      registrar_->keep_to_daemon(ino, false);
      slots_.erase(it);
      return;
    }
    make_idle(ino, it->second);
    due = take_closing(false);
  }
  close(due);
}

void BackingTable::drop(std::uint64_t ino, std::uint64_t bytes) {
  if (registrar_ == nullptr) return;
  Ids due;
  {
    MutexLock lock(mutex_);
    const auto it = slots_.find(ino);
    if (it == slots_.end()) {
      // Its id may wait already, without its bytes being known.
      if (bytes >= most_held) due = take_closing(true);
    } else {
      if (it->second.idle) idle_.erase(it->second.place);
      if (it->second.id != 0) close_later(it->second.id, bytes);
      else registrar_->keep_to_daemon(ino, false);
      slots_.erase(it);
      due = take_closing(false);
    }
  }
  close(due);
}

void BackingTable::run() {
  Ids due;
  {
    MutexLock lock(mutex_);
    due = take_closing(true);
  }
  close(due);
}

void BackingTable::close_later(int id, std::uint64_t bytes) {
  closing_.push_back(id);
  closing_bytes_ += bytes;
  waiting_ = true;
}

BackingTable::Ids BackingTable::take_closing(bool all) {
  if (!all && closing_.size() < BackingRegistrar::most_at_once && closing_bytes_ < most_held) return {};
  closing_bytes_ = 0;
  waiting_ = false;
  return std::exchange(closing_, {});
}

void BackingTable::close(const Ids& ids) {
  for (std::span<const int> left(ids); !left.empty(); left = left.subspan(std::min(left.size(), BackingRegistrar::most_at_once)))
    registrar_->close_backing(left.first(std::min(left.size(), BackingRegistrar::most_at_once)));
}

}  // namespace efs::fuse
