// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/starter.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/unique_fd.hpp"

namespace efs::daemon {
namespace {

void reset_signals() {
  // KILL, STOP and the C library's own signals cannot be changed.
  for (int number = 1; number < NSIG; ++number) {
    ::signal(number, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

void raise_limits() {
  for (const auto resource : {RLIMIT_FSIZE, RLIMIT_CPU, RLIMIT_AS, RLIMIT_DATA}) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0) {
      continue;
    }
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(resource, &limit);
  }
}

// Keeps a negative value: a protection of the starter protects the daemon, too.
void be_no_victim() {
  const UniqueFd file(::open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC));
  std::array<char, 16> text{};
  if (!file || ::read(file.get(), text.data(), text.size() - 1) <= 0) {
    return;
  }
  if (std::atoi(text.data()) <= 0) {
    return;
  }
  constexpr std::string_view as_others = "0";
  // an unprivileged process may only raise the value
  (void)!::pwrite(file.get(), as_others.data(), as_others.size(), 0);
}

}  // namespace

std::string leave_starter() {
  reset_signals();
  raise_limits();
  be_no_victim();
  ::umask(::umask(077) & 077);
  std::error_code gone;
  std::string directory = std::filesystem::current_path(gone).string();
  if (gone || ::chdir("/") != 0) {
    return {};
  }
  return directory;
}

std::optional<std::uint64_t> cpu_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_CPU, &limit) != 0 || limit.rlim_max == RLIM_INFINITY) {
    return std::nullopt;
  }
  return limit.rlim_max;
}

}  // namespace efs::daemon
