// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Finds running instances. Each instance has a directory in a runtime directory:
//   $EFS_RUNTIME_DIR, or /run/efs (or $EFS_ROOT_RUNTIME_DIR, as efs sets it from the site file) for
//   root, or $XDG_RUNTIME_DIR/efs, or /tmp/efs-UID.
// The directory has `control.sock`, `efsd.log`, and `lock`. The supervisor holds `lock` while it
// lives.

#include <sys/types.h>

#include <array>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace efs::control {

/// Returns the runtime directory for instances that `uid` starts.
std::string runtime_directory(uid_t uid);

struct Instance {
  std::string name;
  std::string directory;
  uid_t owner = 0;
  bool alive = false;  // its supervisor holds the lock
  // state_of_manifest(), read before `alive`. Changes when a later start creates or continues the
  // instance
  std::string state{};

  std::string socket() const { return directory + "/control.sock"; }
};

/// Stores in memory are mounted in the instance's directory: "store" for backend 0, and "store.N"
/// for backend N.
inline constexpr unsigned most_stores = 8;
std::string store_name(unsigned number);

inline constexpr const char* lock_name = "lock";

/// All files of efs in an instance's directory, besides its stores. The lock is the last: while it
/// exists, the other files may exist.
inline constexpr std::array files_of_an_instance{"control.sock",
                                                 "efsd.log",
                                                 "instance.json",
                                                 "instance.json.new",
                                                 "job.yaml",
                                                 "status.json",
                                                 "status.json.efs-partial",
                                                 "parts",
                                                 "parts.efs-partial",
                                                 "listed",
                                                 "listed.efs-partial",
                                                 "tasks",
                                                 "unloaded",
                                                 "receipt.json",
                                                 "receipt.json.efs-partial",
                                                 "stop",
                                                 "stop.efs-partial",
                                                 lock_name};

/// Unmounts this instance's stores in memory lazily: the kernel frees the memory after its last
/// use. Works by name below the descriptor; a link of that name is removed, not followed. Needs
/// root if a store is mounted.
Status drop_stores(int directory);

/// Identifies the manifest in this directory; each later manifest has another value. "": no
/// manifest.
std::string state_of_manifest(int directory);

/// Returns whether a supervisor now holds the lock of the instance in this directory.
bool is_alive(const std::string& directory);

/// Returns the instances that this user can see. These are the instances in the user's runtime
/// directory and, unless EFS_RUNTIME_DIR is set, the user's instances in root's directory (for
/// root, all).
std::vector<Instance> list_instances();

/// A dead instance. No process can start it while this object exists.
struct LockedInstance {
  UniqueFd directory, lock;
};

/// EBUSY if the instance is alive, or if another process holds its lock.
Result<LockedInstance> lock_instance(const Instance& instance);

/// Removes the store in memory and the directory of a dead instance. The data is then lost. EPERM
/// if only root can remove them. Leaves a store on a file system (fsdax) unchanged.
Status discard(const Instance& instance, const LockedInstance& held);

}  // namespace efs::control
