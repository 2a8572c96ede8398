#pragma once
// Where running instances are found: a directory per instance below a runtime directory,
//   $EFS_RUNTIME_DIR, or /run/efs (or $EFS_ROOT_RUNTIME_DIR, as efs sets it from the site file) for
//   root, or $XDG_RUNTIME_DIR/efs, or /tmp/efs-UID;
// in it `control.sock` and `efsd.log`, and `lock`, which the supervisor holds locked while it
// lives.

#include <sys/types.h>

#include <array>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace efs::control {

/// The runtime directory in which `uid` starts instances.
std::string runtime_directory(uid_t uid);

struct Instance {
  std::string name;
  std::string directory;
  uid_t owner = 0;
  bool alive = false;  // its supervisor holds the lock
  // of the manifest, before it was seen whether it lives: another one as soon as somebody has
  // started it or gone on with it
  std::string state{};

  std::string socket() const { return directory + "/control.sock"; }
};

/// Stores in memory are mounted in the instance's directory: "store", and "store.N" for the backend
/// of number N.
inline constexpr unsigned most_stores = 8;
std::string store_name(unsigned number);

inline constexpr const char* lock_name = "lock";

/// All that efs puts into the directory of an instance, beside its stores. The lock is the last:
/// while it is there, the rest may be.
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

/// Takes the stores in memory of this instance's directory away, lazily: their memory is free when
/// nobody uses them any more. By name below the descriptor: a link in a name's place is removed,
/// not followed. Needs root where any is mounted.
Status drop_stores(int directory);

/// What tells the manifest in this directory from all later ones; "": there is none.
std::string state_of_manifest(int directory);

/// Does a supervisor hold the lock of the instance in this directory now?
bool is_alive(const std::string& directory);

/// The instances that this user can see: those in his runtime directory, and, unless
/// EFS_RUNTIME_DIR names it, in root's those that are his (all, for root).
std::vector<Instance> list_instances();

/// An instance that is dead, and is not started while this is held.
struct HeldInstance {
  UniqueFd directory, lock;
};

/// EBUSY where it lives, or somebody else holds it.
Result<HeldInstance> hold(const Instance& instance);

/// Removes what an instance whose daemon was killed left behind: its store in memory and its
/// directory. The data is gone then. EPERM where it is root's to do. A store on a file system
/// (fsdax) is not touched.
Status discard(const Instance& instance, const HeldInstance& held);

}  // namespace efs::control
