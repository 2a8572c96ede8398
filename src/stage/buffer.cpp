// SPDX-License-Identifier: BSD-3-Clause
#include "stage/buffer.hpp"

#include <thread>

namespace efs::stage {

Result<fs::OpenContainer> StagingBuffer::open_container(std::uint64_t ino) {
  if (writers_ == Writers::refused) {
    EFS_TRY(refuse_writers(ino));
  }
  return staging_.open_container(ino);
}

Status StagingBuffer::refuse_writers(std::uint64_t ino) {
  if (staging_.is_counted_quiet(ino)) {
    return {};
  }
  const MutexLock lock(mutex_);
  if (quiet_.contains(ino)) {
    return {};
  }
  // After an unmount the kernel releases files with a short delay.
  while (staging_.is_written(ino)) {
    if (std::chrono::steady_clock::now() >= let_go_by_) {
      return fail(EBUSY,
                  "a disconnected program still has it open for writing, and its writes go to the "
                  "buffer only: end the program, then export the file again");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  quiet_.insert(ino);
  return {};
}

}  // namespace efs::stage
