// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The directory of an instance below the runtime directory. It contains the lock, the socket, the
// log, the manifest, and `store`, the mount point of a store in memory. The daemon creates it and
// gives it to the user before it forks. The daemon removes it after all processes have ended.

#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "base/user.hpp"

namespace efs::daemon {

/// The open directory of a living instance. Two locks show that the instance lives: one on the file
/// `lock` and one on the directory itself. The directory lock is necessary because the user can
/// remove any file in the directory.
struct InstanceDirectory {
  // the last member is released first: a process that waits for the end waits for directory_lock
  UniqueFd base, directory, store, directory_lock, lock;
  bool was_there = false;  // an earlier instance may have left its store
};

/// Creates `base`/`name` for `user`, or reuses the directory of an instance that is dead or was
/// kept. A new directory is created and locked through descriptors before the user becomes its
/// owner, so the user cannot replace anything. A reused directory must still belong to the user,
/// and no symbolic link in it is followed. An empty directory, left by a killed process, is treated
/// as missing. Fails with EEXIST if the instance is alive, belongs to another user or is not made
/// by efs. Fails with EAGAIN if another process was removing the directory.
Result<InstanceDirectory> make_instance_directory(const std::string& base, const std::string& name,
                                                  const User& user);

/// Removes the directory with all files of efs and with a store in memory. Releases the lock after
/// all names are gone.
void remove_instance_directory(InstanceDirectory& made, const std::string& name);

/// Removes the files that only a living instance has. Keeps the files that lead to a store that
/// stays.
void leave_instance_directory(const InstanceDirectory& made);

}  // namespace efs::daemon
