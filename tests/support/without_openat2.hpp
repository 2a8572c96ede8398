// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Threads on a kernel, or in a sandbox, without openat2(2).

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <unistd.h>
#include <array>
#include <cerrno>
#include <cstddef>
#include <exception>
#include <functional>
#include <stdexcept>
#include <thread>

namespace efs::test {

/// From now on openat2(2) fails with `code` in this thread and in its new threads, permanently.
inline void lose_openat2(int code) {
  const std::array program{
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(code)),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{.len = program.size(),
                          .filter = const_cast<sock_filter*>(program.data())};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    throw std::runtime_error("no filter for system calls");
  }
  if (::syscall(SYS_openat2, -1, nullptr, nullptr, 0) != -1 || errno != code) {
    throw std::runtime_error("openat2(2) is still there");
  }
}

/// Runs `work`: normally if `code` is 0, else on a thread in which openat2(2) fails with `code`.
/// Exceptions of `work` pass.
inline void with_openat2_failing(int code, const std::function<void()>& work) {
  if (code == 0) {
    return work();
  }
  std::exception_ptr thrown;
  std::thread([&] {
    try {
      lose_openat2(code);
      work();
    } catch (...) {
      thrown = std::current_exception();
    }
  }).join();
  if (thrown) {
    std::rethrow_exception(thrown);
  }
}

}  // namespace efs::test
