// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/kept_figures.hpp"

#include <sys/mman.h>

#include <new>

namespace efs::daemon {

void UnmapFigures::operator()(KeptFigures* figures) const {
  ::munmap(figures, sizeof *figures);
}

KeptFiguresPtr make_kept_figures() {
  constexpr int shared = MAP_SHARED | MAP_ANONYMOUS;
  void* memory = ::mmap(nullptr, sizeof(KeptFigures), PROT_READ | PROT_WRITE, shared, -1, 0);
  if (memory == MAP_FAILED) {
    return nullptr;
  }
  return KeptFiguresPtr(new (memory) KeptFigures);
}

}  // namespace efs::daemon
