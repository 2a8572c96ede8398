// SPDX-License-Identifier: BSD-3-Clause
// Measures metadata operations per second of one client in a directory.
//   usage: efs-bench-meta DIRECTORY COUNT [wait]
// Prints one line per operation: NAME OPS_PER_SECOND. stat runs for a second, all others COUNT
// times. "null" asks for an extended attribute that the directory does not have: on the
// mount, a round trip to the daemon that does next to nothing. With wait, the number of
// operations follows on each line, and the program reads a line after each line that it prints.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace {

using Operation = std::function<bool(int)>;
using Clock = std::chrono::steady_clock;

class Measurements {
 public:
  Measurements(int count, bool waits) : count_(count), waits_(waits) {}

  /// Measures the operation on each name, repeated until `least` is over.
  void measure(const char* name, const Operation& operation, std::chrono::seconds least = {}) {
    const auto start = Clock::now();
    double done = 0;
    std::chrono::duration<double> took{};
    do {
      on_each(name, operation);
      done += count_;
      took = Clock::now() - start;
    } while (took < least);
    std::printf("%s %.0f", name, done / took.count());
    if (waits_) {
      std::printf(" %.0f", done);
    }
    std::printf("\n");
    std::fflush(stdout);
    if (waits_ && std::getchar() == EOF) {
      std::exit(1);
    }
  }

 private:
  void on_each(const char* name, const Operation& operation) {
    for (int i = 0; i < count_; ++i) {
      if (!operation(i)) {
        std::perror(name);
        std::exit(1);
      }
    }
  }

  const int count_;
  const bool waits_;
};

std::vector<std::string> numbered(const char* prefix, int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    names.push_back(prefix + std::to_string(i));
  }
  return names;
}

bool create(const std::string& name) {
  const int fd = ::open(name.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0644);
  return fd >= 0 && ::close(fd) == 0;
}

bool open_and_close(const std::string& name) {
  const int fd = ::open(name.c_str(), O_RDONLY);
  return fd >= 0 && ::close(fd) == 0;
}

bool stat_file(const std::string& name) {
  struct stat st{};
  return ::stat(name.c_str(), &st) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    return 2;
  }
  const int count = std::atoi(argv[2]);
  if (::chdir(argv[1]) != 0) {
    return 1;
  }
  Measurements all(count, argc > 3 && std::strcmp(argv[3], "wait") == 0);
  const auto names = numbered("n", count), others = numbered("m", count);
  const auto name = [&](int i) -> const std::string& {
    return names[static_cast<std::size_t>(i)];
  };
  const auto other = [&](int i) -> const std::string& {
    return others[static_cast<std::size_t>(i)];
  };
  all.measure("create", [&](int i) { return create(name(i)); });
  all.measure("fresh-stat", [&](int i) { return stat_file(name(i)); });
  all.measure("stat", [&](int i) { return stat_file(name(i)); }, std::chrono::seconds(1));
  all.measure("unlink", [&](int i) { return ::unlink(name(i).c_str()) == 0; });
  all.measure("mkdir", [&](int i) { return ::mkdir(name(i).c_str(), 0755) == 0; });
  all.measure("rmdir", [&](int i) { return ::rmdir(name(i).c_str()) == 0; });
  const int directory = ::open(".", O_RDONLY | O_DIRECTORY);
  all.measure("null", [&](int) {
    return ::fgetxattr(directory, "user.none", nullptr, 0) < 0 &&
           (errno == ENODATA || errno == ENOTSUP);
  });

  // Other files, so that the figures above are of files that nothing else was done with.
  all.measure("negative", [&](int i) { return !stat_file(other(i)) && errno == ENOENT; });
  all.measure("create-2", [&](int i) { return create(name(i)); });
  all.measure("open", [&](int i) { return open_and_close(name(i)); });
  all.measure("chmod", [&](int i) { return ::chmod(name(i).c_str(), 0600) == 0; });
  all.measure("rename", [&](int i) { return ::rename(name(i).c_str(), other(i).c_str()) == 0; });
  for (int i = 0; i < count; ++i) {
    if (::unlink(other(i).c_str()) != 0) {
      return 1;
    }
  }
  return 0;
}
