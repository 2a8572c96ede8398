// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Threads for which the kernel refuses system calls.

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstddef>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

namespace efs::test {

struct FailingCall {
  unsigned number = 0;  // SYS_...
  unsigned code = 0;
};

/// Does `work` on a thread for which these system calls fail and have no effect. Work that throws
/// ends the process.
inline void with_calls_failing(const std::vector<FailingCall>& calls,
                               const std::function<void()>& work) {
  std::vector<sock_filter> program{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const auto& call : calls) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call.number, 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | call.code));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{.len = static_cast<unsigned short>(program.size()),
                          .filter = program.data()};
  bool filtered = false;
  std::thread([&] {
    filtered = ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
               ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
    if (filtered) {
      work();
    }
  }).join();
  if (!filtered) {
    throw std::runtime_error("no filter for system calls");
  }
}

}  // namespace efs::test
