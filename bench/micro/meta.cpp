// SPDX-License-Identifier: BSD-3-Clause
// Measures metadata operations per second of one client in a directory.
//   usage: efs-bench-meta DIRECTORY COUNT
// Prints one line per operation: NAME OPS_PER_SECOND. stat runs for a second, all others COUNT
// times. "null" asks for an extended attribute that the directory does not have: on the mount, a
// round trip to the daemon that does next to nothing.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace {

void measure(const char* name, int count, const std::function<bool(int)>& operation) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) {
    if (!operation(i)) {
      std::perror(name);
      std::exit(1);
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf("%s %.0f\n", name, count / took.count());
}

/// As measure(), repeated over the names until the time is over.
void measure_for(const char* name, std::chrono::nanoseconds least, int count,
                 const std::function<bool(int)>& operation) {
  const auto start = std::chrono::steady_clock::now();
  double done = 0;
  std::chrono::duration<double> took{};
  do {
    for (int i = 0; i < count; ++i) {
      if (!operation(i)) {
        std::perror(name);
        std::exit(1);
      }
    }
    done += count;
    took = std::chrono::steady_clock::now() - start;
  } while (took < least);
  std::printf("%s %.0f\n", name, done / took.count());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    return 2;
  }
  const int count = std::atoi(argv[2]);
  if (::chdir(argv[1]) != 0) {
    return 1;
  }
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    names.push_back("n" + std::to_string(i));
  }
  const auto name = [&](int i) {
    return names[static_cast<std::size_t>(i)].c_str();
  };
  measure("create", count, [&](int i) {
    const int fd = ::open(name(i), O_CREAT | O_EXCL | O_WRONLY, 0644);
    return fd >= 0 && ::close(fd) == 0;
  });
  struct stat st{};
  for (int i = 0; i < count; ++i) {
    (void)::stat(name(i), &st);
  }
  measure_for("stat", std::chrono::seconds(1), count,
              [&](int i) { return ::stat(name(i), &st) == 0; });
  measure("unlink", count, [&](int i) { return ::unlink(name(i)) == 0; });
  measure("mkdir", count, [&](int i) { return ::mkdir(name(i), 0755) == 0; });
  measure("rmdir", count, [&](int i) { return ::rmdir(name(i)) == 0; });
  const int directory = ::open(".", O_RDONLY | O_DIRECTORY);
  measure("null", count, [&](int) {
    return ::fgetxattr(directory, "user.none", nullptr, 0) < 0 &&
           (errno == ENODATA || errno == ENOTSUP);
  });
  return 0;
}
