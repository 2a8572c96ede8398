// SPDX-License-Identifier: BSD-3-Clause
// Judges the persistent memory of this node: which backend each namespace can be today, and by
// which commands.
#include <algorithm>
#include <cstring>
#include <ranges>

#include "base/text.hpp"
#include "cli/backend_durability.hpp"
#include "cli/doctor.hpp"

namespace efs::cli {
namespace {

constexpr std::uint64_t huge_page = 2 << 20;  // a mapping by one entry of a PMD

std::string size_of(const std::optional<std::uint64_t>& bytes) {
  return bytes ? format_bytes(*bytes) : "size unknown";
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) {
    text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

bool is_dax(const PmemMount& mount) {
  return mount.probe.durability() == Durability::cache_line;
}

std::string to_fsdax(const PmemNamespace& one) {
  return "ndctl create-namespace --force --reconfig=" + as_word(one.name) +
         " --mode=fsdax --align=2M";
}

// A mount point for a block device that has none.
std::string mount_command(const std::string& block) {
  const std::string point = as_word("/mnt/" + block);
  return "mkdir -p " + point + " && mount -o dax " + as_word("/dev/" + block) + " " + point;
}

bool is_used(const PmemNamespace& one) {
  return !one.users.empty() || !one.mounts.empty() || !one.content.empty();
}

// The way to mode fsdax from another mode.
std::string conversion(const PmemNamespace& one) {
  if (!is_used(one)) {
    return "for DAX: " + to_fsdax(one) + " (erases the namespace)";
  }
  std::string unmount;
  for (const auto& mount : one.mounts) {
    unmount += "umount " + as_word(mount.point) + " && ";
  }
  return "for DAX: copy its data away, then " + unmount + to_fsdax(one) + " (erases the namespace)";
}

std::string text_of_mount(const PmemMount& mount) {
  const bool has_dax = has_option(mount.options, "dax") || has_option(mount.options, "dax=always");
  std::string text = mount.type + " on " + as_word(mount.point) +
                     (has_dax ? " with -o dax" : " without -o dax") + ", ";
  if (mount.probe.problem != 0) {
    return text + "MAP_SYNC not probed (" + std::strerror(mount.probe.problem) + ")";
  }
  return text + durability_text(mount.probe.durability());
}

std::string start_of(const PmemNamespace& one) {
  return (one.mode.empty() ? "mode unknown" : one.mode) + ", " +
         size_of(one.usable ? one.usable : one.size) +
         (one.align ? ", alignment " + format_bytes(*one.align) : "");
}

// A namespace without a device: it may hold anything.
Finding judge_disabled(const PmemNamespace& one, const std::string& text) {
  return {
      Level::warning, one.name, text + ", no device: the namespace is disabled",
      "ndctl enable-namespace " + as_word(one.name) + "; then efs doctor --pmem shows its mode"};
}

Finding judge_fsdax_mount(const std::string& what, const std::string& text,
                          const PmemMount& mount) {
  if (is_dax(mount)) {
    return {Level::ok, what, text,
            "in the job file: type: NVRAM-NVML, daxfs: a directory below " + as_word(mount.point) +
                ", require-dax: true"};
  }
  if (mount.probe.problem != 0) {
    return {Level::warning, what, text,
            "as root, efs doctor --pmem probes it; in a job file, require-dax: true does"};
  }
  if (mount.type != "ext4" && mount.type != "xfs") {
    return {Level::warning, what, text, "DAX needs ext4 or XFS"};
  }
  return {Level::warning, what, text,
          "umount " + as_word(mount.point) + " && mount -o dax " + as_word("/dev/" + mount.device) +
              " " + as_word(mount.point) + " (a remount does not change it)"};
}

// Without a mount.
Finding judge_fsdax_block(const PmemNamespace& one, const std::string& text) {
  if (one.block.empty()) {
    return judge_disabled(one, text);
  }
  if (!one.users.empty()) {
    return {Level::warning, one.name, text + ", used by " + listed(one.users) + ", not mounted",
            "mount -o dax what lies on it, if that is ext4 or XFS"};
  }
  if (one.content == "ext4" || one.content == "xfs") {
    return {Level::warning, one.name, text + ", holds " + one.content + ", not mounted",
            mount_command(one.block)};
  }
  const std::string device = as_word("/dev/" + one.block);
  const std::string make = "mkfs.ext4 -E stride=512 " + device +
                           " (or mkfs.xfs -m reflink=0 -d "
                           "su=2m,sw=1 " +
                           device + ") && " + mount_command(one.block);
  if (one.content.empty()) {
    return {Level::warning, one.name, text + ", no known file system",
            "if nothing is on it: " + make};
  }
  return {Level::warning, one.name, text + ", holds " + one.content + ", which has no DAX",
          "if its data may go: " + make};
}

Findings judge_fsdax(const PmemNamespace& one) {
  std::string text = start_of(one);
  if (one.align && *one.align < huge_page) {
    text += " (too small for mappings of 2 MiB)";
  }
  text += one.block.empty() ? "" : ", /dev/" + one.block;
  if (one.mounts.empty()) {
    return {judge_fsdax_block(one, text)};
  }
  Findings found;
  for (const auto& mount : one.mounts) {
    const std::string by = mount.device == one.block ? "" : " by /dev/" + mount.device;
    found.push_back(judge_fsdax_mount(one.name, text + by + ", " + text_of_mount(mount), mount));
  }
  return found;
}

// Modes raw and sector: block devices without DAX.
Findings judge_block(const PmemNamespace& one) {
  if (one.block.empty()) {
    return {judge_disabled(one, start_of(one))};
  }
  std::string text = start_of(one) + ", /dev/" + one.block;
  for (const auto& mount : one.mounts) {
    text += ", " + text_of_mount(mount);
  }
  if (!one.users.empty()) {
    text += ", used by " + listed(one.users);
  }
  return {{Level::warning, one.name,
           text + ": a block device without DAX; a file system on it is an NVRAM-NVML backend "
                  "through the page cache",
           conversion(one)}};
}

std::string text_of_device(const DaxDevice& device) {
  return "/dev/" + device.name + " (" + size_of(device.size) +
         (device.align ? ", alignment " + format_bytes(*device.align) : "") + ")";
}

bool is_system_memory(const DaxDevice& device) {
  return device.driver == "kmem";
}

Findings judge_devdax(const PmemNamespace& one) {
  std::vector<std::string> devices;
  std::ranges::transform(one.characters, std::back_inserter(devices), text_of_device);
  const std::string text = start_of(one) + (devices.empty() ? "" : ", " + listed(devices));
  if (devices.empty()) {
    return {judge_disabled(one, text)};
  }
  if (std::ranges::any_of(one.characters, is_system_memory)) {
    return {{Level::ok, one.name,
             text + ": the kernel uses it as ordinary memory, which type DRAM can take", ""}};
  }
  return {{Level::warning, one.name,
           text + ": this version of efs has no backend for a DAX device (NVRAM-DEVDAX)",
           conversion(one)}};
}

Findings judge_namespace(const PmemNamespace& one) {
  if (one.mode == "fsdax") {
    return judge_fsdax(one);
  }
  if (one.mode == "devdax") {
    return judge_devdax(one);
  }
  if (one.mode == "raw" || one.mode == "sector") {
    return judge_block(one);
  }
  return {{Level::warning, one.name, start_of(one) + ": efs does not know this mode",
           "see ndctl list -N -n " + as_word(one.name)}};
}

// What the medium keeps at power loss: DAX and MAP_SYNC do not show it.
Finding judge_medium_of(const PmemRegion& region) {
  const std::string text =
      size_of(region.size) + (region.provider.empty() ? "" : ", by " + region.provider) +
      (region.persistence_domain.empty() ? ""
                                         : ", persistence domain " + region.persistence_domain);
  if (region.is_volatile) {
    return {Level::warning, region.name, text + ", volatile: lost at power loss",
            "use it as type DRAM, or knowingly"};
  }
  if (region.provider == "e820") {
    return {Level::warning, region.name,
            text + ": the firmware's memory map, or memmap= of the kernel's command line, names it",
            "with memmap= it is ordinary memory, and lost at power loss: for tests only"};
  }
  return {Level::ok, region.name, text, ""};
}

Findings judge_region(const PmemRegion& region) {
  Findings found{judge_medium_of(region)};
  if (region.available.value_or(0) >= config::smallest_capacity) {
    found.push_back({Level::ok, region.name, format_bytes(*region.available) + " without namespace",
                     "ndctl create-namespace --region=" + as_word(region.name) +
                         " --mode=fsdax --align=2M; then efs doctor --pmem says how to go on"});
  } else if (region.namespaces.empty()) {
    found.push_back(
        {Level::warning, region.name, "no namespace, and no free space is known",
         "see ndctl list --regions --idle; ndctl enable-region " + as_word(region.name)});
  }
  for (const auto& one : region.namespaces) {
    add_findings(found, judge_namespace(one));
  }
  return found;
}

Finding judge_other(const DaxDevice& device) {
  if (is_system_memory(device)) {
    return {Level::ok, device.name,
            text_of_device(device) +
                ": the kernel uses it as ordinary memory, which type DRAM can take",
            ""};
  }
  return {Level::warning, device.name,
          text_of_device(device) + ": of no namespace; this version of efs has no backend for it",
          "as ordinary memory for type DRAM: daxctl reconfigure-device --mode=system-ram " +
              as_word(device.name)};
}

// Returns a mount with DAX, or null.
const PmemMount* dax_mount(const PmemDevices& devices) {
  for (const auto& region : devices.regions) {
    for (const auto& one : region.namespaces) {
      const auto found = std::ranges::find_if(one.mounts, is_dax);
      if (found != one.mounts.end()) {
        return &*found;
      }
    }
  }
  return nullptr;
}

// The types of backends that a job file can have on this node.
Findings judge_types(const PmemDevices& devices) {
  const PmemMount* const dax = dax_mount(devices);
  Findings found{
      {Level::ok, "type DRAM", "works here as on every node: a tmpfs, volatile", ""},
      {dax != nullptr ? Level::ok : Level::warning, "type NVRAM-NVML",
       dax != nullptr ? "works here with DAX: a directory below " + as_word(dax->point)
                      : "works here without DAX: no file system is known to be mounted with it",
       dax != nullptr ? ""
                      : "a directory on an SSD or another disk works through the page cache: "
                        "durable by fsync or msync"}};
  found.push_back({Level::ok, "type NVRAM-DEVDAX",
                   "not supported by this version of efs: no backend takes a /dev/dax", ""});
  return found;
}

}  // namespace

Findings judge_pmem(const PmemDevices& devices) {
  Findings found;
  for (const auto& problem : devices.problems) {
    found.push_back({Level::warning, "sysfs", problem, "efs doctor --pmem as root may see more"});
  }
  if (devices.empty() && devices.problems.empty()) {
    found.push_back(
        {Level::warning, "persistent memory", "none: the kernel shows no region and no DAX device",
         "efs works without it: type DRAM (a tmpfs), or NVRAM-NVML on an SSD. If the "
         "node has such modules: modprobe -a nfit nd_pmem, and see the firmware's setup"});
  }
  for (const auto& region : devices.regions) {
    add_findings(found, judge_region(region));
  }
  for (const auto& device : devices.others) {
    found.push_back(judge_other(device));
  }
  add_findings(found, judge_types(devices));
  return found;
}

}  // namespace efs::cli
