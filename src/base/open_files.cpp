// SPDX-License-Identifier: BSD-3-Clause
#include "base/open_files.hpp"

#include <sys/resource.h>

#include <fstream>
#include <string>

namespace efs {

std::uint64_t most_open_files() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

std::uint64_t most_open_files_of_machine() {
  std::uint64_t most = 0;
  std::ifstream("/proc/sys/fs/file-max") >> most;
  return most;
}

std::uint64_t open_files_of_machine() {
  std::uint64_t allocated = 0;
  std::ifstream("/proc/sys/fs/file-nr") >> allocated;
  return allocated;
}

Status raise_open_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return fail_errno("getrlimit");
  }
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_max >= fewest_open_files) {
    return {};
  }
  return fail(EMFILE, "the hard limit on open files is " + std::to_string(limit.rlim_max) +
                          ", and an instance needs " + std::to_string(fewest_open_files) +
                          ": see ulimit -Hn; LimitNOFILE= of slurmd's unit, or nofile in "
                          "/etc/security/limits.conf");
}

}  // namespace efs
