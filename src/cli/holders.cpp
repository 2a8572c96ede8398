#include "cli/holders.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>

namespace efs::cli {
namespace {

namespace stdfs = std::filesystem;

bool is_below(const std::string& path, const std::string& mount_point) {
  return path == mount_point || (path.starts_with(mount_point) && path[mount_point.size()] == '/');
}

// What the process holds there, "" for nothing. All links are read without being followed: a mount that hangs must
// not hang us.
std::string held_by(const stdfs::path& process, const std::string& mount_point) {
  std::error_code problem;
  const auto leads_there = [&](const stdfs::path& link) { return is_below(stdfs::read_symlink(link, problem).string(), mount_point); };
  if (leads_there(process / "cwd")) return "working directory";
  if (leads_there(process / "root")) return "root directory";
  if (leads_there(process / "exe")) return "program";
  for (stdfs::directory_iterator it(process / "fd", problem), end; !problem && it != end; it.increment(problem))
    if (leads_there(it->path())) return "open file " + stdfs::read_symlink(it->path(), problem).string();
  std::ifstream maps(process / "maps");
  for (std::string line; std::getline(maps, line);)
    if (const auto slash = line.find('/'); slash != std::string::npos && is_below(line.substr(slash), mount_point)) return "mapping of " + line.substr(slash);
  return {};
}

}  // namespace

std::vector<std::string> holders_of(const std::string& mount_point, std::size_t most) {
  std::vector<std::string> holders;
  std::error_code problem;
  for (stdfs::directory_iterator it("/proc", problem), end; !problem && it != end && holders.size() < most; it.increment(problem)) {
    const std::string pid = it->path().filename().string();
    if (!std::all_of(pid.begin(), pid.end(), [](unsigned char c) { return std::isdigit(c) != 0; })) continue;
    const std::string what = held_by(it->path(), mount_point);
    if (what.empty()) continue;
    std::string command;
    std::ifstream comm(it->path() / "comm");
    std::getline(comm, command);
    holders.push_back(pid + " " + command + " (" + what + ")");
  }
  return holders;
}

}  // namespace efs::cli
