// SPDX-License-Identifier: BSD-3-Clause
#include "base/boot.hpp"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <system_error>

#include "base/unique_fd.hpp"

namespace efs {

namespace {

// A stream would hide a failed allocation.
std::string read_boot_id() {
  const UniqueFd file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  std::array<char, 64> text{};
  const ssize_t length = file ? ::read(file.get(), text.data(), text.size()) : -1;
  if (length < 0) {
    throw std::system_error(errno, std::generic_category(), "the boot id of the kernel");
  }
  const std::string_view line(text.data(), static_cast<std::size_t>(length));
  return std::string(line.substr(0, line.find('\n')));
}

}  // namespace

const std::string& boot_id() {
  static const std::string id = read_boot_id();
  return id;
}

std::string kernel_release() {
  utsname name{};
  return ::uname(&name) == 0 ? name.release : "";
}

std::string no_takeover_reason(const std::string& release) {
  unsigned major = 0, minor = 0;
  const bool read = std::sscanf(release.c_str(), "%u.%u", &major, &minor) == 2;
  if (read && (major > 6 || (major == 6 && minor >= 9))) {
    return {};
  }
  return "Linux " + release +
         " does not resend requests (6.9 or later does): if the worker dies, the mount ends, and "
         "efs start continues with the buffer";
}

}  // namespace efs
