#pragma once
// Several backends: where each lies, and how they become one device. Used by store_setup.cpp.

#include "backends/fsdax.hpp"
#include "daemon/store_setup.hpp"

namespace efs::daemon {

/// Where a backend lies.
struct Ground {
  UniqueFd root;
  FsdaxOptions options;  // all but the directory
  std::string path;
  std::string directory;  // to be removed at the end; "" where it goes with its tmpfs
  bool left = false;      // by somebody before us
};

/// The ground of the backend of this number, made or, with `must_be_there`, found: ENOENT.
Result<Ground> find_ground(const SetUp& how, unsigned number, bool must_be_there);

/// The capacity of a backend in memory that declares none is final: `store` has it for the
/// manifest. One that was left has no less than before.
void settle_capacity(const SetUp& how, unsigned number, Store& store, Ground& ground);

/// Puts the other backends of the job file beside the first one, which is in the store. Refused
/// (EEXIST) where what was left is of other backends, or one has data that no journal knows.
Status add_members(const SetUp& how, Store& store);

/// Takes the lock in this directory of a store, for this worker and, through the supervisor, its
/// successors. EBUSY: `others` (for the text) have it; EAGAIN: who had it has removed the store.
Result<UniqueFd> lock_of_store(SupervisorClient& supervisor, int directory, const std::string& path,
                               const std::string& others);

/// Shared locks (flock(2)) of the store's directory and of those in it, which the supervisor holds,
/// too. systemd-tmpfiles skips a directory that it cannot lock, with all that is below it; where a
/// rule names the store itself, it locks those in it only. A lock that is refused is logged.
std::vector<UniqueFd> keep_cleaners_out(SupervisorClient& supervisor, int root,
                                        const std::string& path);

/// image::was_over() of the manifest in this directory of an instance.
bool was_over(const std::string& instance, const image::Manifest& own);

/// What the manifest says of the backends: nothing where there is one.
std::vector<image::Member> manifests_of(const Store& store, const config::JobConfig& config);

}  // namespace efs::daemon
