// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A real backend for the scenarios of tests/crash: they see, and change, the containers of a
// simulated world. Here each container of the world mirrors a real one. A change that a scenario
// made in the world is written to the real container before the next call of it, as the kernel
// writes by passthrough.

#include <fcntl.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "backends/backend.hpp"
#include "backends/container_file.hpp"
#include "support/sim_backend.hpp"
#include "support/sim_world.hpp"

namespace efs::test {

class TwinBackend final : public PlainBackend {
 public:
  /// `directory`: for the files that a scenario shares with the backend.
  TwinBackend(std::unique_ptr<Backend> real, SimWorld& world, std::size_t place,
              std::string directory)
      : real_(std::move(real)), world_(world.places.at(place)), directory_(std::move(directory)) {}

  Result<std::shared_ptr<Container>> create(std::uint64_t id, CachePolicy policy) override {
    if (world_.containers.size() >= world_.room) {
      return fail(ENOSPC);
    }
    auto made = real_->create(id, policy);
    if (made) {
      world_.containers[id] = std::make_shared<SimWorld::Data>();
    }
    return twin(id, std::move(made));
  }

  Result<std::shared_ptr<Container>> open(std::uint64_t id, CachePolicy policy) override {
    return twin(id, real_->open(id, policy));
  }

  Result<std::shared_ptr<Container>> adopt(std::uint64_t id, Container& other) override {
    const auto* shared = dynamic_cast<const SimBackend::SimContainer*>(&other);
    if (shared == nullptr) {
      return fail(EXDEV);
    }
    UniqueFd file(::open((directory_ + "/shared-" + std::to_string(id)).c_str(),
                         O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0700));
    if (!file) {
      return fail_errno();
    }
    ContainerFile real(std::move(file), nullptr, false, false);
    EFS_TRY(real.write(std::as_bytes(std::span(shared->data()->visible)), 0));
    auto made = real_->adopt(id, real);
    if (made) {
      world_.containers[id] = shared->data();
      written_[id] = shared->data()->visible;
    }
    return twin(id, std::move(made));
  }

  Status label(std::uint64_t id) override { return real_->label(id); }

  Ownership ownership(std::uint64_t id) override { return real_->ownership(id); }

  std::optional<std::uint64_t> remove(std::uint64_t id) override {
    const auto freed = real_->remove(id);
    if (freed) {
      world_.containers.erase(id);
      written_.erase(id);
    }
    return freed;
  }

  Result<struct stat> attributes(std::uint64_t id) override {
    EFS_TRY(push(id));
    return real_->attributes(id);
  }

  Status set_times(std::uint64_t id, std::optional<FileTime> atime,
                   std::optional<FileTime> mtime) override {
    return real_->set_times(id, atime, mtime);
  }

  Status sync_name(std::uint64_t id) override { return real_->sync_name(id); }

  Status sync_all() override {
    for (const auto& [id, data] : world_.containers) {
      EFS_TRY(push(id));
    }
    return real_->sync_all();
  }

  Status for_each(const std::function<void(std::uint64_t)>& visit) override {
    return real_->for_each(visit);
  }

  // the scenario knows every writer
  bool may_be_written(std::uint64_t) override { return false; }

  bool may_be_open(std::uint64_t) override { return false; }

  bool is_written(std::uint64_t) override { return false; }

  Space space() override { return real_->space(); }

  Status admit_writer() override { return real_->admit_writer(); }

  void look_again(bool only_if_full) override { real_->look_again(only_if_full); }

  void await_removed() override { real_->await_removed(); }

  Durability durability() const override { return real_->durability(); }

  bool offers_descriptor() const override { return false; }

  bool zeros_take_space() const override { return real_->zeros_take_space(); }

  std::string description() const override { return "twin of " + real_->description(); }

 private:
  class TwinSegment final : public Segment {
   public:
    TwinSegment(std::unique_ptr<Segment> real, std::function<void()> changed)
        : real_(std::move(real)), changed_(std::move(changed)) {}

    std::span<std::byte> bytes() override { return real_->bytes(); }

    void store(std::size_t offset, std::span<const std::byte> data) override {
      real_->store(offset, data);
      changed_();
    }

   private:
    const std::unique_ptr<Segment> real_;
    const std::function<void()> changed_;
  };

  class TwinContainer final : public Container {
   public:
    TwinContainer(TwinBackend& backend, std::uint64_t id, std::shared_ptr<Container> real)
        : backend_(backend), id_(id), real_(std::move(real)) {}

    Result<std::size_t> read(std::span<std::byte> into, std::uint64_t offset) override {
      EFS_TRY(backend_.push(id_));
      return real_->read(into, offset);
    }

    Result<std::size_t> write(std::span<const std::byte> from, std::uint64_t offset) override {
      EFS_TRY(backend_.push(id_));
      return changed(real_->write(from, offset));
    }

    Status truncate(std::uint64_t size) override {
      EFS_TRY(backend_.push(id_));
      return changed(real_->truncate(size));
    }

    Status allocate(int mode, std::uint64_t offset, std::uint64_t length) override {
      EFS_TRY(backend_.push(id_));
      return changed(real_->allocate(mode, offset, length));
    }

    Result<std::uint64_t> seek(std::uint64_t offset, int whence) override {
      EFS_TRY(backend_.push(id_));
      return real_->seek(offset, whence);
    }

    Result<struct stat> attributes() override {
      EFS_TRY(backend_.push(id_));
      return real_->attributes();
    }

    Status set_times(std::optional<FileTime> atime, std::optional<FileTime> mtime) override {
      return real_->set_times(atime, mtime);
    }

    void accessed(AccessTimes policy) override { real_->accessed(policy); }

    Status sync(bool metadata) override {
      EFS_TRY(backend_.push(id_));
      return real_->sync(metadata);
    }

    Result<std::unique_ptr<Segment>> map(std::uint64_t offset, std::size_t length) override {
      EFS_TRY(backend_.push(id_));
      auto segment = real_->map(offset, length);
      if (!segment) {
        return segment;
      }
      return std::make_unique<TwinSegment>(std::move(*segment),
                                           [&backend = backend_, id = id_] { backend.pull(id); });
    }

    void will_need(std::uint64_t offset, std::uint64_t length) override {
      real_->will_need(offset, length);
    }

    Status clone(const Container&) override { return fail(EOPNOTSUPP); }

    std::optional<int> descriptor() const override { return std::nullopt; }

   private:
    template <typename Answer>
    Answer changed(Answer answer) {
      backend_.pull(id_);
      return answer;
    }

    TwinBackend& backend_;
    const std::uint64_t id_;
    const std::shared_ptr<Container> real_;
  };

  Result<std::shared_ptr<Container>> twin(std::uint64_t id,
                                          Result<std::shared_ptr<Container>> real) {
    if (!real) {
      return real;
    }
    return std::make_shared<TwinContainer>(*this, id, std::move(*real));
  }

  // Writes what the scenario has changed in the world.
  Status push(std::uint64_t id) {
    const auto found = world_.containers.find(id);
    if (found == world_.containers.end() || found->second->visible == written_[id]) {
      return {};
    }
    const std::string& now = found->second->visible;
    const auto real = real_->open(id);
    if (!real) {
      return std::unexpected(real.error());
    }
    EFS_TRY((*real)->truncate(0));
    EFS_TRY((*real)->write(std::as_bytes(std::span(now)), 0));
    written_[id] = now;
    return {};
  }

  // Reads the real container after a change. (A container without a name has no twin any more.)
  void pull(std::uint64_t id) {
    const auto found = world_.containers.find(id);
    const auto real = real_->open(id);
    const auto now = real ? (*real)->attributes() : fail(ENOENT);
    if (found == world_.containers.end() || !now) {
      return;
    }
    std::string text(static_cast<std::size_t>(now->st_size), '\0');
    if ((*real)->read(std::as_writable_bytes(std::span(text)), 0) == text.size()) {
      written_[id] = found->second->visible = text;
    }
  }

  const std::unique_ptr<Backend> real_;
  SimWorld::Place& world_;
  const std::string directory_;
  std::map<std::uint64_t, std::string> written_;  // the content of each real container
};

}  // namespace efs::test
