// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/door.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/slow_work.hpp"
#include "base/thread.hpp"
#include "fuse/connection.hpp"
#include "fuse/library.hpp"

namespace efs::fuse {

DoorPages::DoorPages(Connection& connection, const DoorMemory& memory, bool inherited)
    : connection_(connection), memory_(memory) {
  if (inherited) {
    MutexLock lock(mutex_);
    queue_.push_back({.ino = 0, .reply = {}});
    begin();
  }
}

DoorPages::~DoorPages() {
  std::jthread ended;  // joined without the lock
  {
    MutexLock lock(mutex_);
    ended_ = true;
    ended = std::move(thread_);
  }
  wake_.notify_one();
}

void DoorPages::begin() {
  if (thread_.joinable() || refused_) {
    return;
  }
  auto started = start_thread([this] { serve(); });
  refused_ = !started;
  if (started) {
    thread_ = std::move(*started);
  } else {
    log::warn("event=no_thread_for_door note=\"threads that serve requests do its work\"");
  }
}

void DoorPages::store_then(std::uint64_t ino, Reply reply) {
  Work work{.ino = ino, .reply = std::move(reply)};
  {
    MutexLock lock(mutex_);
    begin();
    if (!refused_) {
      queue_.push_back(std::move(work));
    }
  }
  wake_.notify_one();
  if (work.reply) {
    slow_work_begins();
    carry_out(work);
  }
}

void DoorPages::serve() noexcept {
  mutex_.lock();
  while (!ended_ || !queue_.empty()) {
    if (queue_.empty()) {
      wake_.wait(mutex_);
      continue;
    }
    Work work = std::move(queue_.front());
    queue_.pop_front();
    mutex_.unlock();
    carry_out(work);
    work.reply = {};
    mutex_.lock();
  }
  mutex_.unlock();
}

void DoorPages::carry_out(Work& work) noexcept {
  try {
    store(work.ino);
    if (work.reply) {
      work.reply();
    }
  } catch (const std::exception& problem) {  // the request replies that it has failed
    log::warn("event=request_not_finished reason=\"{}\"", problem.what());
  }
}

// The value of now, so that a later epoch is never replaced by an earlier one: only one thread
// stores. An unread page stays unread; its READ brings the value of then.
void DoorPages::store(std::uint64_t ino) {
  if (!connection_.backing.keeps_to_daemon(door_inode)) {
    return;
  }
  if (ino != 0) {
    std::uint64_t epoch = memory_.table().epochs[door_slot(ino)];
    return send(offsetof(DoorTable, epochs) + (sizeof epoch * door_slot(ino)), &epoch,
                sizeof epoch);
  }
  std::vector<std::byte> all(sizeof(DoorTable));
  if (::pread(memory_.descriptor(), all.data(), all.size(), 0) ==
      static_cast<ssize_t>(all.size())) {
    send(0, all.data(), all.size());
  }
}

void DoorPages::send(std::size_t offset, void* bytes, std::size_t size) {
  fuse_bufvec data = FUSE_BUFVEC_INIT(size);
  data.buf[0].mem = bytes;
  const int told = fuse_lowlevel_notify_store(connection_.session, door_inode,
                                              static_cast<off_t>(offset), &data, {});
  if (told == -ENOENT) {
    connection_.door.forgotten();
  } else if (told != 0 && told != -ENODEV) {  // ENODEV: the mount has ended
    log::warn("event=door_not_told code={}", -told);
  }
}

fs::Entry Door::entry() {
  fs::Entry entry{.ino = door_inode};
  struct stat& st = entry.attributes;
  st.st_ino = door_inode;
  st.st_mode = S_IFREG | 0444;
  st.st_nlink = 1;
  st.st_uid = ::getuid();
  st.st_gid = ::getgid();
  st.st_size = sizeof(DoorTable);
  st.st_blocks = sizeof(DoorTable) / 512;
  st.st_blksize = 4096;
  return entry;
}

void Door::begin(Connection& connection, bool resumes) {
  if (!exists()) {
    return;
  }
  if (resumes) {
    memory_->all_changed();
  }
  inherited_ = resumes;
  pages_ = std::make_unique<DoorPages>(connection, *memory_, resumes);
}

bool Door::has_cached_pages(const Connection& connection) const {
  return pages_ && (clients_.open() > 0 || inherited_) &&
         connection.backing.keeps_to_daemon(door_inode);
}

}  // namespace efs::fuse
