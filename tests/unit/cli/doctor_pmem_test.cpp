// SPDX-License-Identifier: BSD-3-Clause
// efs doctor --pmem: the commands for each state of persistent memory.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>

#include "cli/doctor.hpp"
#include "support/pmem_tree.hpp"

namespace {

using namespace efs;
using namespace efs::cli;
using test::PmemTree;

Findings of(const Findings& all, const std::string& what) {
  Findings found;
  std::ranges::copy_if(all, std::back_inserter(found),
                       [&](const Finding& one) { return one.what == what; });
  return found;
}

Finding one_of(const Findings& all, const std::string& what) {
  const Findings found = of(all, what);
  REQUIRE(found.size() == 1);
  return found.front();
}

// A region whose only namespace is in this mode of the kernel, with a block device.
void add_block_namespace(PmemTree& tree, const std::string& mode, const std::string& holder,
                         const std::string& block) {
  tree.region("region0", "0");
  tree.name_space("region0", "namespace0.0", mode, holder);
  tree.block(holder.empty() ? "namespace0.0" : holder, block, "259:0");
}

constexpr const char* make_pmem0 =
    "mkfs.ext4 -E stride=512 /dev/pmem0 (or mkfs.xfs -m reflink=0 -d su=2m,sw=1 /dev/pmem0) && "
    "mkdir -p /mnt/pmem0 && mount -o dax /dev/pmem0 /mnt/pmem0";

TEST_CASE("a node without persistent memory is told what works instead", "[pmem]") {
  const auto found = judge_pmem(PmemTree().read());
  const auto finding = one_of(found, "persistent memory");
  CHECK(finding.level == Level::warning);
  CHECK(finding.text.starts_with("none"));
  CHECK(finding.advice.contains("DRAM"));
  CHECK(finding.advice.contains("SSD"));
  CHECK(one_of(found, "type DRAM").level == Level::ok);
  CHECK(one_of(found, "type NVRAM-NVML").level == Level::warning);
  CHECK(one_of(found, "type NVRAM-NVML").advice.contains("page cache"));
  CHECK(one_of(found, "type NVRAM-DEVDAX").text.starts_with("not supported"));
  CHECK(std::ranges::none_of(found, [](const Finding& f) { return f.level == Level::problem; }));
}

TEST_CASE("free space of a region becomes a namespace", "[pmem]") {
  PmemTree tree;
  tree.region("region0", "1073741824");
  const auto found = of(judge_pmem(tree.read()), "region0");
  REQUIRE(found.size() == 2);
  CHECK(found[0].text == "1 GiB, by ACPI.NFIT, persistence domain memory_controller");
  CHECK(found[1].text == "1 GiB without namespace");
  CHECK(found[1].advice.starts_with(
      "ndctl create-namespace --region=region0 --mode=fsdax --align=2M"));
}

TEST_CASE("a region with neither space nor namespaces is told", "[pmem]") {
  PmemTree tree;
  tree.region("region0", "0");
  const auto found = of(judge_pmem(tree.read()), "region0");
  REQUIRE(found.size() == 2);
  CHECK(found[1].level == Level::warning);
  CHECK(found[1].advice.contains("ndctl enable-region region0"));
}

TEST_CASE("fsdax with DAX is a backend", "[pmem]") {
  PmemTree tree;
  add_block_namespace(tree, "memory", "pfn0.0", "pmem0");
  tree.mount("259:0", "/mnt/pmem", "ext4", "/dev/pmem0", "rw,dax=always");
  const auto found = judge_pmem(tree.read({.maps_persistent = true}));
  const auto one = one_of(found, "namespace0.0");
  CHECK(one.level == Level::ok);
  CHECK(one.text ==
        "fsdax, 1006 MiB, alignment 2 MiB, /dev/pmem0, ext4 on /mnt/pmem with -o dax, persistent "
        "memory: real DAX, made durable by flushes of the CPU's caches");
  CHECK(one.advice ==
        "in the job file: type: NVRAM-NVML, daxfs: a directory below /mnt/pmem, require-dax: true");
  CHECK(one_of(found, "type NVRAM-NVML").level == Level::ok);
  CHECK(one_of(found, "type NVRAM-NVML").text.ends_with("/mnt/pmem"));
}

TEST_CASE("ext4 that is mounted without dax is to be mounted anew", "[pmem]") {
  PmemTree tree;
  add_block_namespace(tree, "memory", "pfn0.0", "pmem0");
  tree.mount("259:0", "/mnt/a\\040b", "ext4", "/dev/pmem0", "rw");
  const auto found = judge_pmem(tree.read());
  const auto one = one_of(found, "namespace0.0");
  CHECK(one.level == Level::warning);
  CHECK(one.text.contains("without -o dax, page cache: durable by fsync or msync"));
  CHECK(one.advice.starts_with("umount '/mnt/a b' && mount -o dax /dev/pmem0 '/mnt/a b'"));
  CHECK(one_of(found, "type NVRAM-NVML").level == Level::warning);
}

TEST_CASE("a mount is judged by its probe, not by its options", "[pmem]") {
  PmemTree tree;
  add_block_namespace(tree, "memory", "pfn0.0", "pmem0");
  tree.mount("259:0", "/mnt/pmem", "xfs", "/dev/pmem0", "rw,dax=always");
  const auto page = one_of(judge_pmem(tree.read()), "namespace0.0");
  CHECK(page.level == Level::warning);
  CHECK(page.text.ends_with("xfs on /mnt/pmem with -o dax, page cache: durable by fsync or msync"));
  const auto unknown = one_of(judge_pmem(tree.read({.problem = EACCES})), "namespace0.0");
  CHECK(unknown.level == Level::warning);
  CHECK(unknown.text.ends_with("MAP_SYNC not probed (Permission denied)"));
  CHECK(unknown.advice.contains("require-dax: true"));
}

TEST_CASE("a file system that has no DAX is named", "[pmem]") {
  PmemTree tree;
  add_block_namespace(tree, "memory", "pfn0.0", "pmem0");
  tree.mount("0:44", "/mnt/b", "btrfs", "/dev/pmem0", "rw");
  CHECK(one_of(judge_pmem(tree.read()), "namespace0.0").advice == "DAX needs ext4 or XFS");
}

TEST_CASE("fsdax without a mount is mounted, and made only if it is empty", "[pmem]") {
  PmemTree tree;
  add_block_namespace(tree, "memory", "pfn0.0", "pmem0");
  const auto advice = [&] {
    return one_of(judge_pmem(tree.read()), "namespace0.0").advice;
  };
  const std::string make = make_pmem0;
  CHECK(advice() == "if nothing is on it: " + make);
  for (const char* type : {"ext4", "xfs"}) {
    tree.content("259:0", type);
    CHECK(advice() == "mkdir -p /mnt/pmem0 && mount -o dax /dev/pmem0 /mnt/pmem0");
  }
  tree.content("259:0", "LVM2_member");
  CHECK(advice() == "if its data may go: " + make);
}

TEST_CASE("a namespace whose device is missing is disabled", "[pmem]") {
  PmemTree tree;
  tree.region("region0", "0");
  tree.name_space("region0", "namespace0.0", "memory", "pfn0.0");
  tree.name_space("region0", "namespace0.1", "dax", "dax0.1");
  // a disabled namespace has no claim, and its mode is raw whatever it was
  tree.name_space("region0", "namespace0.2", "raw", "");
  const auto found = judge_pmem(tree.read());
  for (const std::string name : {"namespace0.0", "namespace0.1", "namespace0.2"}) {
    CHECK(one_of(found, name).text.ends_with("the namespace is disabled"));
    CHECK(one_of(found, name).advice ==
          "ndctl enable-namespace " + name + "; then efs doctor --pmem shows its mode");
  }
}

TEST_CASE("an alignment below 2 MiB is told", "[pmem]") {
  PmemTree tree;
  add_block_namespace(tree, "memory", "pfn0.0", "pmem0");
  tree.attribute("pfn0.0", "align", "4096");
  CHECK(one_of(judge_pmem(tree.read()), "namespace0.0")
            .text.contains("alignment 4 KiB (too small for mappings of 2 MiB)"));
}

TEST_CASE("raw and sector have no DAX, and their data are not lost by surprise", "[pmem]") {
  for (const char* mode : {"raw", "safe"}) {
    PmemTree tree;
    add_block_namespace(tree, mode, mode == std::string("raw") ? "" : "btt0.0", "pmem0s");
    const auto unused = one_of(judge_pmem(tree.read()), "namespace0.0");
    CHECK(unused.level == Level::warning);
    CHECK(unused.text.contains("without DAX"));
    CHECK(unused.advice ==
          "for DAX: ndctl create-namespace --force --reconfig=namespace0.0 --mode=fsdax --align=2M "
          "(erases the namespace)");
    tree.mount("259:0", "/scratch", "xfs", "/dev/pmem0s", "rw");
    const auto used = one_of(judge_pmem(tree.read()), "namespace0.0");
    CHECK(used.text.contains("xfs on /scratch"));
    CHECK(used.advice.starts_with(
        "for DAX: copy its data away, then umount /scratch && ndctl create-namespace --force"));
  }
}

TEST_CASE("no backend of this version takes a DAX device", "[pmem]") {
  PmemTree tree;
  tree.region("region1", "0");
  tree.name_space("region1", "namespace1.0", "dax", "dax1.0");
  tree.character("region1", "dax1.0", "dax1.0", "device_dax");
  const auto one = one_of(judge_pmem(tree.read()), "namespace1.0");
  CHECK(one.level == Level::warning);
  CHECK(one.text ==
        "devdax, 1006 MiB, alignment 2 MiB, /dev/dax1.0 (1006 MiB, alignment 2 MiB): this version "
        "of efs has no backend for a DAX device (NVRAM-DEVDAX)");
  CHECK(one.advice.contains("--reconfig=namespace1.0 --mode=fsdax"));
}

TEST_CASE("a DAX device that is memory of the system serves type DRAM", "[pmem]") {
  PmemTree tree;
  tree.region("region1", "0");
  tree.name_space("region1", "namespace1.0", "dax", "dax1.0");
  tree.character("region1", "dax1.0", "dax1.0", "kmem");
  tree.lone_character("dax4.0", "kmem");
  tree.lone_character("dax5.0", "device_dax");
  const auto found = judge_pmem(tree.read());
  for (const char* what : {"namespace1.0", "dax4.0"}) {
    CHECK(one_of(found, what).level == Level::ok);
    CHECK(one_of(found, what).text.contains("type DRAM"));
  }
  CHECK(one_of(found, "dax5.0").advice.ends_with("--mode=system-ram dax5.0"));
}

TEST_CASE("memory that power loss empties is not passed for persistent", "[pmem]") {
  PmemTree tree;
  tree.provider("e820");
  tree.region("region0", "1073741824");
  const auto e820 = of(judge_pmem(tree.read()), "region0").front();
  CHECK(e820.level == Level::warning);
  CHECK(e820.text.contains("memmap="));
  tree.attribute("region0", "devtype", "nd_volatile");
  CHECK(of(judge_pmem(tree.read()), "region0").front().text.contains("lost at power loss"));
}

TEST_CASE("several regions are judged each", "[pmem]") {
  PmemTree tree;
  add_block_namespace(tree, "memory", "pfn0.0", "pmem0");
  tree.mount("259:0", "/mnt/pmem", "xfs", "/dev/pmem0", "rw,dax=always");
  tree.region("region1", "0");
  tree.name_space("region1", "namespace1.0", "dax", "dax1.0");
  tree.character("region1", "dax1.0", "dax1.0", "device_dax");
  tree.region("region2", "1073741824");
  const auto found = judge_pmem(tree.read({.maps_persistent = true}));
  CHECK(one_of(found, "namespace0.0").level == Level::ok);
  CHECK(one_of(found, "namespace1.0").level == Level::warning);
  CHECK(of(found, "region2").size() == 2);
  CHECK(of(found, "persistent memory").empty());
}

TEST_CASE("unreadable and malformed attributes are warnings, not the end", "[pmem]") {
  PmemTree tree;
  tree.region("region0", "much");
  tree.name_space("region0", "namespace0.0", "later", "");
  tree.attribute("namespace0.0", "size", "big");
  const auto found = judge_pmem(tree.read());
  CHECK(of(found, "sysfs").size() == 2);
  for (const auto& problem : of(found, "sysfs")) {
    CHECK(problem.level == Level::warning);
    CHECK(problem.text.contains("is no number"));
  }
  CHECK(one_of(found, "namespace0.0").text.starts_with("later, size unknown"));
  CHECK(of(found, "persistent memory").empty());
}

}  // namespace
