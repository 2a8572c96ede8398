// SPDX-License-Identifier: BSD-3-Clause
// Measures reads and writes of one thread on a tmpfs, on a mount by system calls of its own, and on
// the mount by the C library, which a preloaded libefs-intercept serves.
//   usage: efs-bench-intercept ROUNDS TMPFS_DIRECTORY MOUNT_DIRECTORY [CASE...]
//
// One process visits the three targets in slices of about 10 ms, so that other load and the clock
// speed of the machine affect all alike. Prints a line for each case and round: CASE and the
// nanoseconds of CPU time of this thread for one call, for each target. For `exec` it prints the
// time of a program that does nothing, without LD_PRELOAD twice and with the LD_PRELOAD of this
// process. Without a preloaded library the third figure is the C library's.
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "intercept/raw.hpp"

extern char** environ;

namespace {

using efs::intercept::raw;

constexpr std::int64_t slice_ns = 10'000'000;
constexpr std::size_t whole = std::size_t{64} << 20, hot = std::size_t{4} << 20;
constexpr std::size_t largest = std::size_t{1} << 20;
constexpr int small_files = 200;

alignas(4096) std::array<char, largest> buffer;

[[noreturn]] void die(const std::string& what) {
  std::perror(what.c_str());
  std::exit(1);
}

std::int64_t now(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// The calls of a target: of the kernel, or of the C library.
struct Calls {
  bool by_library = false;

  int open(const char* path, int flags) const {
    const long fd = by_library ? ::open(path, flags | O_CLOEXEC, 0644)
                               : raw(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0644);
    if (fd < 0) {
      die(path);
    }
    return static_cast<int>(fd);
  }

  void close(int fd) const { by_library ? static_cast<long>(::close(fd)) : raw(SYS_close, fd); }

  long pread(int fd, std::size_t n, std::size_t at) const {
    return by_library ? ::pread(fd, buffer.data(), n, static_cast<off_t>(at))
                      : raw(SYS_pread64, fd, buffer.data(), n, at);
  }

  long pwrite(int fd, std::size_t n, std::size_t at) const {
    return by_library ? ::pwrite(fd, buffer.data(), n, static_cast<off_t>(at))
                      : raw(SYS_pwrite64, fd, buffer.data(), n, at);
  }

  long read(int fd, std::size_t n) const {
    return by_library ? ::read(fd, buffer.data(), n) : raw(SYS_read, fd, buffer.data(), n);
  }

  long write(int fd, std::size_t n) const {
    return by_library ? ::write(fd, buffer.data(), n) : raw(SYS_write, fd, buffer.data(), n);
  }

  void rewind(int fd) const {
    by_library ? static_cast<long>(::lseek(fd, 0, SEEK_SET)) : raw(SYS_lseek, fd, 0, SEEK_SET);
  }
};

/// One of the three. The constructor creates the files, and the destructor removes them.
struct Target {
  Target(const std::string& parent, bool by_library)
      : calls{by_library},
        directory(parent + (by_library ? "/efs-bench-library" : "/efs-bench-raw")),
        data(directory + "/data"),
        passed(directory + "/passed") {
    if (::mkdir(directory.c_str(), 0755) != 0) {
      die(directory);
    }
    calls.close(create(passed, whole));
    fd = create(data, whole);
    const int original = calls.open(data.c_str(), O_RDWR);
    copy = ::dup(original);
    calls.close(original);
    for (int i = 0; i < small_files; ++i) {
      calls.close(create(small(i), 4096));
    }
    warm();
  }

  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  ~Target() {
    calls.close(fd);
    calls.close(copy);
    for (int i = 0; i < small_files; ++i) {
      ::unlink(small(i).c_str());
    }
    ::unlink((directory + "/append").c_str());
    ::unlink(data.c_str());
    ::unlink(passed.c_str());
    ::rmdir(directory.c_str());
  }

  int create(const std::string& path, std::size_t bytes) const {
    const int made = calls.open(path.c_str(), O_RDWR | O_CREAT | O_EXCL);
    for (std::size_t at = 0; at < bytes; at += std::min(bytes, largest)) {
      const std::size_t count = std::min(bytes, largest);
      if (calls.pwrite(made, count, at) != static_cast<long>(count)) {
        die(path);
      }
    }
    return made;
  }

  // Touches every page, so that no case pays for the first use of one.
  void warm() const {
    for (int turn = 0; turn < 3; ++turn) {
      for (std::size_t at = 0; at < whole; at += 4096) {
        if (calls.pread(fd, 4096, at) != 4096 || calls.pwrite(fd, 4096, at) != 4096) {
          die(data);
        }
      }
    }
  }

  std::string small(int i) const { return directory + "/small" + std::to_string(i); }

  Calls calls;
  std::string directory, data;
  std::string passed;  // not open but during a pass
  int fd = -1;
  int copy = -1;  // a descriptor by dup(2), whose offset is shared
};

struct Case {
  std::string name;
  std::size_t checked;  // calls between two looks at the clock
  // Does so many calls, and goes on at the next slice where it ended.
  std::function<void(Target&, std::size_t)> calls;
  std::function<void(Target&)> before = [](Target&) {
  };  // not measured
  std::function<void(Target&)> after = [](Target&) {
  };
  bool is_pass = false;  // one slice is `checked` calls
  bool waits = false;    // for the daemon, so wall time is measured
};

void require(bool good, const char* what) {
  if (!good) {
    die(what);
  }
}

// Calls at random places of the first `size` bytes.
Case at_random(const std::string& name, bool writes, std::size_t bytes, std::size_t size) {
  const std::size_t mask = size / bytes - 1;  // both are powers of two
  return {.name = name,
          .checked = std::max<std::size_t>(1, (std::size_t{64} << 10) / bytes / 4),
          .calls = [=, seed = std::uint64_t{88172645463325252}](Target& target,
                                                                std::size_t count) mutable {
            for (std::size_t i = 0; i < count; ++i) {
              seed ^= seed << 13;
              seed ^= seed >> 7;
              seed ^= seed << 17;
              const std::size_t at = (seed & mask) * bytes;
              const long done = writes ? target.calls.pwrite(target.fd, bytes, at)
                                       : target.calls.pread(target.fd, bytes, at);
              require(done == static_cast<long>(bytes), "pread or pwrite");
            }
          }};
}

// Calls of 4 KiB one after the other through 4 MiB, again and again.
Case in_order(const std::string& name, bool writes, bool is_copy) {
  return {.name = name,
          .checked = 64,
          .calls =
              [=](Target& target, std::size_t count) {
                const int fd = is_copy ? target.copy : target.fd;
                static std::size_t at = 0;
                for (std::size_t i = 0; i < count; ++i) {
                  if (++at % (hot / 4096) == 0) {
                    target.calls.rewind(fd);
                  }
                  require(
                      (writes ? target.calls.write(fd, 4096) : target.calls.read(fd, 4096)) == 4096,
                      "read or write");
                }
              },
          .before =
              [=](Target& target) {
                target.calls.rewind(is_copy ? target.copy : target.fd);
              }};
}

Case append(std::size_t bytes) {
  static int fd;
  return {.name = "append-" + std::to_string(bytes),
          .checked = 64,
          .calls =
              [=](Target& target, std::size_t count) {
                for (std::size_t i = 0; i < count; ++i) {
                  require(target.calls.write(fd, bytes) == static_cast<long>(bytes), "append");
                }
              },
          .before =
              [](Target& target) {
                const std::string path = target.directory + "/append";
                fd = target.calls.open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC);
              },
          .after = [](Target& target) { target.calls.close(fd); },
          .waits = true};
}

// Opens the file, goes through it once, and closes it.
Case pass(const std::string& name, bool writes, std::size_t bytes) {
  return {.name = name,
          .checked = whole / bytes,
          .calls =
              [=](Target& target, std::size_t count) {
                const int fd = target.calls.open(target.passed.c_str(), O_RDWR);
                for (std::size_t i = 0; i < count; ++i) {
                  require((writes ? target.calls.write(fd, bytes) : target.calls.read(fd, bytes)) ==
                              static_cast<long>(bytes),
                          "one pass");
                }
                target.calls.close(fd);
              },
          .is_pass = true};
}

Case open_read_close() {
  return {.name = "open-read-close",
          .checked = small_files,
          .calls =
              [](Target& target, std::size_t count) {
                for (std::size_t i = 0; i < count; ++i) {
                  const int fd =
                      target.calls.open(target.small(static_cast<int>(i)).c_str(), O_RDONLY);
                  require(target.calls.read(fd, 4096) == 4096, "a small file");
                  target.calls.close(fd);
                }
              },
          .is_pass = true};
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const bool writes : {false, true}) {
    const std::string name = writes ? "pwrite-" : "pread-";
    for (const std::size_t bytes : {8U, 512U, 4096U, 65536U, 1U << 20U}) {
      cases.push_back(at_random(name + std::to_string(bytes), writes, bytes, whole));
      cases.push_back(at_random(name + std::to_string(bytes) + "-hot", writes, bytes, hot));
    }
  }
  for (const bool writes : {false, true}) {
    const std::string name = writes ? "write-4096" : "read-4096";
    cases.push_back(in_order(name + "-own", writes, false));
    cases.push_back(in_order(name + "-shared", writes, true));
  }
  cases.push_back(append(4096));
  for (const bool writes : {false, true}) {
    const std::string name = writes ? "pass-write-" : "pass-read-";
    cases.push_back(pass(name + "4096", writes, 4096));
    cases.push_back(pass(name + "65536", writes, 65536));
  }
  cases.push_back(open_read_close());
  return cases;
}

double slice(const Case& one, Target& target) {
  one.before(target);
  std::size_t count = 0;
  const clockid_t clock = one.waits ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID;
  const std::int64_t begin = now(clock);
  std::int64_t end = begin;
  do {
    one.calls(target, one.checked);
    count += one.checked;
    end = now(clock);
  } while (!one.is_pass && end - begin < slice_ns);
  one.after(target);
  return static_cast<double>(end - begin) / static_cast<double>(count);
}

// Wall time of a program, which the CPU time of this thread does not include.
double executed(char** environment) {
  const char* const words[] = {"/bin/true", nullptr};
  const std::int64_t begin = now(CLOCK_MONOTONIC);
  pid_t child = 0;
  int status = 1;
  require(::posix_spawn(&child, words[0], nullptr, nullptr, const_cast<char**>(words),
                        environment) == 0 &&
              ::waitpid(child, &status, 0) == child && status == 0,
          "/bin/true");
  return static_cast<double>(now(CLOCK_MONOTONIC) - begin);
}

double median_of(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<long>(values.size() / 2));
  return values[values.size() / 2];
}

void measure_exec() {
  std::vector<char*> plain;
  for (char** word = environ; *word != nullptr; ++word) {
    if (std::strncmp(*word, "LD_PRELOAD=", 11) != 0) {
      plain.push_back(*word);
    }
  }
  plain.push_back(nullptr);
  std::array<std::vector<double>, 3> times;
  for (int i = 0; i < 60; ++i) {
    times[0].push_back(executed(plain.data()));
    times[1].push_back(executed(plain.data()));
    times[2].push_back(executed(environ));
  }
  std::printf("exec %.0f %.0f %.0f\n", median_of(times[0]), median_of(times[1]),
              median_of(times[2]));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s ROUNDS TMPFS_DIRECTORY MOUNT_DIRECTORY [CASE...]\n", argv[0]);
    return 2;
  }
  const std::vector<std::string> only(argv + 4, argv + argc);
  const auto is_wanted = [&](const std::string& name) {
    return only.empty() || std::ranges::find(only, name) != only.end();
  };
  buffer.fill('e');
  Target tmpfs(argv[2], false), mount(argv[3], false), library(argv[3], true);
  const std::array<Target*, 3> targets{&tmpfs, &mount, &library};
  const auto cases = all_cases();
  for (int round = 0; round < std::atoi(argv[1]); ++round) {
    for (const auto& one : cases) {
      if (!is_wanted(one.name)) {
        continue;
      }
      std::array<double, 3> ns{};
      for (std::size_t i = 0; i < ns.size(); ++i) {
        const std::size_t which = (i + static_cast<std::size_t>(round)) % ns.size();
        ns[which] = slice(one, *targets[which]);
      }
      std::printf("%s %.1f %.1f %.1f\n", one.name.c_str(), ns[0], ns[1], ns[2]);
    }
    if (is_wanted("exec")) {
      measure_exec();
    }
  }
  return 0;
}
