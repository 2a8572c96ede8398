// SPDX-License-Identifier: BSD-3-Clause
#include "intercept/settings.hpp"

#include <sys/auxv.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "intercept/far_descriptor.hpp"
#include "intercept/raw.hpp"

namespace efs::intercept {
namespace {

constinit Settings read;

bool lists(const char* list, const char* name) {
  const std::size_t length = strlen(name);
  while (list != nullptr && *list != '\0') {
    const char* end = strchrnul(list, ',');
    if (static_cast<std::size_t>(end - list) == length && strncmp(list, name, length) == 0) {
      return true;
    }
    list = *end == '\0' ? end : end + 1;
  }
  return false;
}

}  // namespace

const Settings& settings() {
  return read;
}

void read_settings() {
  // a site may preload the library into everything: one user's words do not count in a program with
  // another's rights
  if (getauxval(AT_SECURE) != 0) {
    return;
  }
  strncpy(read.program, program_invocation_short_name, sizeof read.program - 1);
  const char* mode = getenv("EFS_INTERCEPT");
  const auto is = [mode](const char* word) {
    return mode != nullptr && strcmp(mode, word) == 0;
  };
  read.serves = !is("off") && !lists(getenv("EFS_INTERCEPT_SKIP"), program_invocation_short_name);
  read.verifies = is("verify");
  read.tells = is("stats") || is("verify");
  if (read.tells) {
    const long copy = raw(SYS_dup, 2);
    read.errors = copy < 0 ? 2 : move_far(static_cast<int>(copy));
  }
  if (const char* calls = getenv("EFS_INTERCEPT_AFTER")) {
    constexpr unsigned most = 4096;
    const auto wanted = static_cast<unsigned>(strtoul(calls, nullptr, 10));
    read.calls = 1;
    while (read.calls < wanted && read.calls < most) {
      read.calls *= 2;
    }
  }
  const char* file = getenv("EFS_INTERCEPT_STATS");
  if (file != nullptr && strlen(file) < sizeof read.statistics) {
    strcpy(read.statistics, file);
  }
}

}  // namespace efs::intercept
