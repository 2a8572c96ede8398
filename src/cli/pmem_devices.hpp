// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The persistent memory of a node, as the kernel shows it in sysfs. Needs no rights, and no ndctl.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/durability.hpp"
#include "base/mount_table.hpp"

namespace efs::cli {

/// A file system on a namespace, on a partition of it, or on a device above it.
struct PmemMount {
  std::string device;  // "pmem0", "dm-3"
  std::string point, type;
  std::string options;  // of the file system
  DurabilityProbe probe;
};

/// A character device: /dev/NAME.
struct DaxDevice {
  std::string name;
  std::optional<std::uint64_t> size, align;  // bytes; nullopt: not known
  // "device_dax"; "kmem": the kernel uses it as ordinary memory; "": unknown or none
  std::string driver;
};

struct PmemNamespace {
  std::string name;
  std::string mode;
  std::optional<std::uint64_t> size;    // bytes of the region; nullopt: not known
  std::optional<std::uint64_t> usable;  // bytes of the device; the kernel keeps some
  std::optional<std::uint64_t> align;   // bytes; nullopt: not known
  std::string block;                    // "pmem0"; "": no block device
  std::vector<DaxDevice> characters;
  // what udev found on the block device, as blkid names it; "": nothing, or unknown
  std::string content;
  std::vector<std::string> users;  // partitions, and devices of the device mapper
  std::vector<PmemMount> mounts;
};

/// A range of memory that one or more modules provide.
struct PmemRegion {
  std::string name;
  std::optional<std::uint64_t> size;       // bytes; nullopt: not known
  std::optional<std::uint64_t> available;  // bytes of no namespace; nullopt: not known
  std::string provider;                    // of its bus: "ACPI.NFIT", "e820"; "": unknown
  std::string persistence_domain;          // "" if the platform declares none
  bool is_volatile = false;
  std::vector<PmemNamespace> namespaces;
};

struct PmemDevices {
  std::vector<PmemRegion> regions;
  std::vector<DaxDevice> others;  // of no namespace: memory that firmware or CXL set aside
  // unreadable directories and attributes, and attributes that are not as expected, with the reason
  std::vector<std::string> problems;

  bool empty() const { return regions.empty() && others.empty(); }
};

/// Reads sysfs, the mount table and udev's records. It changes nothing.
class PmemSysfs {
 public:
  using Probe = std::function<DurabilityProbe(const std::string& directory)>;

  /// `root` is prepended to each path ("": the machine's own). `probe` gets the mount points.
  PmemSysfs(std::string root, Probe probe);

  PmemDevices read() const;

 private:
  std::string root_;
  Probe probe_;
};

}  // namespace efs::cli
