// SPDX-License-Identifier: BSD-3-Clause
// Limits of control groups on simulated machines: version 1, version 2, both, and mounts that hide
// them.
#include "base/memory_bound.hpp"

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/mount_table.hpp"
#include "support/temp.hpp"

using namespace efs;

namespace {

constexpr std::uint64_t mib = 1U << 20U;

// A directory that simulates the root of a machine with 8 GiB available.
class Machine {
 public:
  Machine() {
    put("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable:    8388608 kB\nShmem: 0 kB\n");
  }

  void put(const std::string& file, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_.path() + file).parent_path());
    std::ofstream(root_.path() + file) << text;
  }

  void is_in(const std::string& groups) { put("/proc/self/cgroup", groups); }

  // Adds one line: ROOT POINT TYPE OPTIONS.
  void mounts(const std::string& root, const std::string& point, const std::string& type,
              const std::string& options = "rw") {
    table_ += "40 30 0:35 " + root + " " + point + " rw,relatime shared:9 - " + type + " source " +
              options + "\n";
    put("/proc/self/mountinfo", table_);
  }

  void second(const std::string& group, const std::string& max, std::uint64_t used = 0,
              std::uint64_t inactive = 0) {
    put(group + "/memory.max", max + "\n");
    put(group + "/memory.current", std::to_string(used) + "\n");
    put(group + "/memory.stat",
        "anon 5\ninactive_file " + std::to_string(inactive) + "\nactive_file 7\n");
  }

  void first(const std::string& group, const std::string& limit, std::uint64_t used = 0,
             std::uint64_t inactive = 0, const std::string& of_all = "9223372036854771712") {
    put(group + "/memory.limit_in_bytes", limit + "\n");
    put(group + "/memory.usage_in_bytes", std::to_string(used) + "\n");
    put(group + "/memory.use_hierarchy", "1\n");
    put(group + "/memory.stat", "inactive_file 1\nhierarchical_memory_limit " + of_all +
                                    "\ntotal_inactive_file " + std::to_string(inactive) + "\n");
  }

  std::uint64_t bound() const { return memory_bound(std::nullopt, root_.path()).bytes; }

  std::string source() const {
    return memory_bound(std::nullopt, root_.path()).source.substr(root_.path().size());
  }

  const std::string& root() const { return root_.path(); }

 private:
  test::TempDirectory root_;
  std::string table_;
};

constexpr const char* none = "9223372036854771712";  // version 1 writes this for "no limit"

}  // namespace

TEST_CASE("without control groups the machine's memory is the bound", "[bound]") {
  Machine machine;
  CHECK(machine.bound() == 8192 * mib);
  CHECK(machine.source() == "/proc/meminfo");
  CHECK(memory_bound(100 * mib, machine.root()).bytes == 100 * mib);
  CHECK(memory_bound(9000 * mib, machine.root()).bytes == 8192 * mib);
  machine.put("/proc/meminfo", "no memory\n");
  CHECK(machine.bound() == 0);
}

TEST_CASE("version 2: the least of the group and its ancestors, less what each uses", "[bound]") {
  Machine machine;
  machine.mounts("/", "/sys/fs/cgroup", "cgroup2");
  machine.is_in("0::/slurm/job_7\n");
  machine.second("/sys/fs/cgroup/slurm/job_7", "max");
  machine.second("/sys/fs/cgroup/slurm", "max");
  CHECK(machine.bound() == 8192 * mib);
  machine.second("/sys/fs/cgroup/slurm/job_7", std::to_string(512 * mib), 200 * mib);
  CHECK(machine.bound() == 312 * mib);
  CHECK(machine.source() == "/sys/fs/cgroup/slurm/job_7/memory.max");
  machine.second("/sys/fs/cgroup/slurm/job_7", std::to_string(512 * mib), 200 * mib, 50 * mib);
  // memory that the kernel can drop first does not count as used
  CHECK(machine.bound() == 362 * mib);
  machine.put("/sys/fs/cgroup/slurm/job_7/memory.high", std::to_string(400 * mib) + "\n");
  CHECK(machine.bound() == 250 * mib);
  machine.second("/sys/fs/cgroup/slurm", std::to_string(1024 * mib), 900 * mib);
  CHECK(machine.bound() == 124 * mib);
  CHECK(machine.source() == "/sys/fs/cgroup/slurm/memory.max");
  machine.second("/sys/fs/cgroup/slurm", std::to_string(1024 * mib), 2000 * mib);
  CHECK(machine.bound() == 0);
}

TEST_CASE("version 1: where the controller is mounted, and limits that are not visible",
          "[bound]") {
  Machine machine;
  machine.mounts("/", "/sys/fs/cgroup/cpu", "cgroup", "rw,cpu");
  machine.mounts("/", "/cg\\040roups/memory", "cgroup", "rw,memory");
  machine.is_in("4:memory:/a/b\n3:cpu:/c\n");
  machine.first("/cg roups/memory/a/b", none);
  machine.first("/cg roups/memory/a", none);
  CHECK(machine.bound() == 8192 * mib);
  machine.first("/cg roups/memory/a/b", std::to_string(512 * mib), 100 * mib, 30 * mib);
  CHECK(machine.bound() == 442 * mib);
  machine.first("/cg roups/memory/a", std::to_string(300 * mib), 20 * mib);
  CHECK(machine.bound() == 280 * mib);
  // without hierarchy the group counts only its own processes
  machine.put("/cg roups/memory/a/memory.use_hierarchy", "0\n");
  CHECK(machine.bound() == 442 * mib);
  machine.first("/cg roups/memory/a/b", none, 10 * mib, 0, std::to_string(200 * mib));
  CHECK(machine.bound() == 190 * mib);
}

TEST_CASE("version 1 and version 2 side by side", "[bound]") {
  Machine machine;
  machine.mounts("/", "/sys/fs/cgroup/memory", "cgroup", "rw,memory");
  machine.mounts("/", "/sys/fs/cgroup/unified", "cgroup2");
  machine.is_in("4:memory:/job\n1:name=systemd:/user\n0::/user\n");
  machine.first("/sys/fs/cgroup/memory/job", std::to_string(512 * mib), 12 * mib);
  machine.put("/sys/fs/cgroup/unified/user/cgroup.procs", "");
  CHECK(machine.bound() == 500 * mib);
  CHECK(control_groups("memory", machine.root()).size() == 4);
  CHECK(control_groups("cpu", machine.root()).size() == 2);
}

TEST_CASE("a group in another namespace: the nearest that is visible counts", "[bound]") {
  Machine machine;
  SECTION("a container sees its own group as the root of the mount") {
    machine.mounts("/docker/x", "/sys/fs/cgroup", "cgroup2");
    machine.is_in("0::/docker/x/inner\n");
    machine.second("/sys/fs/cgroup/inner", "max");
    machine.second("/sys/fs/cgroup", std::to_string(512 * mib));
    CHECK(machine.bound() == 512 * mib);
  }
  SECTION("the path is not below what is mounted") {
    machine.mounts("/docker/x", "/sys/fs/cgroup/memory", "cgroup", "rw,memory");
    machine.is_in("4:memory:/docker/xy\n");
    machine.first("/sys/fs/cgroup/memory", std::to_string(512 * mib));
    CHECK(machine.bound() == 512 * mib);
  }
  SECTION("the process is outside of the namespace's root") {
    machine.mounts("/", "/sys/fs/cgroup", "cgroup2");
    machine.is_in("0::/../other\n");
    machine.second("/sys/fs/cgroup", std::to_string(512 * mib));
    machine.second("/sys/fs/other", std::to_string(1 * mib));
    CHECK(machine.bound() == 512 * mib);
  }
  SECTION("the mount was made outside of the namespace") {
    machine.mounts("/../..", "/sys/fs/cgroup", "cgroup2");
    machine.is_in("0::/\n");
    machine.second("/sys/fs/cgroup", std::to_string(512 * mib));
    CHECK(machine.bound() == 512 * mib);
  }
  SECTION("the directory of the group is not there") {
    machine.mounts("/", "/sys/fs/cgroup", "cgroup2");
    machine.is_in("0::/a/b/c\n");
    machine.second("/sys/fs/cgroup/a", std::to_string(512 * mib));
    CHECK(machine.bound() == 512 * mib);
  }
  SECTION("of several mounts the one that shows most counts") {
    machine.mounts("/elsewhere", "/one", "cgroup2");
    machine.mounts("/a/b", "/two", "cgroup2");
    machine.mounts("/", "/three", "cgroup2");
    machine.is_in("0::/a/b\n");
    machine.second("/two", "max");
    machine.second("/three/a/b", "max");
    machine.second("/three/a", std::to_string(512 * mib));
    CHECK(machine.bound() == 512 * mib);
  }
}

TEST_CASE("what is no number limits nothing", "[bound]") {
  Machine machine;
  machine.mounts("/", "/sys/fs/cgroup", "cgroup2");
  machine.is_in("0::/a\nno colon\n:::\n7\n");
  for (const char* text : {"", "max", "lots", "-1", "99999999999999999999999", "0x10"}) {
    INFO(text);
    machine.put("/sys/fs/cgroup/a/memory.max", text);
    CHECK(machine.bound() == 8192 * mib);
  }
  machine.put("/sys/fs/cgroup/a/memory.max", std::to_string(512 * mib));
  machine.put("/sys/fs/cgroup/a/memory.current", "?");
  machine.put("/sys/fs/cgroup/a/memory.stat", "inactive_file\ninactive_file many\n\n");
  CHECK(machine.bound() == 512 * mib);
  machine.put("/proc/self/mountinfo", "40 30\n- -\n\n40 30 0:35 / /\\0x \\9 - cgroup2\n");
  CHECK(machine.bound() == 8192 * mib);
}

TEST_CASE("this machine's own files can be read", "[bound]") {
  const auto bound = memory_bound();
  CHECK(bound.bytes > 0);
  CHECK_FALSE(bound.source.empty());
  CHECK(unpromised_memory() > 0);
}
