#pragma once
// Who runs as whom. See the table in docs/dev/privileges.md.

#include <sys/types.h>

#include <string>

#include "base/result.hpp"

namespace efs {

struct User {
  uid_t uid = 0;
  gid_t gid = 0;
  std::string name;
  std::string home;  // "" where the system knows none
};

/// By name or number. ENOENT with a text where there is none.
Result<User> find_user(const std::string& who);

/// A group by name or number. ENOENT with a text where there is none.
Result<gid_t> find_group(const std::string& which);

/// Becomes `user` for good: groups, ids, and no capability. For the worker. A root that stays root
/// keeps its rights over files and their attributes (it stages its own files; those of trusted.*
/// need CAP_SYS_ADMIN) and loses every other capability. `for_good`: set-id programs give nothing
/// back either (PR_SET_NO_NEW_PRIVS).
Status become(const User& user, bool for_good);

/// As become() for good, of what does no more than keep files of `user` in one directory: a root
/// keeps the right to reach them, which is all that a successor of the worker was left with, and
/// nothing else.
Status become_keeper(const User& user);

/// Has this root CAP_SYS_ADMIN, which mounting takes? A container may have taken it.
bool may_mount();

/// Keeps, of root's rights, only CAP_SYS_ADMIN in effect (mounting, backing files), with the file
/// rights of `user`: what the supervisor registers is reopened by the kernel with these.
/// CAP_SYS_RESOURCE must go, or quotas do not bind passthrough writes. The real and saved uid stay
/// root, so that the user cannot signal the supervisor.
Status drop_privilege(const User& user);

/// After a change of the effective uid back to `uid`: again only what drop_privilege() left in
/// effect.
Status limit_effective(uid_t uid);

}  // namespace efs
