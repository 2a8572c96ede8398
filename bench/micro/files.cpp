// SPDX-License-Identifier: BSD-3-Clause
// Measures the bare system calls of staging many small files, with one thread per CPU. There is no
// order of names, no journal, no checksum and no plan, so no staging into files can be faster.
//   usage: efs-bench-files in|out SOURCE TARGET
// in: reads each file of SOURCE and writes a new file below TARGET. out: writes each under a
// temporary name first; then one syncfs, the renames, and another syncfs. Creates TARGET.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

void check(bool good, const std::string& what) {
  if (good) {
    return;
  }
  std::perror(what.c_str());
  std::exit(1);
}

void copy(const std::string& source, const std::string& target) {
  std::array<char, 1 << 16> bytes{};
  const int from = ::open(source.c_str(), O_RDONLY | O_CLOEXEC);
  const int to = ::open(target.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  check(from >= 0 && to >= 0, target);
  struct stat st{};
  check(::fstat(from, &st) == 0, source);
  for (ssize_t n = ::read(from, bytes.data(), bytes.size()); n != 0;
       n = ::read(from, bytes.data(), bytes.size())) {
    check(n > 0 && ::write(to, bytes.data(), static_cast<std::size_t>(n)) == n, target);
  }
  const std::array times{st.st_atim, st.st_mtim};
  check(::futimens(to, times.data()) == 0, target);
  ::close(from);
  ::close(to);
}

/// Each CPU gets a range of consecutive names.
void on_all_cpus(const std::vector<std::string>& names,
                 const std::function<void(const std::string&)>& work) {
  const std::size_t cpus = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::jthread> threads;
  for (std::size_t cpu = 0; cpu < cpus; ++cpu) {
    threads.emplace_back([&, cpu] {
      for (std::size_t i = names.size() * cpu / cpus; i < names.size() * (cpu + 1) / cpus; ++i) {
        work(names[i]);
      }
    });
  }
}

void sync(const std::string& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  check(fd >= 0 && ::syncfs(fd) == 0, directory);
  ::close(fd);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    return 2;
  }
  const bool out = std::string_view(argv[1]) == "out";
  const std::string source = argv[2], target = argv[3];
  std::vector<std::string> names;
  std::filesystem::create_directories(target);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(source)) {
    const std::string name = entry.path().string().substr(source.size());
    if (entry.is_directory()) {
      check(::mkdir((target + name).c_str(), 0755) == 0, target + name);
    } else {
      names.push_back(name);
    }
  }
  on_all_cpus(names, [&](const std::string& name) {
    copy(source + name, target + name + (out ? ".part" : ""));
  });
  if (!out) {
    return 0;
  }
  sync(target);
  on_all_cpus(names, [&](const std::string& name) {
    check(::rename((target + name + ".part").c_str(), (target + name).c_str()) == 0, target + name);
  });
  sync(target);
  return 0;
}
