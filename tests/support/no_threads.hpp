// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Prevents new threads in this process without a limit: the stack of a new thread would be larger
// than the address space.

#include <pthread.h>

#include <cstddef>

namespace efs::test {

/// Applies for a scope, in the whole process.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t larger;
    pthread_getattr_default_np(&larger);
    pthread_attr_setstacksize(&larger, std::size_t{1} << 48U);
    pthread_setattr_default_np(&larger);
    pthread_attr_destroy(&larger);
  }

  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

}  // namespace efs::test
