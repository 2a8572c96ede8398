#include "fuse/backing.hpp"

#include "base/log.hpp"

namespace efs::fuse {

BackingTable::~BackingTable() {
  // The connection is gone when this runs; the kernel has dropped the ids with it.
}

Result<int> BackingTable::acquire(std::uint64_t ino, bool wanted, Container* container) {
  if (registrar_ == nullptr) return 0;
  MutexLock lock(mutex_);
  if (auto it = slots_.find(ino); it != slots_.end()) {
    Slot& slot = it->second;
    if (slot.opens == 0) {
      idle_.erase(slot.idle);
      if (!wanted) {  // it gained a privilege bit since: back to the daemon's path
        registrar_->close_backing(slot.id);
        slot.id = 0;
      }
    }
    ++slot.opens;
    return slot.id;
  }
  Slot slot{.id = 0, .opens = 1, .idle = {}};
  if (wanted) {
    auto id = registrar_->open_backing(container->descriptor());
    // The daemon's path serves the file as well; only speed is lost, and the log says so once per inode.
    if (!id) log::warn("event=passthrough_refused ino={} reason=\"{}\"", ino, describe(id.error()));
    slot.id = id.value_or(0);
  }
  slots_.emplace(ino, slot);
  return slot.id;
}

void BackingTable::release(std::uint64_t ino) {
  if (registrar_ == nullptr) return;
  MutexLock lock(mutex_);
  const auto it = slots_.find(ino);
  if (it == slots_.end() || it->second.opens == 0 || --it->second.opens > 0) return;
  if (it->second.id == 0) {
    slots_.erase(it);
    return;
  }
  idle_.push_front(ino);
  it->second.idle = idle_.begin();
  if (idle_.size() <= most_idle) return;
  const auto oldest = slots_.find(idle_.back());
  registrar_->close_backing(oldest->second.id);
  slots_.erase(oldest);
  idle_.pop_back();
}

void BackingTable::let_go(std::uint64_t ino) {
  if (registrar_ == nullptr) return;
  MutexLock lock(mutex_);
  const auto it = slots_.find(ino);
  if (it == slots_.end() || it->second.opens > 0) return;
  idle_.erase(it->second.idle);
  if (it->second.id != 0) registrar_->close_backing(it->second.id);
  slots_.erase(it);
}

void BackingTable::drop(std::uint64_t ino) {
  if (registrar_ == nullptr) return;
  MutexLock lock(mutex_);
  const auto it = slots_.find(ino);
  if (it == slots_.end()) return;
  if (it->second.opens == 0) idle_.erase(it->second.idle);
  if (it->second.id != 0) registrar_->close_backing(it->second.id);
  slots_.erase(it);
}

}  // namespace efs::fuse
