#include "fuse/row.hpp"

#include "base/log.hpp"
#include "base/slow_work.hpp"

namespace efs::fuse {

void RowRegistrar::run(std::uint64_t ino) {
  if (busy_.test_and_set()) {
    return;
  }
  try {
    register_row(ino);
  } catch (...) {
    end();
    throw;
  }
  end();
}

void RowRegistrar::end() {
  busy_.clear();
  busy_.notify_all();
}

void RowRegistrar::register_row(std::uint64_t ino) {
  const auto rest = backing_.rest_of_row(ino);
  if (rest.empty()) {
    return;
  }
  slow_work_begins();
  const auto files = filesystem_.servable(rest);
  const std::size_t registered = backing_.register_row(files);
  // who removed one after servable() had looked may have found nothing to drop, and waits for its
  // space
  for (const auto& file : files) {
    if (!filesystem_.exists(file.ino)) {
      backing_.drop(file.ino, BackingTable::most_held);
    }
  }
  if (registered > 0) {
    log::debug("event=row_registered ino={} files={}", ino, registered);
  }
}

}  // namespace efs::fuse
