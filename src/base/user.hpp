// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Users and privileges. docs/dev/privileges.md has the table of processes and rights.

#include <sys/types.h>

#include <string>

#include "base/result.hpp"

namespace efs {

struct User {
  uid_t uid = 0;
  gid_t gid = 0;
  std::string name;
  std::string home;  // "" if the system has no entry
};

/// Finds a user by name or number. ENOENT with a text if there is none.
Result<User> find_user(const std::string& who);

/// Finds a group by name or number. ENOENT with a text if there is none.
Result<gid_t> find_group(const std::string& which);

/// Changes this process to `user` permanently: groups, ids, and no capability. For the worker. If
/// `user` is root, the process keeps the capabilities over files and their attributes, because it
/// stages root's files (trusted.* needs CAP_SYS_ADMIN); it loses every other capability. With
/// `for_good`, set-id programs cannot regain rights either (PR_SET_NO_NEW_PRIVS).
Status become(const User& user, bool for_good);

/// As become() for good, for a process that only keeps files of `user` in one directory. A root
/// process keeps the rights to access these files, which are all that a successor of the worker
/// has, and loses all others.
Status become_keeper(const User& user);

/// Returns whether this root process has CAP_SYS_ADMIN, which mounting requires. A container may
/// have removed it.
bool may_mount();

/// Keeps, of root's rights, only CAP_SYS_ADMIN in effect (mounting, backing files), with the file
/// rights of `user`: the kernel reopens registered backing files with these. CAP_SYS_RESOURCE must
/// go: otherwise quotas do not limit passthrough writes. The real and saved uid stay root, so that
/// the user cannot signal the supervisor.
Status drop_privilege(const User& user);

/// Call after a change of the effective uid back to `uid`. Restores the effective rights to those
/// that drop_privilege() left.
Status limit_effective(uid_t uid);

}  // namespace efs
