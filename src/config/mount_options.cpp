// SPDX-License-Identifier: BSD-3-Clause
#include "config/mount_options.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>
#include <string_view>

#include "base/text.hpp"

namespace efs::config {
namespace {

constexpr std::uint32_t longest_spin = 1000;  // microseconds

struct Flag {
  std::string_view name;
  std::uint64_t set, clear;
};

constexpr std::array flags{
    Flag{"suid", mount_suid, 0}, Flag{"nosuid", 0, mount_suid}, Flag{"dev", mount_dev, 0},
    Flag{"nodev", 0, mount_dev}, Flag{"noexec", mount_noexec, 0}, Flag{"exec", 0, mount_noexec},
    Flag{"noatime", mount_noatime, mount_strictatime},
    Flag{"relatime", 0, mount_noatime | mount_strictatime},
    Flag{"strictatime", mount_strictatime, mount_noatime}, Flag{"ro", mount_readonly, 0},
    Flag{"rw", 0, mount_readonly},
    // Options of mount(8) and fstab that have no effect here.
    Flag{"defaults", 0, 0}, Flag{"auto", 0, 0}, Flag{"noauto", 0, 0}, Flag{"user", 0, 0},
    Flag{"_netdev", 0, 0}, Flag{"nofail", 0, 0}, Flag{"lazytime", 0, 0}, Flag{"nolazytime", 0, 0},
    Flag{"async", 0, 0}, Flag{"allow_other", 0, 0}, Flag{"default_permissions", 0, 0}};

Result<std::uint32_t> parse_mode(std::string_view octal) {
  std::uint32_t mode = 0;
  const auto [end, problem] = std::from_chars(octal.data(), octal.data() + octal.size(), mode, 8);
  if (problem != std::errc() || end != octal.data() + octal.size() || mode > 01777 ||
      (mode & 0700) != 0700) {
    return fail(EINVAL, "mount option mode=" + std::string(octal) +
                            ": permission bits in octal are expected, the owner's among them, as "
                            "in mode=0700");
  }
  return mode;
}

Result<std::uint32_t> parse_spin(std::string_view number) {
  std::uint32_t spin = 0;
  const auto [end, problem] = std::from_chars(number.data(), number.data() + number.size(), spin);
  if (problem != std::errc() || end != number.data() + number.size() || spin > longest_spin) {
    return fail(EINVAL, "mount option spin=" + std::string(number) +
                            ": microseconds from 0 (never) to " + std::to_string(longest_spin) +
                            " are expected, as in spin=50");
  }
  return spin;
}

// Options that are not flags. One with a value ends with "=".
constexpr std::array other_options{
    std::string_view("fsname="),      std::string_view("daemon-io"),
    std::string_view("writeback"),    std::string_view("spin="),
    std::string_view("placement=on"), std::string_view("placement=off"),
    std::string_view("mode=")};

std::unexpected<Error> unknown_option(const std::string& word) {
  std::array<std::string_view, flags.size() + other_options.size()> names{};
  std::ranges::transform(flags, std::ranges::copy(other_options, names.begin()).out, &Flag::name);
  const auto near = nearest(word, names);
  return fail(EINVAL, "unknown mount option " + word +
                          (near.empty() ? "" : " (did you mean " + std::string(near) + "?)"));
}

}  // namespace

std::string mount_option_names() {
  std::string names;
  for (const Flag& flag : flags) {
    if (flag.set != 0 || flag.clear != 0) {
      names += std::string(flag.name) + ",";
    }
  }
  for (const std::string_view name : other_options) {
    names += std::string(name) + ",";
  }
  names.pop_back();
  return names;
}

AccessTimes access_times(std::uint64_t flags) {
  if ((flags & (mount_noatime | mount_readonly)) != 0) {
    return AccessTimes::kept;
  }
  return (flags & mount_strictatime) != 0 ? AccessTimes::strict : AccessTimes::relative;
}

Result<MountOptions> parse_mount_options(const std::string& list) {
  MountOptions options;
  std::istringstream stream(list);
  for (std::string word; std::getline(stream, word, ',');) {
    if (word.empty()) {
      continue;
    }
    if (word.starts_with("fsname=")) {
      options.source = word.substr(7);
    } else if (word == "daemon-io") {
      options.daemon_io = true;
    } else if (word == "writeback") {
      options.writeback = true;
    } else if (word == "placement=on" || word == "placement=off") {
      options.join_callers = word.ends_with("on");
    } else if (word.starts_with("spin=")) {
      const auto spin = parse_spin(std::string_view(word).substr(5));
      if (!spin) {
        return std::unexpected(spin.error());
      }
      options.spin = *spin;
    } else if (word.starts_with("mode=")) {
      const auto mode = parse_mode(std::string_view(word).substr(5));
      if (!mode) {
        return std::unexpected(mode.error());
      }
      options.mode = *mode;
    } else if (const auto* flag = std::ranges::find(flags, std::string_view(word), &Flag::name);
               flag != flags.end()) {
      options.flags = (options.flags | flag->set) & ~flag->clear;
    } else {
      return unknown_option(word);
    }
  }
  return options;
}

Status check_mount_options(const MountOptions& options, const JobConfig& job) {
  if (options.writeback && (job.limit_read > 0 || job.limit_write > 0 || job.limit_ops > 0)) {
    return fail(EINVAL,
                "mount option writeback: the kernel's write cache hides writes from limit-read, "
                "limit-write and limit-ops. Leave out writeback or the limits");
  }
  if (options.writeback && std::ranges::any_of(job.resources, [](const Resource& resource) {
        return resource.changed == Changed::accept;
      })) {
    return fail(EINVAL,
                "mount option writeback: the kernel's write cache keeps the size of a file, and "
                "changed: accept may change it. Leave out one of the two");
  }
  return options.writeback && !job.trace.empty()
             ? fail(EINVAL,
                    "mount option writeback: a trace shows each write of a program, and the "
                    "kernel's write cache hides it. Leave out writeback or the trace")
             : Status();
}

}  // namespace efs::config
