// SPDX-License-Identifier: BSD-3-Clause
#include "stage/versions/copy_version.hpp"

#include <fcntl.h>

#include <cstdint>

#include "base/clock.hpp"
#include "stage/pfs/paths.hpp"

namespace efs::stage {
namespace {

fs::Origin version_of(const struct stat& st, Nanoseconds ctime) {
  return {.device = st.st_dev,
          .inode = st.st_ino,
          .size = static_cast<std::uint64_t>(st.st_size),
          .mtime = to_ns(st.st_mtim),
          .ctime = ctime};
}

}  // namespace

fs::Origin copy_version(PfsIo& pfs, Publisher& publisher, PfsRef at, const std::string& name,
                        const struct stat& there) {
  return version_of(there, publisher.is_shared(pfs, at, name, there) ? 0 : to_ns(there.st_ctim));
}

Result<fs::Origin> version_below(PfsIo& pfs, Publisher& publisher, const std::string& top,
                                 const std::string& path) {
  const auto root = pfs.open(no_directory, top, directory_flags);
  const auto directory = root ? pfs.open_beneath(*root, parent_of(path), passage_flags)
                              : std::unexpected(root.error());
  if (!directory) {
    return std::unexpected(directory.error());
  }
  const auto now = pfs.lstat(*directory, leaf_of(path));
  if (!now) {
    return std::unexpected(now.error());
  }
  return copy_version(pfs, publisher, *directory, leaf_of(path), *now);
}

fs::Origin coming_version(const struct stat& partial, bool is_shared) {
  return version_of(partial, is_shared ? 0 : fs::Origin::any_ctime);
}

}  // namespace efs::stage
