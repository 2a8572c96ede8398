// SPDX-License-Identifier: BSD-3-Clause
#include "fs/moved.hpp"

#include "fs/namespace.hpp"

namespace efs::fs {

// The former container, if it is still there, then has a number of no file, as a copy without a
// record has: match_containers() removes both. A copy that is gone was on a backend that survives
// less.
Status place_moved(const Namespace& names, Backend& backend) {
  Status done;
  names.for_each([&](const Inode& inode) {
    if (done && inode.container() != inode.ino) {
      done = backend.exchange(inode.ino, inode.container(), Exchange::at_set_up);
    }
  });
  return done || done.error().code != EXDEV
             ? done
             : fail(EUCLEAN, "files have moved to a backend that the store lacks");
}

}  // namespace efs::fs
