// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Gives a supervisor with its user's file rights root's file rights for a scope. Use it only for
// calls that name descriptors and directories of efs. Changes this thread only: the C library's
// seteuid(3) waits for all other threads, and a thread that writes to a log on a hanging file
// system may block.

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
