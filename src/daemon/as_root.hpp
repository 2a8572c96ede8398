#pragma once
// Root's file rights for a scope, in a supervisor that has those of its user: for calls that name only descriptors and
// directories of ours. Of the process, so for its one thread.

#include <unistd.h>

#include "base/user.hpp"

namespace efs::daemon {

class AsRoot {
 public:
  AsRoot() : user_(::geteuid()) { (void)!::seteuid(0); }
  ~AsRoot() {
    (void)!::seteuid(user_);
    (void)limit_effective(user_);
  }
  AsRoot(const AsRoot&) = delete;
  AsRoot& operator=(const AsRoot&) = delete;

 private:
  uid_t user_;
};

}  // namespace efs::daemon
