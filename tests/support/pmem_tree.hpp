// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A directory that looks like the sysfs, the mount table and udev's records of a node with
// persistent memory. Device directories lie below /sys/devices, and a bus has links to them.

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "cli/pmem_devices.hpp"
#include "support/temp.hpp"

namespace efs::test {

class PmemTree {
 public:
  PmemTree() {
    std::filesystem::create_directories(root() + bus + "nd/devices");
    std::filesystem::create_directories(root() + bus + "dax/devices");
    provider("ACPI.NFIT");
  }

  const std::string& root() const { return directory_.path(); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root() + path).parent_path());
    std::ofstream(root() + path) << text;
    REQUIRE(std::filesystem::exists(root() + path));
  }

  void attribute(const std::string& device, const std::string& name, const std::string& value) {
    write(on_bus("nd", device) + "/" + name, value + "\n");
  }

  void provider(const std::string& name) { write(devices + "/provider", name + "\n"); }

  /// A region of 1 GiB.
  void region(const std::string& name, const std::string& available) {
    link("nd", name, devices + "/" + name);
    attribute(name, "size", "1073741824");
    attribute(name, "available_size", available);
    attribute(name, "devtype", "nd_pmem");
    attribute(name, "persistence_domain", "memory_controller");
  }

  /// `mode`: the kernel's word. `holder`: of the namespace, or "".
  void name_space(const std::string& region, const std::string& name, const std::string& mode,
                  const std::string& holder) {
    link("nd", name, devices + "/" + region + "/" + name);
    attribute(name, "size", "1071644672");
    attribute(name, "mode", mode);
    attribute(name, "holder", holder);
    if (!holder.empty()) {
      link("nd", holder, devices + "/" + region + "/" + holder);
      attribute(holder, "align", "2097152");
      attribute(holder, "size", "1054867456");
    }
  }

  void block(const std::string& owner, const std::string& name, const std::string& number) {
    write(on_bus("nd", owner) + "/block/" + name + "/dev", number + "\n");
  }

  /// Of a namespace in mode devdax: `holder` is its claim.
  void character(const std::string& region, const std::string& holder, const std::string& name,
                 const std::string& driver) {
    const std::string path = devices + "/" + region + "/" + holder + "/" + name;
    dax_device(path, name, driver);
  }

  /// Of no namespace.
  void lone_character(const std::string& name, const std::string& driver) {
    dax_device("/sys/devices/platform/hmem.0/" + name, name, driver);
  }

  /// `point` is a path of the tree's node.
  void mount(const std::string& number, const std::string& point, const std::string& type,
             const std::string& source, const std::string& options) {
    mounts_ += "36 25 " + number + " / " + point + " rw,relatime shared:1 - " + type + " " +
               source + " " + options + "\n";
    write("/proc/self/mountinfo", mounts_);
  }

  void content(const std::string& number, const std::string& type) {
    write("/run/udev/data/b" + number, "S:disk/by-uuid/1\nE:ID_FS_TYPE=" + type + "\nG:systemd\n");
  }

  cli::PmemDevices read(const DurabilityProbe& answer = {}) const {
    return cli::PmemSysfs(root(), [answer](const std::string&) { return answer; }).read();
  }

  static std::string on_bus(const std::string& bus_name, const std::string& device) {
    return bus + bus_name + "/devices/" + device;
  }

 private:
  static inline const std::string bus = "/sys/bus/";
  static inline const std::string devices = "/sys/devices/LNXSYSTM:00/ACPI0012:00/ndbus0";

  void link(const std::string& bus_name, const std::string& name, const std::string& device) {
    std::filesystem::create_directories(root() + device);
    std::filesystem::create_symlink(root() + device, root() + on_bus(bus_name, name));
  }

  void dax_device(const std::string& path, const std::string& name, const std::string& driver) {
    write(path + "/size", "1054867456\n");
    write(path + "/align", "2097152\n");
    std::filesystem::create_directories(root() + bus + "dax/drivers/" + driver);
    std::filesystem::create_symlink(root() + bus + "dax/drivers/" + driver,
                                    root() + path + "/driver");
    link("dax", name, path);
  }

  TempDirectory directory_;
  std::string mounts_;
};

}  // namespace efs::test
