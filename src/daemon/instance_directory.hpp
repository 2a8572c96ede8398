#pragma once
// The directory of an instance below the runtime directory: lock, socket, log, manifest, and
// `store`, where a store in memory is mounted. Made, handed to the user and removed by the daemon
// before it forks and after all has ended.

#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "base/user.hpp"

namespace efs::daemon {

/// Held open for the life of the instance. Two locks say that it lives: of the file `lock`, and of
/// the directory itself, for the user can remove any file in it.
struct InstanceDirectory {
  // the last is given up first: who waits for an end waits for directory_lock
  UniqueFd base, directory, store, directory_lock, lock;
  bool was_there = false;  // an earlier instance may have left its store
};

/// Makes `base`/`name` for `user`, or takes over that of an instance which is dead or was kept.
/// Made and locked before it is given to the user, through descriptors, so that nothing can be
/// slipped under us; what was the user's is believed only where it is still his, and nothing in it
/// is followed. An empty one, whose maker or remover was killed, is as good as none. EEXIST: it is
/// alive, another user's, or not made by efs; EAGAIN: it was being removed.
Result<InstanceDirectory> make_instance_directory(const std::string& base, const std::string& name,
                                                  const User& user);

/// Removes it with all that efs puts there, and a store in memory. The lock is given up when all
/// names are gone.
void remove_instance_directory(InstanceDirectory& made, const std::string& name);

/// Removes what only a living instance has; what leads to a store that stays is left.
void leave_instance_directory(const InstanceDirectory& made);

}  // namespace efs::daemon
