// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A backend that forwards to another one, and calls an observer before each call of it, of its
// containers and of their segments. The observer may wait (device_pace.hpp) or end the process.

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "backends/backend.hpp"

namespace efs::test {

/// `bytes`: that the call moves. Called by any thread.
using Observer = std::function<void(const char* call, std::size_t bytes)>;

/// The kernel gets no descriptor: the observer would not see its I/O.
class ObservedBackend final : public PlainBackend {
 public:
  ObservedBackend(std::unique_ptr<Backend> inner, Observer observer)
      : inner_(std::move(inner)),
        observer_(std::make_shared<const Observer>(std::move(observer))) {}

  Result<std::shared_ptr<Container>> create(std::uint64_t id, CachePolicy policy) override {
    before("create");
    return observed(inner_->create(id, policy));
  }

  Result<std::shared_ptr<Container>> open(std::uint64_t id, CachePolicy policy) override {
    before("open");
    return observed(inner_->open(id, policy));
  }

  Result<std::shared_ptr<Container>> adopt(std::uint64_t id, Container& other) override {
    before("adopt");
    return observed(inner_->adopt(id, other));
  }

  Status label(std::uint64_t id) override {
    before("label");
    return inner_->label(id);
  }

  Ownership ownership(std::uint64_t id) override {
    before("ownership");
    return inner_->ownership(id);
  }

  std::optional<std::uint64_t> remove(std::uint64_t id) override {
    before("remove");
    return inner_->remove(id);
  }

  Result<struct stat> attributes(std::uint64_t id) override {
    before("attributes by id");
    return inner_->attributes(id);
  }

  Status set_times(std::uint64_t id, std::optional<FileTime> atime,
                   std::optional<FileTime> mtime) override {
    before("set_times by id");
    return inner_->set_times(id, atime, mtime);
  }

  Status sync_name(std::uint64_t id) override {
    before("sync_name");
    return inner_->sync_name(id);
  }

  Status sync_all() override {
    before("sync_all");
    return inner_->sync_all();
  }

  Status for_each(const std::function<void(std::uint64_t id)>& visit) override {
    before("for_each");
    return inner_->for_each(visit);
  }

  bool may_be_written(std::uint64_t id) override { return inner_->may_be_written(id); }

  bool may_be_open(std::uint64_t id) override { return inner_->may_be_open(id); }

  bool is_written(std::uint64_t id) override { return inner_->is_written(id); }

  Space space() override { return inner_->space(); }

  Status admit_writer() override { return inner_->admit_writer(); }

  void look_again(bool only_if_full) override { inner_->look_again(only_if_full); }

  void await_removed() override { inner_->await_removed(); }

  Durability durability() const override { return inner_->durability(); }

  bool offers_descriptor() const override { return false; }

  bool zeros_take_space() const override { return inner_->zeros_take_space(); }

  std::string description() const override { return "observed " + inner_->description(); }

 private:
  class ObservedSegment final : public Segment {
   public:
    ObservedSegment(std::unique_ptr<Segment> inner, std::shared_ptr<const Observer> observer)
        : inner_(std::move(inner)), observer_(std::move(observer)) {}

    std::span<std::byte> bytes() override { return inner_->bytes(); }

    void store(std::size_t offset, std::span<const std::byte> data) override {
      (*observer_)("store", data.size());
      inner_->store(offset, data);
    }

   private:
    const std::unique_ptr<Segment> inner_;
    const std::shared_ptr<const Observer> observer_;
  };

  class ObservedContainer final : public Container {
   public:
    ObservedContainer(std::shared_ptr<Container> inner, std::shared_ptr<const Observer> observer)
        : inner_(std::move(inner)), observer_(std::move(observer)) {}

    Result<std::size_t> read(std::span<std::byte> into, std::uint64_t offset) override {
      (*observer_)("read", into.size());
      return inner_->read(into, offset);
    }

    Result<std::size_t> write(std::span<const std::byte> from, std::uint64_t offset) override {
      (*observer_)("write", from.size());
      return inner_->write(from, offset);
    }

    Status truncate(std::uint64_t size) override {
      (*observer_)("truncate", 0);
      return inner_->truncate(size);
    }

    Status allocate(int mode, std::uint64_t offset, std::uint64_t length) override {
      (*observer_)("allocate", 0);
      return inner_->allocate(mode, offset, length);
    }

    Result<std::uint64_t> seek(std::uint64_t offset, int whence) override {
      (*observer_)("seek", 0);
      return inner_->seek(offset, whence);
    }

    Result<struct stat> attributes() override {
      (*observer_)("attributes", 0);
      return inner_->attributes();
    }

    Status set_times(std::optional<FileTime> atime, std::optional<FileTime> mtime) override {
      (*observer_)("set_times", 0);
      return inner_->set_times(atime, mtime);
    }

    void accessed(AccessTimes policy) override { inner_->accessed(policy); }

    Status sync(bool metadata) override {
      (*observer_)("sync", 0);
      return inner_->sync(metadata);
    }

    Result<std::unique_ptr<Segment>> map(std::uint64_t offset, std::size_t length) override {
      (*observer_)("map", 0);
      auto segment = inner_->map(offset, length);
      if (!segment) {
        return segment;
      }
      return std::make_unique<ObservedSegment>(std::move(*segment), observer_);
    }

    void will_need(std::uint64_t offset, std::uint64_t length) override {
      inner_->will_need(offset, length);
    }

    Status clone(const Container& other) override {
      (*observer_)("clone", 0);
      return inner_->clone(other);
    }

    std::optional<int> descriptor() const override { return inner_->descriptor(); }

   private:
    const std::shared_ptr<Container> inner_;
    const std::shared_ptr<const Observer> observer_;
  };

  void before(const char* call) const { (*observer_)(call, 0); }

  Result<std::shared_ptr<Container>> observed(Result<std::shared_ptr<Container>> opened) const {
    if (!opened) {
      return opened;
    }
    return std::make_shared<ObservedContainer>(std::move(*opened), observer_);
  }

  const std::unique_ptr<Backend> inner_;
  const std::shared_ptr<const Observer> observer_;
};

}  // namespace efs::test
