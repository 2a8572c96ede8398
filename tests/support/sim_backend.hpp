// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The containers of a simulated machine that can lose power.

#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "backends/backend.hpp"
#include "backends/virtual_device.hpp"
#include "support/sim_world.hpp"

namespace efs::test {

class SimBackend final : public PlainBackend {
 public:
  explicit SimBackend(SimWorld& world, std::size_t place = 0)
      : world_(world), place_(world.places.at(place)) {}

  // Stored data is visible at once, and durable after the next sync of its container.
  class SimSegment final : public Segment {
   public:
    SimSegment(SimWorld& world, SimWorld::DataPtr data, std::uint64_t begin, std::size_t length)
        : world_(world), data_(std::move(data)), begin_(begin), length_(length) {}

    std::span<std::byte> bytes() override {
      const auto all = std::as_writable_bytes(std::span(data_->visible))
                           .subspan(std::min<std::size_t>(begin_, data_->visible.size()));
      return all.first(std::min(all.size(), length_));
    }

    void store(std::size_t offset, std::span<const std::byte> from) override {
      if (world_.ended()) {
        return;
      }
      if (bytes().size() < offset + from.size()) {
        std::abort();  // a kernel would send SIGBUS
      }
      std::memcpy(bytes().data() + offset, from.data(), from.size());
      data_->synced = false;
    }

   private:
    SimWorld& world_;
    const SimWorld::DataPtr data_;
    const std::uint64_t begin_;
    const std::size_t length_;
  };

  class SimContainer final : public Container {
   public:
    SimContainer(SimWorld& world, SimWorld::DataPtr data) : world_(world), data_(std::move(data)) {}

    Result<std::size_t> read(std::span<std::byte> into, std::uint64_t offset) override {
      EFS_TRY(world_.call("read"));
      if (offset >= data_->visible.size()) {
        return 0;
      }
      const auto n = std::min<std::size_t>(into.size(), data_->visible.size() - offset);
      std::memcpy(into.data(), data_->visible.data() + offset, n);
      return n;
    }

    Result<std::size_t> write(std::span<const std::byte> from, std::uint64_t offset) override {
      EFS_TRY(change("write"));
      if (data_->visible.size() < offset + from.size()) {
        data_->visible.resize(offset + from.size());
      }
      std::memcpy(data_->visible.data() + offset, from.data(), from.size());
      data_->synced = false;
      data_->mtime = wall_time();
      return from.size();
    }

    Status truncate(std::uint64_t size) override {
      EFS_TRY(change("truncate"));
      return resize(size);
    }

    Status allocate(int mode, std::uint64_t offset, std::uint64_t length) override {
      EFS_TRY(change("allocate"));
      return mode != 0 || offset + length <= data_->visible.size() ? Status{}
                                                                   : resize(offset + length);
    }

    /// Has no holes.
    Result<std::uint64_t> seek(std::uint64_t offset, int whence) override {
      EFS_TRY(world_.call("seek"));
      if (offset >= data_->visible.size()) {
        return fail(ENXIO);
      }
      return whence == SEEK_DATA ? offset : data_->visible.size();
    }

    Result<struct stat> attributes() override {
      EFS_TRY(world_.call("attributes"));
      struct stat st{};
      st.st_mode = S_IFREG | 0600;
      st.st_nlink = 1;
      st.st_size = static_cast<off_t>(data_->visible.size());
      st.st_blocks = static_cast<blkcnt_t>((data_->visible.size() + 511) / 512);
      st.st_atim = to_timespec(data_->atime);
      st.st_mtim = to_timespec(data_->mtime);
      return st;
    }

    Status set_times(std::optional<FileTime> atime, std::optional<FileTime> mtime) override {
      EFS_TRY(change("set_times"));
      set_times_of(*data_, atime, mtime);
      return {};
    }

    void accessed(AccessTimes) override {}

    Status sync(bool) override {
      EFS_TRY(world_.call("data sync"));
      if (world_.event("data sync")) {
        settle(*data_);
      }
      return {};
    }

    Result<std::unique_ptr<Segment>> map(std::uint64_t offset, std::size_t length) override {
      if (!world_.maps) {
        return fail(ENOTSUP);
      }
      EFS_TRY(world_.call("map"));
      return std::make_unique<SimSegment>(world_, data_, offset, length);
    }

    void will_need(std::uint64_t, std::uint64_t) override {}

    Status clone(const Container&) override { return fail(EOPNOTSUPP); }

    std::optional<int> descriptor() const override { return std::nullopt; }

    const SimWorld::DataPtr& data() const { return data_; }

    static void set_times_of(SimWorld::Data& data, std::optional<FileTime> atime,
                             std::optional<FileTime> mtime) {
      const auto set = [](FileTime& time, const std::optional<FileTime>& wanted) {
        if (wanted) {
          time = *wanted == FileTime(stamp_now) ? wall_time() : *wanted;
        }
      };
      set(data.atime, atime);
      set(data.mtime, mtime);
    }

    static void settle(SimWorld::Data& data) {
      data.durable = data.visible;
      data.synced = data.labelled = true;
    }

   private:
    /// Staging takes the end of the world for a failure and goes on: its later changes are lost.
    Status change(const char* name) {
      return world_.ended() ? fail(EIO, "power loss") : world_.call(name);
    }

    Status resize(std::uint64_t size) {
      data_->visible.resize(size);
      data_->synced = false;
      data_->mtime = wall_time();
      return {};
    }

    SimWorld& world_;
    const SimWorld::DataPtr data_;
  };

  Result<std::shared_ptr<Container>> create(std::uint64_t id, CachePolicy) override {
    EFS_TRY(world_.call("create"));
    if (place_.containers.contains(id)) {
      return fail(EEXIST);
    }
    if (place_.containers.size() >= place_.room) {
      return fail(ENOSPC);
    }
    const auto data = std::make_shared<SimWorld::Data>();
    data->life = world_.lives();
    place_.containers[id] = data;
    auto made = open(id, CachePolicy::kept_open);
    if (!made) {
      place_.containers.erase(id);
    }
    return made;
  }

  Result<std::shared_ptr<Container>> open(std::uint64_t id, CachePolicy) override {
    EFS_TRY(world_.call("open"));
    const auto found = place_.containers.find(id);
    if (found == place_.containers.end()) {
      return fail(ENOENT);
    }
    if (found->second->unfinished) {
      return fail(EUCLEAN, "container " + std::to_string(id) + " has lost its label");
    }
    return std::make_shared<SimContainer>(world_, found->second);
  }

  Result<std::shared_ptr<Container>> adopt(std::uint64_t id, Container& other) override {
    EFS_TRY(world_.call("adopt"));
    const auto* shared = dynamic_cast<const SimContainer*>(&other);
    if (shared == nullptr) {
      return fail(EXDEV);
    }
    if (!place_.containers.emplace(id, shared->data()).second) {
      return fail(EEXIST);
    }
    auto made = open(id, CachePolicy::kept_open);
    if (!made) {
      place_.containers.erase(id);
    }
    return made;
  }

  Ownership ownership(std::uint64_t id) override {
    const auto found = place_.containers.find(id);
    return found != place_.containers.end() && found->second->unfinished ? Ownership::unfinished
                                                                         : Ownership::own;
  }

  Status label(std::uint64_t id) override {
    EFS_TRY(world_.call("label"));
    const auto found = place_.containers.find(id);
    if (found == place_.containers.end()) {
      return fail(ENOENT);
    }
    found->second->unfinished = false;
    return {};
  }

  std::optional<std::uint64_t> remove(std::uint64_t id) override {
    if (world_.ended()) {
      return 0;  // a destructor: its process is already dead
    }
    if (!world_.call("remove")) {
      if (place_.containers.contains(id)) {
        world_.stuck.insert(id);
      }
      return std::nullopt;
    }
    if (place_.containers.contains(id)) {
      world_.event("remove");
    }
    place_.containers.erase(id);
    return 0;
  }

  Result<struct stat> attributes(std::uint64_t id) override {
    auto container = open(id, CachePolicy::kept_open);
    if (!container) {
      return std::unexpected(container.error());
    }
    return (*container)->attributes();
  }

  Status set_times(std::uint64_t id, std::optional<FileTime> atime,
                   std::optional<FileTime> mtime) override {
    EFS_TRY(world_.call("set_times by id"));
    const auto found = place_.containers.find(id);
    if (found == place_.containers.end()) {
      return fail(ENOENT);
    }
    SimContainer::set_times_of(*found->second, atime, mtime);
    return {};
  }

  Status sync_name(std::uint64_t id) override {
    EFS_TRY(world_.call("container name sync"));
    if (!world_.event("container name sync")) {
      return {};
    }
    if (const auto found = place_.containers.find(id); found != place_.containers.end()) {
      place_.durable_containers[id] = found->second;
    } else {
      place_.durable_containers.erase(id);
    }
    return {};
  }

  Status sync_all() override {
    EFS_TRY(world_.call("all data sync"));
    if (!world_.event("all data sync")) {
      return {};
    }
    for (auto& [id, data] : place_.containers) {
      SimContainer::settle(*data);
    }
    place_.durable_containers = place_.containers;
    return {};
  }

  Status for_each(const std::function<void(std::uint64_t)>& visit) override {
    EFS_TRY(world_.call("for_each"));
    const auto copy = place_.containers;
    for (const auto& [id, data] : copy) {
      visit(id);
    }
    return {};
  }

  // the scenario knows every writer
  bool may_be_written(std::uint64_t) override { return false; }

  bool may_be_open(std::uint64_t) override { return false; }

  bool is_written(std::uint64_t) override { return false; }

  Space space() override {
    return {.capacity = 1u << 30,
            .used = 0,
            .available = place_.containers.size() < place_.room ? 1u << 30 : 0};
  }

  void look_again(bool) override {}

  void await_removed() override {}

  // the scenario injects no other failure here
  Status admit_writer() override {
    return world_.injects(ENOSPC) ? world_.call("admit_writer") : Status{};
  }

  Durability durability() const override { return world_.durability(); }

  bool offers_descriptor() const override { return false; }

  bool zeros_take_space() const override { return false; }

  std::string description() const override { return "simulated"; }

 private:
  SimWorld& world_;
  SimWorld::Place& place_;
};

/// With several places, the first one fills up soon.
inline SimWorld make_world(Durability durability, std::uint64_t seed, std::size_t places) {
  SimWorld world(durability, seed, places);
  if (places > 1) {
    world.places.front().room = 6;
  }
  return world;
}

/// Returns a policy that selects the place by name; none if there is only one place.
inline std::function<std::optional<unsigned>(const std::string& path)> place_by_name(
    std::size_t places) {
  if (places == 1) {
    return {};
  }
  return [places](const std::string& path) {
    return static_cast<unsigned char>(path.back()) % places;
  };
}

/// Opens the backend of a world: all its places as one device.
inline Result<std::unique_ptr<Backend>> open_store(SimWorld& world) {
  if (world.places.size() == 1) {
    return std::make_unique<SimBackend>(world);
  }
  VirtualDeviceOptions options{.members = {}, .new_containers = 0, .spill = true};
  for (std::size_t place = 0; place < world.places.size(); ++place) {
    options.members.push_back(
        {.id = std::to_string(place), .backend = std::make_unique<SimBackend>(world, place)});
  }
  return make_virtual_device(std::move(options));
}

}  // namespace efs::test
