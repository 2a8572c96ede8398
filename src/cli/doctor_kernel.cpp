// SPDX-License-Identifier: BSD-3-Clause
// Checks the kernel, FUSE and the rights of the caller.
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "cli/doctor.hpp"

namespace efs::cli {
namespace {

constexpr unsigned cap_sys_admin = 21;

std::string first_line(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

std::string octal(mode_t mode) {
  char text[8];
  std::snprintf(text, sizeof text, "%04o", mode & 07777U);
  return text;
}

Finding judge_fuse_device() {
  const std::string what = "/dev/fuse";
  struct stat st{};
  if (::stat("/dev/fuse", &st) != 0 || !S_ISCHR(st.st_mode)) {
    return {Level::problem, what, "is not there: nothing can be mounted",
            "load the module (modprobe fuse, and a line `fuse` in /etc/modules-load.d); in a "
            "container, hand the device in"};
  }
  if (st.st_rdev != makedev(10, 229)) {
    return {Level::problem, what, "is not the device of FUSE (character 10:229)",
            "remove it and load the module: modprobe fuse"};
  }
  const bool open_to_all = (st.st_mode & 06) == 06;
  if (::geteuid() != 0 && ::access("/dev/fuse", R_OK | W_OK) != 0) {
    return {Level::problem, what, "mode " + octal(st.st_mode) + ": you cannot mount",
            "ask for mode 0666, which a udev rule sets: KERNEL==\"fuse\", MODE=\"0666\"; jobs "
            "under the Slurm plugin do not need it"};
  }
  if (!open_to_all) {
    return {Level::warning, what,
            "mode " + octal(st.st_mode) + ": ordinary users cannot mount by themselves",
            "a udev rule: KERNEL==\"fuse\", MODE=\"0666\"; not needed where only root and the "
            "Slurm plugin start efs"};
  }
  return {Level::ok, what, "mode " + octal(st.st_mode), ""};
}

std::string find_program(const std::string& name) {
  const char* given = std::getenv("PATH");
  std::string rest = given == nullptr ? "" : given;
  for (std::size_t at = 0; at <= rest.size();) {
    const auto end = std::min(rest.find(':', at), rest.size());
    const std::string path = rest.substr(at, end - at) + "/" + name;
    if (::access(path.c_str(), X_OK) == 0) {
      return path;
    }
    at = end + 1;
  }
  return {};
}

Finding judge_fusermount() {
  const std::string what = "fusermount3", path = find_program("fusermount3");
  const Level level = ::geteuid() == 0 ? Level::warning : Level::problem;
  struct stat st{};
  if (path.empty() || ::stat(path.c_str(), &st) != 0) {
    return {level, what, "is not on the PATH: ordinary users cannot mount",
            "install the package fuse3; not needed where only root and the Slurm plugin start efs"};
  }
  if (st.st_uid != 0 || (st.st_mode & S_ISUID) == 0) {
    return {level, what, path + " is not set-uid root: ordinary users cannot mount",
            "chown root " + path + "; chmod u+s " + path +
                "; not needed where only root and the Slurm plugin start efs"};
  }
  return {Level::ok, what, path + "; user_allow_other in /etc/fuse.conf is not needed", ""};
}

Finding judge_privilege() {
  if (::geteuid() != 0) {
    return {Level::warning, "privilege",
            "you are not root: your own instances take the daemon path, without passthrough",
            "none is needed; under Slurm the plugin starts efs as root, for you"};
  }
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("CapEff:")) {
      continue;
    }
    const auto caps = std::strtoull(line.c_str() + 7, nullptr, 16);
    if ((caps >> cap_sys_admin & 1) == 0) {
      return {Level::problem, "privilege", "this root has no CAP_SYS_ADMIN: it cannot mount",
              "start the container with it, or start efs outside"};
    }
  }
  constexpr ino_t initial = 0xEFFFFFFDU;  // PROC_USER_INIT_INO, linux/proc_ns.h
  struct stat ours{};
  if (::stat("/proc/self/ns/user", &ours) == 0 && ours.st_ino != initial) {
    return {Level::warning, "privilege",
            "root of a user namespace: mounts are possible, passthrough is not: the daemon does "
            "the I/O",
            "start efs as root of the initial user namespace for full speed"};
  }
  return {Level::ok, "privilege", "root: mounts and backing files are possible", ""};
}

}  // namespace

// For information only: efs does not depend on it.
Finding judge_uring(std::string_view state) {
  if (state.empty()) {
    return {Level::ok, "FUSE over io_uring",
            "this kernel does not have it, or does not say so; efs needs none", ""};
  }
  return {Level::ok, "FUSE over io_uring",
          state == "Y" || state == "1" ? "is on" : "is off; efs needs none", ""};
}

// For information only. Measured: docs/benchmarks.md.
Finding judge_idle(std::string_view governor, std::string_view halt_poll) {
  if (governor == "haltpoll" && halt_poll == "0") {
    return {Level::ok, "idle CPUs",
            "this virtual machine halts them at once, so waking them, and with it each request to "
            "efs, takes twice the time or more; 200000 in "
            "/sys/module/haltpoll/parameters/guest_halt_poll_ns makes them poll for 0.2 ms first",
            ""};
  }
  return {Level::ok, "idle CPUs", "no setting is known that makes waking them slow", ""};
}

Finding judge_kernel(std::string_view release) {
  const std::string text = "Linux " + std::string(release);
  unsigned major = 0, minor = 0;
  const char* end = release.data() + release.size();
  const auto dot = std::from_chars(release.data(), end, major).ptr;
  if (dot == end || *dot != '.' || std::from_chars(dot + 1, end, minor).ec != std::errc{}) {
    return {Level::warning, "kernel", text + ": a version that cannot be read", ""};
  }
  const auto is_at_least = [&](unsigned a, unsigned b) {
    return major > a || (major == a && minor >= b);
  };
  if (is_at_least(6, 9)) {
    return {Level::ok, "kernel",
            text +
                ": passthrough (the kernel itself reads and writes), and a worker that dies is "
                "replaced",
            ""};
  }
  if (is_at_least(5, 9)) {
    return {Level::warning, "kernel",
            text +
                ": before 6.9 there is no passthrough, so reads and writes go through the daemon, "
                "and a worker that dies ends the mount",
            "Linux 6.9 or later"};
  }
  return {Level::problem, "kernel", text + ": efs is not made for it",
          "Linux 5.10 or later; 6.9 for full speed"};
}

Findings examine_kernel() {
  utsname system{};
  ::uname(&system);
  return {judge_kernel(system.release),
          judge_fuse_device(),
          judge_fusermount(),
          judge_uring(first_line("/sys/module/fuse/parameters/enable_uring")),
          judge_idle(first_line("/sys/devices/system/cpu/cpuidle/current_governor_ro"),
                     first_line("/sys/module/haltpoll/parameters/guest_halt_poll_ns")),
          judge_privilege()};
}

}  // namespace efs::cli
