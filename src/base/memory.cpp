#include "base/memory.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace efs {

std::uint64_t available_memory() {
  std::uint64_t available = 0;
  std::ifstream meminfo("/proc/meminfo");
  for (std::string key; meminfo >> key;) {
    std::uint64_t kilobytes = 0;
    meminfo >> kilobytes;
    if (key == "MemAvailable:") available = kilobytes * 1024;
    meminfo.ignore(64, '\n');
  }
  std::string line, limit;
  std::ifstream cgroup("/proc/self/cgroup");
  while (std::getline(cgroup, line))
    if (line.starts_with("0::"))  // the limit may be any ancestor's
      for (auto group = std::filesystem::path(line.substr(3)).relative_path();; group = group.parent_path()) {
        if (std::ifstream("/sys/fs/cgroup" / group / "memory.max") >> limit && std::isdigit(static_cast<unsigned char>(limit[0])))
          available = std::min<std::uint64_t>(available, std::strtoull(limit.c_str(), nullptr, 10));
        if (group.empty()) break;
      }
  return available;
}

}  // namespace efs
