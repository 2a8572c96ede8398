#include "fuse/row.hpp"

#include "base/log.hpp"
#include "base/slow_work.hpp"

namespace efs::fuse {

void register_row(fs::Filesystem& filesystem, BackingTable& backing, std::uint64_t ino) {
  slow_work_begins();
  const auto files = filesystem.servable(backing.rest_of_row(ino));
  backing.register_row(files);
  for (const auto& file : files)  // who removed one after servable() had looked may have found nothing to drop
    if (!filesystem.exists(file.ino)) backing.drop(file.ino, 0);
  log::debug("event=row_registered ino={} files={}", ino, files.size());
}

}  // namespace efs::fuse
