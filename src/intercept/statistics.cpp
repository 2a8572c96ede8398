// SPDX-License-Identifier: BSD-3-Clause
#include "intercept/statistics.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "intercept/counts.hpp"
#include "intercept/raw.hpp"
#include "intercept/settings.hpp"

namespace efs::intercept::statistics {
namespace {

constinit Counts total;
constinit std::atomic<std::uint64_t> differences{0};
constinit std::atomic<bool> told{false};

void write_line(const char* text, int length) {
  long fd = settings().errors;
  if (settings().statistics[0] != '\0') {
    fd = raw(SYS_openat, AT_FDCWD, settings().statistics,
             O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
  }
  if (fd >= 0) {
    raw(SYS_write, fd, text, length);
  }
  if (fd >= 0 && fd != settings().errors) {
    raw(SYS_close, fd);
  }
}

}  // namespace

void add(const DoorCounts& counts) {
  intercept::add(total.reads, counts.reads);
  intercept::add(total.read_bytes, counts.read_bytes);
  intercept::add(total.writes, counts.writes);
  intercept::add(total.written_bytes, counts.written_bytes);
  intercept::add(total.kernel_calls, counts.kernel_calls);
}

void differed(int fd, long offset, std::size_t bytes) {
  intercept::add(differences, 1);
  char text[200];
  const int length = snprintf(text, sizeof text,
                              "efs-intercept: %s[%d]: a read of %zu bytes at %ld by descriptor %d "
                              "differs from the kernel's\n",
                              settings().program, getpid(), bytes, offset, fd);
  write_line(text, length);
}

void tell() {
  const bool did_any = total.reads + total.writes + total.kernel_calls + differences != 0;
  if (!settings().tells || !did_any || told.exchange(true)) {
    return;
  }
  const auto number = [](const std::atomic<std::uint64_t>& count) {
    return static_cast<unsigned long long>(count.load());
  };
  char text[400];
  const int length =
      snprintf(text, sizeof text,
               "efs-intercept: %s[%d]: reads %llu (%llu bytes) writes %llu (%llu bytes) "
               "kernel %llu different %llu\n",
               settings().program, getpid(), number(total.reads), number(total.read_bytes),
               number(total.writes), number(total.written_bytes), number(total.kernel_calls),
               number(differences));
  write_line(text, length);
}

void after_fork() {
  total.clear();
  differences.store(0);
  told.store(false);
}

}  // namespace efs::intercept::statistics
