// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The journal's medium on a simulated machine that can lose power.

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "store/medium.hpp"
#include "support/failing_new.hpp"
#include "support/sim_world.hpp"

namespace efs::test {

class SimFile final : public store::MediumFile {
 public:
  SimFile(SimWorld& world, SimWorld::FilePtr file) : world_(world), file_(std::move(file)) {}

  Result<std::uint64_t> size() override {
    EFS_TRY(world_.call("journal size"));
    return file_->size;
  }

  Status allocate(std::uint64_t size) override {
    EFS_TRY(world_.call("journal allocate"));
    file_->size = std::max(file_->size, size);
    // MAP_SYNC and an fsync
    if (world_.durability() == Durability::cache_line) {
      file_->durable_size = file_->size;
    }
    return {};
  }

  Status cut(std::uint64_t size) override {
    EFS_TRY(world_.call("journal cut"));
    if (size >= file_->size) {
      return {};
    }
    file_->size = size;
    file_->touched.each(
        [&](std::uint64_t line) { std::memset(file_->visible.at(line * 64), 0, 64); },
        (size + 63) / 64);
    file_->dirty.erase_from(size / 64);
    return {};
  }

  Result<std::byte*> map(std::uint64_t offset, std::size_t length) override {
    EFS_TRY(world_.call("journal map"));
    if (offset + length > file_->size) {
      return fail(ENXIO, "a window beyond the file");
    }
    return file_->visible.at(offset);
  }

  void store(std::byte* to, std::span<const std::byte> from) override {
    if (world_.ended()) {
      return;
    }
    const SparedAllocations spared;  // a store to memory is atomic
    if (world_.loses_zeros() &&
        std::ranges::all_of(from, [](std::byte b) { return b == std::byte{0}; })) {
      return;
    }
    std::memcpy(to, from.data(), from.size());
    const auto at = static_cast<std::uint64_t>(to - file_->visible.at(0));
    for (auto line = at / 64; line <= (at + from.size() - 1) / 64; ++line) {
      file_->dirty.insert(line);
      file_->touched.insert(line);
    }
  }

  void drain() override {
    if (world_.durability() != Durability::cache_line || !world_.event("drain")) {
      return;
    }
    world_.sync_file(*file_);
  }

  Status sync() override {
    EFS_TRY(world_.call("journal sync"));
    if (world_.event("journal sync")) {
      world_.sync_file(*file_);
    }
    return {};
  }

 private:
  SimWorld& world_;
  const SimWorld::FilePtr file_;
};

class SimMedium final : public store::Medium {
 public:
  explicit SimMedium(SimWorld& world) : world_(world) {}

  Result<std::unique_ptr<store::MediumFile>> create(const std::string& name) override {
    EFS_TRY(world_.call("journal create"));
    if (world_.files.contains(name)) {
      return fail(EEXIST);
    }
    auto file = std::make_shared<SimWorld::File>();
    world_.files[name] = file;
    world_.names_on_the_way.emplace_back([=](auto& names) { names[name] = file; });
    return std::make_unique<SimFile>(world_, file);
  }

  Result<std::unique_ptr<store::MediumFile>> open(const std::string& name, bool) override {
    EFS_TRY(world_.call("journal open"));
    const auto found = world_.files.find(name);
    if (found == world_.files.end()) {
      return fail(ENOENT);
    }
    return std::make_unique<SimFile>(world_, found->second);
  }

  Status rename(const std::string& from, const std::string& to) override {
    EFS_TRY(world_.call("journal rename"));
    const SparedAllocations spared;
    const auto file = world_.files.at(from);
    world_.files.erase(from);
    world_.files[to] = file;
    if (world_.switches_in_two()) {
      world_.names_on_the_way.emplace_back([=](auto& names) { names.erase(to); });
    }
    world_.names_on_the_way.emplace_back([=](auto& names) {
      names.erase(from);
      names[to] = file;
    });
    (void)world_.event("rename");  // between the switch and later calls
    return {};
  }

  Status remove(const std::string& name) override {
    EFS_TRY(world_.call("journal remove"));
    if (world_.files.erase(name) != 0) {
      world_.names_on_the_way.emplace_back([=](auto& names) { names.erase(name); });
    }
    return {};
  }

  Status sync_names() override {
    EFS_TRY(world_.call("names sync"));
    if (!world_.event("names sync")) {
      return {};
    }
    const SparedAllocations spared;
    for (auto& step : world_.names_on_the_way) {
      step(world_.durable_files);
    }
    world_.names_on_the_way.clear();
    return {};
  }

 private:
  SimWorld& world_;
};

}  // namespace efs::test
