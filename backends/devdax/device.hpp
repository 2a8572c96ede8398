// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A device of persistent memory that is mapped whole: a character device of mode devdax, or a
// regular file in its place on machines without one.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/device_memory.hpp"
#include "base/durability.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace efs::devdax {

struct DeviceOptions {
  std::string path;  // "/dev/dax0.0", or a regular file
  std::string sysfs = "/sys";
};

/// An open and locked device that is not mapped yet: the supervisor opens it, and the worker maps
/// the descriptor. The lock lasts as long as a process has the descriptor.
struct OpenDevice {
  UniqueFd fd;
  std::string path;         // for texts
  bool is_file = false;     // a regular file in place of a device
  std::uint64_t size = 0;   // bytes, a multiple of `align`
  std::uint64_t align = 0;  // bytes
};

/// Opens and locks the device. Reads size and alignment from sysfs, because stat(2) of a character
/// device has neither. Allocates all of a regular file, so that no store meets a full file system.
/// Errors name the device and a remedy. EBUSY: another instance uses it; ENODEV: it is no device of
/// mode devdax; ENOSPC: too small, or the file cannot be allocated.
Result<OpenDevice> open_device(const DeviceOptions& options);

/// A mapped device. Thread-safe.
class Device final : public DeviceMemory {
 public:
  static Result<std::shared_ptr<Device>> map(OpenDevice device);
  ~Device() override;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  std::span<std::byte> bytes() override { return bytes_; }

  void store(std::byte* to, std::span<const std::byte> from) override;
  void flush(std::span<const std::byte> range) override;
  void drain() override;
  Status sync() override;

  /// Stores zeros, as store().
  void zero(std::span<std::byte> range);

  Durability durability() const { return durability_; }

  const std::string& path() const { return device_.path; }

  std::uint64_t align() const { return device_.align; }

 private:
  Device(OpenDevice device, std::span<std::byte> bytes, Durability durability)
      : device_(std::move(device)), bytes_(bytes), durability_(durability) {}

  const OpenDevice device_;
  const std::span<std::byte> bytes_;
  const Durability durability_;
};

/// A part of a device, which it keeps mapped. `offset` and `length` lie within the device.
std::unique_ptr<DeviceMemory> part_of(std::shared_ptr<Device> device, std::uint64_t offset,
                                      std::uint64_t length);

}  // namespace efs::devdax
