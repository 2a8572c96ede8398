// SPDX-License-Identifier: BSD-3-Clause
#include "stage/pfs/open_owned.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace efs::stage {

Result<PfsHandle> open_owned(PfsRef directory, const std::string& name, std::uint64_t inode,
                             PfsIo& pfs) {
  auto file = pfs.open_beneath(directory, name, O_RDONLY | O_NONBLOCK);
  if (file || file.error().code != EACCES) {
    return file;
  }
  const auto now = pfs.lstat(directory, name);
  if (!now) {
    return std::unexpected(now.error());
  }
  if (!S_ISREG(now->st_mode) || now->st_ino != inode) {
    return fail(ESTALE, "another process has replaced it");
  }
  if (now->st_uid != ::geteuid()) {
    return file;
  }
  EFS_TRY(pfs.chmod_name(directory, name, (now->st_mode & 07777U) | S_IRUSR));
  file = pfs.open_beneath(directory, name, O_RDONLY | O_NONBLOCK);
  EFS_TRY(pfs.chmod_name(directory, name, now->st_mode & 07777U));
  return file;
}

}  // namespace efs::stage
