// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/registration_batch.hpp"

#include "base/log.hpp"
#include "base/slow_work.hpp"

namespace efs::fuse {

void BatchRegistrar::run(std::uint64_t ino) {
  if (busy_.test_and_set()) {
    return;
  }
  try {
    register_batch(ino);
  } catch (...) {
    end();
    throw;
  }
  end();
}

void BatchRegistrar::end() {
  busy_.clear();
  busy_.notify_all();
}

void BatchRegistrar::register_batch(std::uint64_t ino) {
  const auto rest = backing_.rest_of_batch(ino);
  if (rest.empty()) {
    return;
  }
  slow_work_begins();
  const auto files = filesystem_.servable(rest);
  const std::size_t registered = backing_.register_batch(files);
  // a file may have been removed after servable() and before its registration; that removal found
  // no registration to drop, and now waits for the space
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
