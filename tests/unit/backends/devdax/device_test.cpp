// SPDX-License-Identifier: BSD-3-Clause
#include "backends/devdax/device.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/temp.hpp"

namespace efs::devdax {
namespace {

constexpr std::uint64_t file_bytes = 4U << 20U;

std::string make_file(const test::TempDirectory& directory, std::uint64_t size) {
  const std::string path = directory.path() + "/device";
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(::ftruncate(fd.get(), static_cast<off_t>(size)) == 0);
  return path;
}

void write_text(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

/// A sysfs that says that /dev/null is a device of this bus.
std::string sysfs_of_null(const test::TempDirectory& directory, const std::string& bus) {
  struct stat st{};
  REQUIRE(::stat("/dev/null", &st) == 0);
  const std::string root = directory.path() + "/sys",
                    device = root + "/dev/char/" + std::to_string(::major(st.st_rdev)) + ":" +
                             std::to_string(::minor(st.st_rdev));
  std::filesystem::create_directories(device);
  std::filesystem::create_symlink("../../../bus/" + bus, device + "/subsystem");
  return root;
}

std::string device_directory(const std::string& root) {
  return std::filesystem::directory_iterator(root + "/dev/char")->path();
}

}  // namespace

TEST_CASE("a regular file stands for a device", "[devdax]") {
  const test::TempDirectory directory("/dev/shm");
  const auto path = make_file(directory, file_bytes + 100);
  {
    auto opened = open_device({.path = path});
    REQUIRE(opened);
    CHECK(opened->is_file);
    CHECK(opened->size == file_bytes);
    struct stat st{};
    REQUIRE(::stat(path.c_str(), &st) == 0);
    CHECK(static_cast<std::uint64_t>(st.st_blocks) * 512 >= file_bytes);  // no store finds it full
    const auto device = Device::map(std::move(*opened));
    REQUIRE(device);
    CHECK((*device)->bytes().size() == file_bytes);
    const std::vector<std::byte> data(100'000, std::byte{7});
    (*device)->store((*device)->bytes().data() + 1000, data);
    (*device)->bytes()[500'000] = std::byte{9};
    (*device)->flush((*device)->bytes().subspan(500'000, 1));
    (*device)->drain();
    (*device)->zero((*device)->bytes().subspan(2000, 500));
    REQUIRE((*device)->sync());
    const auto part = part_of(*device, 1000, 5000);
    CHECK(part->bytes().size() == 5000);
    CHECK(part->bytes()[0] == std::byte{7});
    part->store(part->bytes().data(), std::vector<std::byte>(1, std::byte{8}));
    part->drain();
  }
  auto opened = open_device({.path = path});
  REQUIRE(opened);
  const auto device = *Device::map(std::move(*opened));
  const auto bytes = device->bytes();
  CHECK(bytes[999] == std::byte{0});
  CHECK(bytes[1000] == std::byte{8});
  CHECK(bytes[1001] == std::byte{7});
  CHECK(std::ranges::all_of(bytes.subspan(2000, 500), [](auto b) { return b == std::byte{0}; }));
  CHECK(bytes[500'000] == std::byte{9});
}

TEST_CASE("a device is one instance's at a time, also after the descriptor moved", "[devdax]") {
  const test::TempDirectory directory("/dev/shm");
  const auto path = make_file(directory, file_bytes);
  auto opened = open_device({.path = path});
  REQUIRE(opened);
  const auto refused = open_device({.path = path});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == EBUSY);
  CHECK(refused.error().what.find(path) != std::string::npos);
  auto device = Device::map(std::move(*opened));
  REQUIRE(device);
  auto part = part_of(*device, 0, 4096);
  device->reset();
  CHECK(open_device({.path = path}).error().code == EBUSY);  // the part has it
  part.reset();
  CHECK(open_device({.path = path}));
}

TEST_CASE("the durability of a file in place of a device is that of its file system", "[devdax]") {
  const test::TempDirectory memory("/dev/shm"), disk("/tmp");
  const auto durability_in = [](const test::TempDirectory& directory) {
    auto opened = open_device({.path = make_file(directory, file_bytes)});
    REQUIRE(opened);
    return (*Device::map(std::move(*opened)))->durability();
  };
  const char* const forced = std::getenv("PMEM_IS_PMEM_FORCE");
  if (may_be_forced() && forced != nullptr && std::string(forced) == "1") {
    CHECK(durability_in(memory) == Durability::cache_line);
    return;
  }
  CHECK(durability_in(memory) == Durability::volatile_memory);
  CHECK(durability_in(disk) == probe_durability(disk.open().get(), [](const void*, std::size_t) {
                                 return 0;
                               }).durability());
}

TEST_CASE("size and alignment of a character device come from sysfs", "[devdax]") {
  const test::TempDirectory directory;
  const auto root = sysfs_of_null(directory, "dax");
  const auto open = [&] {
    return open_device({.path = "/dev/null", .sysfs = root});
  };
  const auto no_size = open();
  REQUIRE_FALSE(no_size);
  CHECK(no_size.error().code == ENODEV);
  CHECK(no_size.error().what.find("/size") != std::string::npos);
  write_text(device_directory(root) + "/size", "10485761\n");
  auto device = open();
  REQUIRE(device);
  CHECK_FALSE(device->is_file);
  CHECK(device->align == 2U << 20U);  // neither the device nor the region names it
  CHECK(device->size == 10U << 20U);
  device = fail(EBADF);
  write_text(device_directory(root) + "/dax_region/align", "4194304\n");
  device = open();
  REQUIRE(device);
  CHECK(device->align == 4U << 20U);
  CHECK(device->size == 8U << 20U);
  device = fail(EBADF);
  write_text(device_directory(root) + "/align", "4096\n");
  device = open();
  REQUIRE(device);
  CHECK(device->align == 4096);
  CHECK(device->size == 10U << 20U);
  const auto unmapped = Device::map(std::move(*device));  // /dev/null has no memory
  REQUIRE_FALSE(unmapped);
  CHECK(unmapped.error().what.find("cannot map the device /dev/null") != std::string::npos);
  write_text(device_directory(root) + "/size", "many\n");
  CHECK(open().error().code == ENODEV);
  write_text(device_directory(root) + "/size", "4096\n");
  CHECK(open().error().code == ENOSPC);
}

TEST_CASE("an object that is no DAX device is refused with its name", "[devdax]") {
  const test::TempDirectory directory;
  const auto refusal = [](const DeviceOptions& options) {
    const auto opened = open_device(options);
    REQUIRE_FALSE(opened);
    CHECK(opened.error().what.find(options.path) != std::string::npos);
    return opened.error().code;
  };
  CHECK(refusal({.path = "/dev/null", .sysfs = sysfs_of_null(directory, "mem")}) == ENODEV);
  CHECK(refusal({.path = directory.path() + "/none"}) == ENOENT);
  CHECK(refusal({.path = directory.path()}) == EISDIR);
  CHECK(refusal({.path = make_file(directory, 0)}) == ENOSPC);
  CHECK(refusal({.path = make_file(directory, 4096)}) == ENOSPC);
  const std::string fifo = directory.path() + "/fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(refusal({.path = fifo}) == ENODEV);
}

}  // namespace efs::devdax
