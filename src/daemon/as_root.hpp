#pragma once
// Root's file rights for a scope, in a supervisor that has those of its user: for calls that name
// only descriptors and directories of ours. Of this thread alone: the C library's seteuid(3) waits
// for every other, and one that writes to the log may be held by a place that hangs.

#include <sys/syscall.h>
#include <unistd.h>

#include "base/user.hpp"

namespace efs::daemon {

class AsRoot {
 public:
  AsRoot() : user_(::geteuid()) { become(0); }

  ~AsRoot() {
    become(user_);
    (void)limit_effective(user_);
  }

  AsRoot(const AsRoot&) = delete;
  AsRoot& operator=(const AsRoot&) = delete;

  static void become(uid_t uid) { (void)!::syscall(SYS_setresuid, -1, uid, -1); }

 private:
  uid_t user_;
};

}  // namespace efs::daemon
