// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The memory of a device that can lose power at each of its events.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "base/device_memory.hpp"

namespace efs::test {

/// A store is visible at once, and durable once drained. Not thread-safe.
class LoggedDevice final : public DeviceMemory {
 public:
  explicit LoggedDevice(std::vector<std::byte> image)
      : memory_(std::move(image)), first_image_(memory_) {}

  explicit LoggedDevice(std::uint64_t size) : LoggedDevice(std::vector<std::byte>(size)) {}

  std::span<std::byte> bytes() override { return memory_; }

  void store(std::byte* to, std::span<const std::byte> from) override {
    std::memcpy(to, from.data(), from.size());
    events_.push_back({.at = static_cast<std::uint64_t>(to - memory_.data()),
                       .bytes = {from.begin(), from.end()}});
  }

  void flush(std::span<const std::byte> range) override {
    events_.push_back({.at = static_cast<std::uint64_t>(range.data() - memory_.data()),
                       .bytes = {range.begin(), range.end()}});
  }

  void drain() override { events_.push_back({.at = 0, .bytes = {}}); }

  Status sync() override { return {}; }

  /// Stores and drains so far.
  std::size_t events() const { return events_.size(); }

  /// The content after power loss behind the first `events`: all that was drained, and of the
  /// stores since then some words of 8 bytes.
  std::vector<std::byte> after_power_loss(std::size_t events, std::mt19937_64& random) const {
    std::vector<std::byte> image = first_image_;
    std::size_t drained = 0;
    for (std::size_t i = 0; i < events; ++i) {
      drained = events_[i].bytes.empty() ? i : drained;
    }
    for (std::size_t i = 0; i < events; ++i) {
      const auto& [at, bytes] = events_[i];
      for (std::size_t word = 0; word < bytes.size(); word += 8) {
        if (i < drained || random() % 2 == 0) {
          const std::size_t part = std::min<std::size_t>(8, bytes.size() - word);
          std::memcpy(image.data() + at + word, bytes.data() + word, part);
        }
      }
    }
    return image;
  }

 private:
  struct Event {
    std::uint64_t at = 0;
    std::vector<std::byte> bytes;  // none: a drain
  };

  std::vector<std::byte> memory_;
  const std::vector<std::byte> first_image_;
  std::vector<Event> events_;
};

}  // namespace efs::test
