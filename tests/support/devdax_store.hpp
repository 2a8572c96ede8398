// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A devdax backend on a file in place of a device, and a log in memory in place of the journal.

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/devdax/devdax.hpp"
#include "base/extents.hpp"

namespace efs::test {

/// Keeps the last state of each container, as a replay of its records would give it.
class MemoryLog final : public devdax::ExtentLog {
 public:
  Result<std::uint64_t> changed(const devdax::ContentChange& change) override {
    const std::lock_guard lock(mutex_);
    if (failure != 0) {
      return fail(failure);
    }
    if (on_change) {
      on_change(change);
    }
    State& state = states_[change.id];
    Extents with;
    for (const auto& extent : change.extents) {
      with.map(extent);
    }
    state.map.split(change.begin);
    state.map.split(change.end);
    state.map.replace(change.begin, change.end, std::move(with));
    state.last = change;
    CHECK(state.map.physical() == change.physical);
    most_extents = std::max(most_extents, change.extents.size());
    return ++position_;
  }

  void touched(std::uint64_t id) override {
    const std::lock_guard lock(mutex_);
    touched_.push_back(id);
  }

  std::uint64_t durable() override {
    const std::lock_guard lock(mutex_);
    return held_at.value_or(position_);
  }

  /// The record of the container's removal.
  void removed(std::uint64_t id) {
    const std::lock_guard lock(mutex_);
    states_.erase(id);
  }

  /// For a rebuild.
  std::vector<devdax::StoredContent> contents() {
    const std::lock_guard lock(mutex_);
    std::vector<devdax::StoredContent> all;
    for (const auto& [id, state] : states_) {
      all.push_back({.id = id,
                     .size = state.last.size,
                     .atime = state.last.atime,
                     .mtime = state.last.mtime,
                     .ctime = state.last.ctime,
                     .extents = state.map.within(0, UINT64_MAX)});
    }
    return all;
  }

  std::uint64_t position() {
    const std::lock_guard lock(mutex_);
    return position_;
  }

  std::size_t touches() {
    const std::lock_guard lock(mutex_);
    return touched_.size();
  }

  // Change these while no thread uses the backend.
  int failure = 0;                       // errno of the next changes
  std::optional<std::uint64_t> held_at;  // records behind it are not durable
  std::function<void(const devdax::ContentChange&)> on_change;
  std::size_t most_extents = 0;

 private:
  struct State {
    Extents map;
    devdax::ContentChange last;
  };

  std::mutex mutex_;
  std::map<std::uint64_t, State> states_;
  std::vector<std::uint64_t> touched_;
  std::uint64_t position_ = 0;
};

struct DevdaxStoreOptions {
  std::uint64_t capacity = 8U << 20U;  // bytes of the data range, a multiple of block
  std::uint64_t block = 32U << 10U;
  bool zero_before_use = false;
  std::shared_ptr<MemoryLog> log;               // null: a new one
  std::vector<devdax::StoredContent> contents;  // of the former backend
  std::vector<devdax::DeviceRange> unreadable;
};

struct DevdaxStore {
  std::shared_ptr<devdax::Device> device;
  std::shared_ptr<MemoryLog> log;
  devdax::Superblock superblock;
  std::unique_ptr<devdax::Devdax> backend;
};

/// Opens the device, or makes and formats a file that has this data range. Its former backend is
/// gone.
inline DevdaxStore make_devdax_store(const std::string& path, DevdaxStoreOptions options) {
  const std::uint64_t metadata = 64U << 10U;
  const std::uint64_t size =
      devdax::round_up(devdax::metadata_begin + metadata, options.block) + options.capacity;
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(::ftruncate(fd.get(), static_cast<off_t>(size)) == 0);
  DevdaxStore store;
  auto opened = devdax::open_device({.path = path});
  REQUIRE(opened);
  auto mapped = devdax::Device::map(std::move(*opened));
  REQUIRE(mapped);
  store.device = *mapped;
  const auto found = devdax::read_superblock(*store.device, ::getuid());
  if (found.content == devdax::Content::own) {
    store.superblock = *found.superblock;
  } else {
    const auto made = devdax::format(
        *store.device, found,
        {.owner = ::getuid(), .block = options.block, .metadata = metadata, .align = 4096});
    REQUIRE(made);
    store.superblock = *made;
  }
  REQUIRE(store.superblock.data.bytes() == options.capacity);
  store.superblock.zero_before_use = options.zero_before_use;
  store.log = options.log ? options.log : std::make_shared<MemoryLog>();
  auto backend = devdax::make_devdax({.device = store.device,
                                      .superblock = store.superblock,
                                      .log = store.log,
                                      .contents = std::move(options.contents),
                                      .unreadable = std::move(options.unreadable)});
  REQUIRE(backend);
  store.backend = std::move(*backend);
  return store;
}

}  // namespace efs::test
