#include "base/boot.hpp"

#include <sys/utsname.h>

#include <cstdio>
#include <fstream>

namespace efs {

std::string boot_id() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id;
}

std::string kernel_release() {
  utsname name{};
  return ::uname(&name) == 0 ? name.release : "";
}

std::string no_takeover_reason(const std::string& release) {
  unsigned major = 0, minor = 0;
  const bool read = std::sscanf(release.c_str(), "%u.%u", &major, &minor) == 2;
  if (read && (major > 6 || (major == 6 && minor >= 9))) return {};
  return "Linux " + release + " does not send requests again (6.9 or later does): if the worker dies, the mount ends, and efs start goes on with what is in the buffer";
}

}  // namespace efs
