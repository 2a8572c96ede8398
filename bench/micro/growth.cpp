// SPDX-License-Identifier: BSD-3-Clause
// Measures how operations on names behave as the number of files grows.
//   usage: efs-bench-growth DIRECTORY COUNT flat|nested SEED [wait]
// Makes DIRECTORY, COUNT empty files in it, and removes all of it. Prints one line per operation:
// NAME OPS_PER_SECOND OPERATIONS. nested: 100 files in a directory, 100 such directories in one.
// Creates and unlinks follow the names, opens and stats an order that SEED determines. With wait,
// the program reads a line after each line that it prints.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr int per_directory = 100;

[[noreturn]] void fail(const std::string& what) {
  std::perror(what.c_str());
  std::exit(1);
}

/// The names, and the directories that they need, parents first.
struct Names {
  std::vector<std::string> files, directories;
};

Names make_names(int count, bool nested) {
  Names names;
  for (int i = 0; i < count; ++i) {
    if (!nested) {
      names.files.push_back("f" + std::to_string(i));
      continue;
    }
    const std::string outer = "d" + std::to_string(i / (per_directory * per_directory));
    const std::string inner = outer + "/e" + std::to_string(i / per_directory);
    if (i % (per_directory * per_directory) == 0) {
      names.directories.push_back(outer);
    }
    if (i % per_directory == 0) {
      names.directories.push_back(inner);
    }
    names.files.push_back(inner + "/f" + std::to_string(i));
  }
  return names;
}

bool create(const char* name) {
  const int fd = ::open(name, O_CREAT | O_EXCL | O_WRONLY, 0644);
  return fd >= 0 && ::close(fd) == 0;
}

bool open_and_close(const char* name) {
  const int fd = ::open(name, O_RDONLY);
  return fd >= 0 && ::close(fd) == 0;
}

bool stat_file(const char* name) {
  struct stat st{};
  return ::stat(name, &st) == 0;
}

bool unlink_file(const char* name) {
  return ::unlink(name) == 0;
}

struct Operation {
  const char* name;
  bool (*call)(const char*);
  bool shuffled;
};

constexpr Operation operations[] = {{"create", create, false},
                                    {"open", open_and_close, true},
                                    {"stat", stat_file, true},
                                    {"unlink", unlink_file, false}};

double seconds_of(const Operation& operation, const std::vector<std::string>& files,
                  const std::vector<int>& order) {
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < files.size(); ++i) {
    const auto& name = files[operation.shuffled ? static_cast<std::size_t>(order[i]) : i];
    if (!operation.call(name.c_str())) {
      fail(operation.name + (" " + name));
    }
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    return 2;
  }
  const int count = std::atoi(argv[2]);
  const bool waits = argc > 5 && std::strcmp(argv[5], "wait") == 0;
  if (::mkdir(argv[1], 0755) != 0 || ::chdir(argv[1]) != 0) {
    fail(argv[1]);
  }
  const Names names = make_names(count, std::strcmp(argv[3], "nested") == 0);
  std::vector<int> order(names.files.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(std::atoi(argv[4]))));

  for (const auto& directory : names.directories) {
    if (::mkdir(directory.c_str(), 0755) != 0) {
      fail(directory);
    }
  }
  for (const auto& operation : operations) {
    const double seconds = seconds_of(operation, names.files, order);
    std::printf("%s %.0f %d\n", operation.name, count / seconds, count);
    std::fflush(stdout);
    if (waits && std::getchar() == EOF) {
      return 1;
    }
  }
  for (auto it = names.directories.rbegin(); it != names.directories.rend(); ++it) {
    if (::rmdir(it->c_str()) != 0) {
      fail(*it);
    }
  }
  if (::chdir("..") != 0 || ::rmdir(argv[1]) != 0) {
    fail(argv[1]);
  }
  return 0;
}
