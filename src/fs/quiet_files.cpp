// SPDX-License-Identifier: BSD-3-Clause
// Pages are freed that no program needs: zeros, and room behind the end of a file. Content, size
// and times stay as they are, so there is no record of it: a crash leaves a file of the same
// content that takes more space. If it comes within a punch, the file's mtime is that moment.
//
// The proof that no program can store into a page between its examination and its punch:
// 1. This process made the inode, so it counted each open (owns_pages()).
// 2. Staging::writers() reports that no program can write, in one of two cases. In the first case
//    no open for writing waits for its RELEASE, and the file was never open read-write, so it
//    cannot be mapped. In the second case the kernel has granted a read lease on the container.
//    With passthrough a mapping of the file is a mapping of the container, which outlives the
//    RELEASE and prevents the lease. efs reads Inode::edits before the lease. An idle registration
//    is read-only, and no program writes through it without an open.
// 3. efs examines the pages after step 2. Each open for writing increments Inode::edits and
//    write_opens before the reply. So if edits is unchanged and no open is counted, there was no
//    writer. efs checks this under the exclusive namespace lock and holds the lock until the punch
//    is done. An open needs the lock to be counted, so it waits.
// 4. Staging writes to containers that have no inode yet, and efs never examines those. A sealed
//    container is shared with another file and is not punched. A truncation by path has no open. It
//    only adds or removes zeros; MappedFile::alone() excludes it to keep the times right.
// Outside the proof: a device that still writes into a page of a mapping which the program has
// unmapped before its asynchronous read into it has completed.
#include "fs/quiet_files.hpp"

#include <linux/falloc.h>

#include <chrono>
#include <thread>

#include "fs/filesystem.hpp"
#include "fs/kernel_view.hpp"
#include "fs/seal.hpp"
#include "fs/staging.hpp"

namespace efs::fs {

bool Filesystem::is_closed(std::uint64_t ino) const {
  ReadLock lock(mutex_);
  const Inode* inode = names_.find(ino);
  return inode != nullptr && owns_pages(*inode) && inode->write_opens == 0;
}

bool Filesystem::is_closed_with_zeros(std::uint64_t ino) const {
  ReadLock lock(mutex_);
  const Inode* inode = names_.find(ino);
  return inode != nullptr && may_punch(*inode) && inode->write_opens == 0;
}

// A program that reserves space takes the lock, so it comes before or after.
Status Filesystem::while_open(std::uint64_t ino, const std::function<Status(MappedFile&)>& use) {
  const auto content = file(ino);
  EFS_TRY(content);
  ReadLock lock(mutex_);
  const auto found = regular(ino);
  EFS_TRY(found);
  return owns_pages(**found) && (*found)->write_opens > 0 ? use(**content) : fail(EAGAIN);
}

std::optional<std::uint64_t> Filesystem::prove_no_writer(std::uint64_t ino, int tries) {
  for (int i = 0; i < tries; ++i) {
    if (i > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const auto writers = Staging(*this).writers(ino);
    if (!writers || writers->open > 0) {
      return std::nullopt;
    }
    if (!writers->possible) {
      return writers->edits;
    }
  }
  return std::nullopt;
}

Status Filesystem::punch(std::uint64_t ino, std::uint64_t proof, MappedFile& content,
                         std::span<const Run> runs) {
  WriteLock lock(mutex_);
  Inode* inode = names_.find(ino);
  if (inode == nullptr || !owns_pages(*inode) || inode->is_remote() || inode->write_opens > 0 ||
      inode->edits != proof || held_ > 0) {
    return fail(EAGAIN);
  }
  auto& kept = inode->more().kept_time;
  return content.alone([&](Container& container) -> Status {
    const auto before = container.attributes();
    if (!before || is_sealed(*before)) {
      return fail(EAGAIN);
    }
    const FileTime shown = shown_ctime(*inode, *before);
    Status done;
    for (const Run& run : runs) {
      done = container.allocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, run.offset, run.length);
      if (!done) {
        break;
      }
    }
    epoch_ends(ino);
    EFS_TRY(container.set_times(std::nullopt, before->st_mtim));
    const auto after = container.attributes();
    EFS_TRY(after);
    kept = InodeExtra::KeptTime{.shown = shown, .ctime = after->st_ctim, .mtime = after->st_mtim};
    return done;
  });
}

void Filesystem::space_given_back(std::uint64_t ino) {
  if (KernelView* kernel = kernel_) {
    kernel->space_given_back(ino);
  }
}

}  // namespace efs::fs
