// SPDX-License-Identifier: BSD-3-Clause
// Measures I/O and stat of one client on several directories in turn.
//   usage: efs-bench-io SECONDS NAME=DIRECTORY...
//
// One process visits the targets in slices of some milliseconds, so that other load and the clock
// speed of the machine affect all targets alike. Each operation is one pread or pwrite on a file of
// 256 MiB written before (`small-write-4k`: of 64 KiB), or one stat of an unchanged file. The
// operations `cold-` read in order, and drop the pages from the page cache, which a tmpfs ignores.
// The result of a slice is its time divided by its operations. Prints one line for each operation
// and target: OPERATION NAME NANOSECONDS, the median over the slices.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto slice = std::chrono::milliseconds(5);
constexpr std::size_t file_bytes = 256U << 20U;
constexpr std::size_t small = 4U << 10U, medium = 128U << 10U, large = 1U << 20U;
constexpr std::size_t small_file = 64U << 10U;
constexpr int stat_files = 1000;

[[noreturn]] void die(const std::string& what) {
  std::perror(what.c_str());
  std::exit(1);
}

std::vector<char>& buffer() {
  static std::vector<char> bytes(large, 'e');
  return bytes;
}

/// A directory to measure. The constructor creates its files, and the destructor removes them.
struct Target {
  Target(std::string target_name, std::string parent)
      : name(std::move(target_name)), directory(std::move(parent) + "/efs-bench-io") {
    if (::mkdir(directory.c_str(), 0755) != 0) {
      die(directory);
    }
    fd = ::open(data().c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) {
      die(data());
    }
    for (std::size_t at = 0; at < file_bytes; at += large) {
      if (::pwrite(fd, buffer().data(), large, static_cast<off_t>(at)) !=
          static_cast<ssize_t>(large)) {
        die(data());
      }
    }
    small_fd = ::open(small_data().c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (small_fd < 0 ||
        ::pwrite(small_fd, buffer().data(), small_file, 0) != static_cast<ssize_t>(small_file)) {
      die(small_data());
    }
    for (int i = 0; i < stat_files; ++i) {
      names.push_back(directory + "/s" + std::to_string(i));
      const int made = ::open(names.back().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
      if (made < 0) {
        die(names.back());
      }
      ::close(made);
    }
  }

  ~Target() {
    ::close(fd);
    ::close(small_fd);
    ::unlink(small_data().c_str());
    for (const auto& path : names) {
      ::unlink(path.c_str());
    }
    ::unlink(data().c_str());
    ::rmdir(directory.c_str());
  }

  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  std::string data() const { return directory + "/data"; }

  std::string small_data() const { return directory + "/small"; }

  std::string name, directory;
  int fd = -1, small_fd = -1;
  std::vector<std::string> names;
  std::size_t position = 0;    // of the sequential operations
  std::vector<double> slices;  // ns per operation, for the current operation
};

struct Operation {
  const char* name;
  std::function<bool(Target&, std::uint64_t random)> once;
};

std::size_t place(std::uint64_t random) {
  return random % (file_bytes / small) * small;
}

off_t next(Target& target, std::size_t length) {
  return static_cast<off_t>(
      std::exchange(target.position, (target.position + length) % file_bytes));
}

bool reads(Target& target, std::size_t length) {
  return ::pread(target.fd, buffer().data(), length, next(target, length)) ==
         static_cast<ssize_t>(length);
}

bool writes(Target& target, std::size_t length) {
  return ::pwrite(target.fd, buffer().data(), length, next(target, length)) ==
         static_cast<ssize_t>(length);
}

bool reads_cold(Target& target, std::size_t length) {
  const auto at = static_cast<off_t>(target.position);
  return reads(target, length) &&
         ::posix_fadvise(target.fd, at, static_cast<off_t>(length), POSIX_FADV_DONTNEED) == 0;
}

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all{
      {"randread-4k",
       [](Target& t, std::uint64_t r) {
         return ::pread(t.fd, buffer().data(), small, static_cast<off_t>(place(r))) ==
                static_cast<ssize_t>(small);
       }},
      {"randwrite-4k",
       [](Target& t, std::uint64_t r) {
         return ::pwrite(t.fd, buffer().data(), small, static_cast<off_t>(place(r))) ==
                static_cast<ssize_t>(small);
       }},
      {"small-write-4k",
       [](Target& t, std::uint64_t r) {
         return ::pwrite(t.small_fd, buffer().data(), small,
                         static_cast<off_t>(r % (small_file / small) * small)) ==
                static_cast<ssize_t>(small);
       }},
      {"read-1m",
       [](Target& t, std::uint64_t) {
         return reads(t, large);
       }},
      {"write-1m",
       [](Target& t, std::uint64_t) {
         return writes(t, large);
       }},
      {"write-128k",
       [](Target& t, std::uint64_t) {
         return writes(t, medium);
       }},
      {"cold-read-128k",
       [](Target& t, std::uint64_t) {
         return reads_cold(t, medium);
       }},
      {"cold-read-1m",
       [](Target& t, std::uint64_t) {
         return reads_cold(t, large);
       }},
      {"stat",
       [](Target& t, std::uint64_t r) {
         struct stat st{};
         return ::stat(t.names[r % stat_files].c_str(), &st) == 0;
       }},
  };
  return all;
}

/// Runs one slice on one target. Reading the clock costs some 20 ns, so it is read only every few
/// operations.
void run_slice(const Operation& operation, Target& target, std::mt19937_64& random) {
  const auto start = Clock::now();
  std::uint64_t count = 0;
  auto now = start;
  do {
    for (int i = 0; i < 8; ++i, ++count) {
      if (!operation.once(target, random())) {
        die(std::string(operation.name) + " on " + target.name);
      }
    }
    now = Clock::now();
  } while (now - start < slice);
  target.slices.push_back(std::chrono::duration<double, std::nano>(now - start).count() /
                          static_cast<double>(count));
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 0;
  if (argc < 3 || seconds <= 0) {
    std::fprintf(stderr,
                 "usage: efs-bench-io SECONDS NAME=DIRECTORY...   (SECONDS for each operation and "
                 "target)\n");
    return 2;
  }
  {
    std::vector<std::unique_ptr<Target>> targets;
    for (int i = 2; i < argc; ++i) {
      const std::string word = argv[i];
      const auto equals = word.find('=');
      if (equals == std::string::npos) {
        return 2;
      }
      targets.push_back(std::make_unique<Target>(word.substr(0, equals), word.substr(equals + 1)));
    }
    std::mt19937_64 random(1);
    for (const auto& operation : operations()) {
      for (auto& target : targets) {
        target->position = 0;
      }
      // warm-up; not counted
      for (auto& target : targets) {
        run_slice(operation, *target, random);
      }
      for (auto& target : targets) {
        target->slices.clear();
      }
      const auto rounds =
          std::max(3, static_cast<int>(seconds / std::chrono::duration<double>(slice).count()));
      for (int i = 0; i < rounds; ++i) {
        for (std::size_t k = 0; k < targets.size(); ++k) {
          run_slice(operation, *targets[(k + static_cast<std::size_t>(i)) % targets.size()],
                    random);
        }
      }
      for (const auto& target : targets) {
        std::printf("%s %s %.1f\n", operation.name, target->name.c_str(), median(target->slices));
      }
    }
  }
  return 0;
}
