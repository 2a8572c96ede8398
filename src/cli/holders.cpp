// SPDX-License-Identifier: BSD-3-Clause
#include "cli/holders.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/mounts.hpp"
#include "base/text.hpp"

namespace efs::cli {
namespace {

namespace stdfs = std::filesystem;

// maps "socket:[INODE]", the link text of a descriptor, to the path that the socket is bound to
using Sockets = std::map<std::string, std::string>;

bool is_below(const std::string& path, const std::string& mount_point) {
  return path == mount_point || (path.starts_with(mount_point) && path[mount_point.size()] == '/');
}

std::string first_line_of(const stdfs::path& file) {
  std::ifstream lines(file);
  std::string line;
  std::getline(lines, line);
  return line;
}

// Returns the sockets that are bound below the mount point by an absolute path. Columns: Num
// RefCount Protocol Flags Type St Inode Path.
Sockets sockets_below(const std::string& mount_point) {
  Sockets sockets;
  std::ifstream lines("/proc/net/unix");
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word, inode, path;
    for (int i = 0; i < 6; ++i) {
      words >> word;
    }
    words >> inode;
    if (words.get() == ' ' && std::getline(words, path) && is_below(path, mount_point)) {
      sockets["socket:[" + inode + "]"] = path;
    }
  }
  return sockets;
}

// A directory of /proc whose name is a number is a process.
bool is_process(const std::string& name) {
  return std::ranges::all_of(name, [](unsigned char c) { return std::isdigit(c) != 0; });
}

// Returns the object that keeps the process in the mount, or "". Reads links without following
// them, so that a hanging mount cannot block efs.
std::string held_by(const stdfs::path& process, const std::string& mount_point, Sockets& sockets) {
  std::error_code problem;
  const auto leads_there = [&](const stdfs::path& link) {
    return is_below(stdfs::read_symlink(link, problem).string(), mount_point);
  };
  if (leads_there(process / "cwd")) {
    return "working directory";
  }
  if (leads_there(process / "root")) {
    return "root directory";
  }
  if (leads_there(process / "exe")) {
    return "program";
  }
  for (stdfs::directory_iterator it(process / "fd", problem), end; !problem && it != end;
       it.increment(problem)) {
    const std::string target = stdfs::read_symlink(it->path(), problem).string();
    if (is_below(target, mount_point)) {
      return "open file " + target;
    }
    if (const auto socket = sockets.find(target); socket != sockets.end()) {
      const std::string where = socket->second;
      sockets.erase(socket);
      return "socket bound at " + where;
    }
  }
  std::ifstream maps(process / "maps");
  for (std::string line; std::getline(maps, line);) {
    if (const auto slash = line.find('/');
        slash != std::string::npos && is_below(line.substr(slash), mount_point)) {
      return "mapping of " + line.substr(slash);
    }
  }
  return {};
}

// A loop device: the kernel itself has the file open.
void add_loop_devices(const std::string& mount_point, std::vector<std::string>& holders) {
  std::error_code problem;
  for (stdfs::directory_iterator it("/sys/block", problem), end; !problem && it != end;
       it.increment(problem)) {
    const std::string file = first_line_of(it->path() / "loop" / "backing_file"),
                      device = "/dev/" + it->path().filename().string();
    if (is_below(file, mount_point)) {
      holders.push_back("loop device " + device + " on " + file + " (losetup -d " + device + ")");
    }
  }
}

// A name in /proc/swaps ends at a blank; special characters are in octal.
void add_swap(const std::string& mount_point, std::vector<std::string>& holders) {
  std::ifstream lines("/proc/swaps");
  for (std::string line; std::getline(lines, line);) {
    if (const std::string file = from_octal(line.substr(0, line.find_first_of(" \t")));
        is_below(file, mount_point)) {
      holders.push_back("swap on " + file + " (swapoff " + file + ")");
    }
  }
}

// Adds at most `most` processes. Takes their sockets out of `sockets`.
void add_processes(const std::string& mount_point, std::size_t most, Sockets& sockets,
                   std::vector<std::string>& holders) {
  std::error_code problem;
  const std::string own = std::to_string(::getpid());
  for (stdfs::directory_iterator it("/proc", problem), end;
       !problem && it != end && holders.size() < most; it.increment(problem)) {
    const std::string pid = it->path().filename().string();
    if (pid == own || !is_process(pid)) {
      continue;
    }
    const std::string what = held_by(it->path(), mount_point, sockets);
    if (!what.empty()) {
      holders.push_back(pid + " " + first_line_of(it->path() / "comm") + " (" + what + ")");
    }
  }
}

}  // namespace

std::vector<std::string> holders_of(const std::string& mount_point, std::size_t most) {
  std::vector<std::string> holders;
  Sockets sockets = sockets_below(mount_point);
  add_processes(mount_point, most, sockets, holders);
  for (const auto& point : mounts_on(mount_point)) {
    holders.push_back("a mount " + (point == mount_point ? "over it" : "at " + point) +
                      " (umount " + point + ")");
  }
  add_loop_devices(mount_point, holders);
  add_swap(mount_point, holders);
  // Sockets of processes that the caller may not inspect, and sockets that a second process holds.
  for (const auto& [name, where] : sockets) {
    holders.push_back("a socket bound at " + where);
  }
  if (holders.size() > most) {
    holders.resize(most);
  }
  return holders;
}

}  // namespace efs::cli
