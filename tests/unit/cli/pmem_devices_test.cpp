// SPDX-License-Identifier: BSD-3-Clause
// Regions, namespaces and devices, read from artificial trees of sysfs.
#include "cli/pmem_devices.hpp"

#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "support/pmem_tree.hpp"

namespace {

using namespace efs;
using namespace efs::cli;
using test::PmemTree;

const PmemNamespace& only(const PmemDevices& devices) {
  REQUIRE(devices.problems == std::vector<std::string>{});
  REQUIRE(devices.regions.size() == 1);
  REQUIRE(devices.regions.front().namespaces.size() == 1);
  return devices.regions.front().namespaces.front();
}

TEST_CASE("a region has its size, its free space and its medium", "[pmem]") {
  PmemTree tree;
  tree.region("region0", "1073741824");
  const auto devices = tree.read();
  REQUIRE(devices.regions.size() == 1);
  const auto& region = devices.regions.front();
  CHECK(region.name == "region0");
  CHECK(region.size == 1u << 30);
  CHECK(region.available == 1u << 30);
  CHECK(region.provider == "ACPI.NFIT");
  CHECK(region.persistence_domain == "memory_controller");
  CHECK(!region.is_volatile);
  CHECK(region.namespaces.empty());
  CHECK(devices.problems.empty());

  tree.attribute("region0", "devtype", "nd_volatile");
  CHECK(tree.read().regions.front().is_volatile);
}

TEST_CASE("a namespace without a size is a template of the kernel, and not shown", "[pmem]") {
  PmemTree tree;
  tree.region("region0", "1073741824");
  tree.name_space("region0", "namespace0.0", "raw", "");
  tree.attribute("namespace0.0", "size", "0");
  CHECK(tree.read().regions.front().namespaces.empty());
}

TEST_CASE("a region without labels has no free space beside its namespace", "[pmem]") {
  PmemTree tree;
  tree.region("region0", "1073741824");
  tree.name_space("region0", "namespace0.0", "raw", "");
  tree.attribute("namespace0.0", "size", "1073741824");
  CHECK(tree.read().regions.front().available == 0);
  tree.attribute("namespace0.0", "size", "536870912");
  CHECK(tree.read().regions.front().available == 1u << 29);
  tree.attribute("region0", "available_size", "16777216");
  CHECK(tree.read().regions.front().available == 1u << 24);
  tree.attribute("namespace0.0", "size", "9999999999");
  CHECK(tree.read().regions.front().available == 0);
}

TEST_CASE("a namespace in mode fsdax has the block device of its claim", "[pmem]") {
  PmemTree tree;
  tree.region("region0", "0");
  tree.name_space("region0", "namespace0.0", "memory", "pfn0.0");
  tree.block("pfn0.0", "pmem0", "259:0");
  tree.content("259:0", "ext4");
  tree.mount("259:0", "/mnt/pmem\\0400", "ext4", "/dev/pmem0", "rw,dax=always");
  const auto devices = tree.read({.maps_persistent = true});
  const auto& one = only(devices);
  CHECK(one.mode == "fsdax");
  CHECK(one.size == 1071644672);
  CHECK(one.usable == 1054867456);
  CHECK(one.align == 2u << 20);
  CHECK(one.block == "pmem0");
  CHECK(one.content == "ext4");
  CHECK(one.users.empty());
  REQUIRE(one.mounts.size() == 1);
  CHECK(one.mounts.front().device == "pmem0");
  CHECK(one.mounts.front().point == "/mnt/pmem 0");
  CHECK(one.mounts.front().type == "ext4");
  CHECK(one.mounts.front().options == "rw,dax=always");
  CHECK(one.mounts.front().probe.durability() == Durability::cache_line);
}

TEST_CASE("a namespace of the kernel's command line has no claim", "[pmem]") {
  PmemTree tree;
  tree.provider("e820");
  tree.region("region0", "0");
  tree.name_space("region0", "namespace0.0", "memory", "");
  tree.block("namespace0.0", "pmem0", "259:0");
  const auto devices = tree.read();
  CHECK(only(devices).mode == "fsdax");
  CHECK(only(devices).block == "pmem0");
  CHECK(!only(devices).align);
  CHECK(devices.regions.front().provider == "e820");
}

TEST_CASE("modes have the names that ndctl gives them", "[pmem]") {
  for (const auto& [kernel, ndctl] :
       {std::pair{"raw", "raw"}, std::pair{"safe", "sector"}, std::pair{"memory", "fsdax"},
        std::pair{"dax", "devdax"}, std::pair{"later", "later"}}) {
    PmemTree tree;
    tree.region("region0", "0");
    tree.name_space("region0", "namespace0.0", kernel, "");
    CHECK(only(tree.read()).mode == ndctl);
  }
}

TEST_CASE("a namespace in mode devdax has character devices", "[pmem]") {
  PmemTree tree;
  tree.region("region1", "0");
  tree.name_space("region1", "namespace1.0", "dax", "dax1.0");
  tree.character("region1", "dax1.0", "dax1.0", "device_dax");
  tree.character("region1", "dax1.0", "dax1.1", "kmem");
  const auto devices = tree.read();
  const auto& one = only(devices);
  CHECK(one.mode == "devdax");
  CHECK(one.block.empty());
  REQUIRE(one.characters.size() == 2);
  CHECK(one.characters[0].name == "dax1.0");
  CHECK(one.characters[0].size == 1054867456);
  CHECK(one.characters[0].align == 2u << 20);
  CHECK(one.characters[0].driver == "device_dax");
  CHECK(one.characters[1].driver == "kmem");
  CHECK(devices.others.empty());
}

TEST_CASE("a DAX device of no namespace is one of its own", "[pmem]") {
  PmemTree tree;
  tree.lone_character("dax4.0", "device_dax");
  const auto devices = tree.read();
  CHECK(devices.regions.empty());
  REQUIRE(devices.others.size() == 1);
  CHECK(devices.others.front().name == "dax4.0");
  CHECK(!devices.empty());
}

TEST_CASE("partitions and devices above a namespace are found with their mounts", "[pmem]") {
  PmemTree tree;
  tree.region("region0", "0");
  tree.name_space("region0", "namespace0.0", "safe", "btt0.0");
  tree.block("btt0.0", "pmem0s", "259:0");
  const std::string block = PmemTree::on_bus("nd", "btt0.0") + "/block/pmem0s";
  tree.write(block + "/pmem0s1/partition", "1\n");
  tree.write(block + "/pmem0s1/dev", "259:1\n");
  tree.write(block + "/pmem0s1/holders/dm-3/dev", "253:3\n");
  tree.write(block + "/queue/logical_block_size", "512\n");
  tree.mount("253:3", "/scratch", "xfs", "/dev/mapper/vg-lv", "rw");
  tree.mount("0:55", "/btrfs", "btrfs", "/dev/pmem0s1", "rw");
  tree.mount("8:1", "/other", "ext4", "/dev/sda1", "rw");
  tree.mount("253:3", "/scratch", "xfs", "/dev/mapper/vg-lv", "rw");
  const auto devices = tree.read();
  const auto& one = only(devices);
  CHECK(one.mode == "sector");
  CHECK(std::ranges::is_permutation(one.users, std::vector<std::string>{"pmem0s1", "dm-3"}));
  REQUIRE(one.mounts.size() == 2);
  CHECK(one.mounts[0].point == "/scratch");
  CHECK(one.mounts[0].device == "dm-3");
  CHECK(one.mounts[1].point == "/btrfs");
}

TEST_CASE("several regions are in the order of their numbers, each with its namespaces", "[pmem]") {
  PmemTree tree;
  for (const char* number : {"10", "2", "0"}) {
    const std::string region = std::string("region") + number,
                      name = std::string("namespace") + number + ".";
    tree.region(region, "0");
    tree.name_space(region, name + "10", "raw", "");
    tree.name_space(region, name + "9", "raw", "");
  }
  const auto devices = tree.read();
  REQUIRE(devices.regions.size() == 3);
  CHECK(devices.regions[0].name == "region0");
  CHECK(devices.regions[1].name == "region2");
  CHECK(devices.regions[2].name == "region10");
  for (const auto& region : devices.regions) {
    REQUIRE(region.namespaces.size() == 2);
    CHECK(region.namespaces[0].name == "namespace" + region.name.substr(6) + ".9");
    CHECK(region.namespaces[1].name == "namespace" + region.name.substr(6) + ".10");
  }
}

TEST_CASE("an attribute that is no number is named, and the rest is shown", "[pmem]") {
  PmemTree tree;
  tree.region("region0", "0");
  for (const char* bad : {"many", "-1", "12 MiB", "0x", "99999999999999999999999"}) {
    tree.attribute("region0", "size", bad);
    const auto devices = tree.read();
    REQUIRE(devices.regions.size() == 1);
    CHECK(!devices.regions.front().size);
    CHECK(devices.regions.front().available == 0);
    REQUIRE(devices.problems.size() == 1);
    CHECK(devices.problems.front() ==
          "/sys/bus/nd/devices/region0/size: \"" + std::string(bad) + "\" is no number");
  }
  tree.attribute("region0", "size", "0x40000000");
  CHECK(tree.read().regions.front().size == 1u << 30);
}

TEST_CASE("an attribute that cannot be read is named, and one that is not there is not", "[pmem]") {
  PmemTree tree;
  tree.region("region0", "0");
  const std::string size = tree.root() + PmemTree::on_bus("nd", "region0") + "/size";
  std::filesystem::remove(size);
  CHECK(tree.read().problems.empty());
  CHECK(!tree.read().regions.front().size);
  // reads of a directory fail also for root
  std::filesystem::create_directory(size);
  const auto devices = tree.read();
  REQUIRE(devices.problems.size() == 1);
  CHECK(devices.problems.front() == "/sys/bus/nd/devices/region0/size: Is a directory");
}

TEST_CASE("other names on the bus are no regions", "[pmem]") {
  PmemTree tree;
  for (const char* name : {"nmem0", "ndbus0", "region", "regionx", "region0.1", "btt0.0"}) {
    tree.write(PmemTree::on_bus("nd", name) + "/size", "1\n");
  }
  tree.write(PmemTree::on_bus("dax", "dax0") + "/size", "1\n");
  CHECK(tree.read().empty());
  CHECK(tree.read().problems.empty());
}

TEST_CASE("no bus means no persistent memory, and no sysfs means that nothing is known", "[pmem]") {
  PmemTree tree;
  std::filesystem::remove_all(tree.root() + "/sys/bus/nd");
  std::filesystem::remove_all(tree.root() + "/sys/bus/dax");
  CHECK(tree.read().empty());
  CHECK(tree.read().problems.empty());
  std::filesystem::remove_all(tree.root() + "/sys");
  CHECK(tree.read().problems ==
        std::vector<std::string>{"/sys/bus is not there: sysfs is not mounted"});
}

TEST_CASE("a directory that cannot be listed is named", "[pmem]") {
  PmemTree tree;
  std::filesystem::remove_all(tree.root() + "/sys/bus/nd/devices");
  tree.write("/sys/bus/nd/devices", "");
  CHECK(tree.read().problems == std::vector<std::string>{"/sys/bus/nd/devices: Not a directory"});
}

TEST_CASE("reading changes nothing", "[pmem]") {
  PmemTree tree;
  tree.region("region0", "1073741824");
  tree.name_space("region0", "namespace0.0", "memory", "pfn0.0");
  tree.block("pfn0.0", "pmem0", "259:0");
  const auto times = [&] {
    std::vector<std::pair<std::string, std::filesystem::file_time_type>> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(tree.root())) {
      all.emplace_back(entry.path(), std::filesystem::last_write_time(entry.path()));
    }
    std::ranges::sort(all);
    return all;
  };
  const auto before = times();
  (void)tree.read();
  CHECK(times() == before);
}

}  // namespace
