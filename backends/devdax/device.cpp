// SPDX-License-Identifier: BSD-3-Clause
#include "backends/devdax/device.hpp"

#include <fcntl.h>
#include <libpmem.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <climits>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

#include "base/file_lock.hpp"
#include "base/shared_mapping.hpp"

namespace efs::devdax {
namespace {

constexpr std::uint64_t file_align = 4096, smallest = 1U << 20U;

std::optional<std::uint64_t> number_in(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 32> text{};
  const ssize_t length = fd ? ::read(fd.get(), text.data(), text.size()) : -1;
  if (length <= 0) {
    return std::nullopt;
  }
  std::uint64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + length, number);
  const bool whole = end == text.data() + length || *end == '\n';
  return problem == std::errc{} && whole ? std::optional(number) : std::nullopt;
}

// The name of the device's bus: the last component of a symbolic link.
std::string subsystem_of(const std::string& directory) {
  std::array<char, PATH_MAX> target{};
  const ssize_t length =
      ::readlink((directory + "/subsystem").c_str(), target.data(), target.size());
  const std::string_view path(target.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  return std::string(path.substr(path.rfind('/') + 1));
}

Status read_sysfs(const struct stat& st, const std::string& sysfs, OpenDevice& device) {
  const std::string directory = sysfs + "/dev/char/" + std::to_string(::major(st.st_rdev)) + ":" +
                                std::to_string(::minor(st.st_rdev));
  if (subsystem_of(directory) != "dax") {
    return fail(ENODEV, device.path +
                            " is not a DAX device. List the devices of mode devdax by: ndctl list "
                            "--namespaces --mode=devdax");
  }
  const auto size = number_in(directory + "/size");
  if (!size) {
    return fail(ENODEV, "cannot read the size of " + device.path + " from " + directory +
                            "/size. Mount sysfs at " + sysfs);
  }
  std::optional<std::uint64_t> align;
  // since Linux 5.10 it is the device's, before that its region's
  for (const char* name : {"/align", "/dax_region/align", "/device/dax_region/align"}) {
    align = align ? align : number_in(directory + name);
  }
  device.align = align.value_or(0) != 0 ? *align : 2U << 20U;
  device.size = *size / device.align * device.align;
  return {};
}

Status prepare_file(const struct stat& st, OpenDevice& device) {
  device.is_file = true;
  device.align = file_align;
  device.size = static_cast<std::uint64_t>(st.st_size) / file_align * file_align;
  if (device.size == 0) {
    return {};
  }
  const int problem = ::posix_fallocate(device.fd.get(), 0, static_cast<off_t>(device.size));
  if (problem != 0) {
    errno = problem;
    return fail_errno("cannot allocate " + std::to_string(device.size) + " bytes for " +
                      device.path + ", which is a regular file in place of a device");
  }
  return {};
}

Durability durability_of(const OpenDevice& device, const SharedMapping& mapping) {
  struct statfs fs{};
  if (is_persistent(mapping, device.size, ::pmem_is_pmem)) {
    return Durability::cache_line;
  }
  const bool is_memory =
      !device.is_file || (::fstatfs(device.fd.get(), &fs) == 0 &&
                          (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC));
  return is_memory ? Durability::volatile_memory : Durability::page;
}

class Part final : public DeviceMemory {
 public:
  Part(std::shared_ptr<Device> device, std::span<std::byte> bytes)
      : device_(std::move(device)), bytes_(bytes) {}

  std::span<std::byte> bytes() override { return bytes_; }

  void store(std::byte* to, std::span<const std::byte> from) override { device_->store(to, from); }

  void flush(std::span<const std::byte> range) override { device_->flush(range); }

  void drain() override { device_->drain(); }

  Status sync() override { return device_->sync(); }

 private:
  const std::shared_ptr<Device> device_;
  const std::span<std::byte> bytes_;
};

}  // namespace

Result<OpenDevice> open_device(const DeviceOptions& options) {
  OpenDevice device;
  device.path = options.path;
  device.fd.reset(::open(options.path.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!device.fd) {
    return fail_errno(
        "cannot open the device " + options.path +
        (errno == ENOENT ? " (ndctl list --namespaces --mode=devdax has the names)" : ""));
  }
  struct stat st{};
  if (::fstat(device.fd.get(), &st) != 0) {
    return fail_errno(options.path);
  }
  if (!S_ISCHR(st.st_mode) && !S_ISREG(st.st_mode)) {
    return fail(ENODEV, options.path +
                            " is neither a character device nor a regular file. A block device "
                            "(fsdax) needs a file system and the type NVRAM-NVML");
  }
  if (!lock_soon(device.fd)) {
    return fail(EBUSY, "another instance uses the device " + options.path +
                           ". List the instances by: efs status");
  }
  EFS_TRY(S_ISCHR(st.st_mode) ? read_sysfs(st, options.sysfs, device) : prepare_file(st, device));
  if (device.size < smallest) {
    return fail(ENOSPC, "the device " + options.path + " has " + std::to_string(device.size) +
                            " bytes. It needs " + std::to_string(smallest) + " at least");
  }
  return device;
}

Result<std::shared_ptr<Device>> Device::map(OpenDevice device) {
  const SharedMapping mapping = map_shared(device.fd.get(), device.size, 0);
  if (mapping.address == nullptr) {
    return fail_errno("cannot map the device " + device.path + " of " +
                      std::to_string(device.size) + " bytes");
  }
  const std::span<std::byte> bytes(static_cast<std::byte*>(mapping.address), device.size);
  const Durability durability = durability_of(device, mapping);
  std::unique_ptr<Device> made;
  try {
    made.reset(new Device(std::move(device), bytes, durability));
  } catch (const std::bad_alloc&) {  // no other code has the mapping
    ::munmap(bytes.data(), bytes.size());
    throw;
  }
  return std::shared_ptr<Device>(std::move(made));
}

Device::~Device() {
  ::munmap(bytes_.data(), bytes_.size());
}

void Device::store(std::byte* to, std::span<const std::byte> from) {
  pmem_memcpy(to, from.data(), from.size(), PMEM_F_MEM_NODRAIN);
}

void Device::flush(std::span<const std::byte> range) {
  pmem_flush(range.data(), range.size());
}

void Device::drain() {
  pmem_drain();
}

void Device::zero(std::span<std::byte> range) {
  pmem_memset(range.data(), 0, range.size(), PMEM_F_MEM_NODRAIN);
}

Status Device::sync() {
  pmem_drain();
  if (durability_ != Durability::page) {
    return {};
  }
  return ::fdatasync(device_.fd.get()) == 0 ? Status{} : fail_errno(device_.path);
}

std::unique_ptr<DeviceMemory> part_of(std::shared_ptr<Device> device, std::uint64_t offset,
                                      std::uint64_t length) {
  const auto bytes = device->bytes().subspan(offset, length);
  return std::make_unique<Part>(std::move(device), bytes);
}

}  // namespace efs::devdax
