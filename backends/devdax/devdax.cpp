// SPDX-License-Identifier: BSD-3-Clause
#include "backends/devdax/devdax.hpp"

#include <unistd.h>

#include <string>
#include <utility>

#include "backends/devdax/content_store.hpp"

namespace efs::devdax {
namespace {

using StorePointer = std::shared_ptr<ContentStore>;

class DevdaxContainer final : public Container {
 public:
  /// The store counts this user already.
  DevdaxContainer(StorePointer store, ContentPointer content, bool writes)
      : store_(std::move(store)), content_(std::move(content)), writes_(writes) {}

  ~DevdaxContainer() override { store_->close(content_, writes_); }

  DevdaxContainer(const DevdaxContainer&) = delete;
  DevdaxContainer& operator=(const DevdaxContainer&) = delete;

  Result<std::size_t> read(std::span<std::byte> into, std::uint64_t offset) override {
    return store_->read(*content_, into, offset);
  }

  Result<std::size_t> write(std::span<const std::byte> from, std::uint64_t offset) override {
    EFS_TRY(may_write());
    return store_->write(*content_, from, offset);
  }

  Status truncate(std::uint64_t size) override {
    EFS_TRY(may_write());
    return store_->truncate(*content_, size);
  }

  Status allocate(int mode, std::uint64_t offset, std::uint64_t length) override {
    EFS_TRY(may_write());
    return store_->allocate(*content_, mode, offset, length);
  }

  Result<std::uint64_t> seek(std::uint64_t offset, int whence) override {
    return store_->seek(*content_, offset, whence == SEEK_DATA);
  }

  Result<struct stat> attributes() override { return store_->attributes(*content_); }

  Status set_times(std::optional<FileTime> atime, std::optional<FileTime> mtime) override {
    store_->set_times(*content_, atime, mtime);
    return {};
  }

  void accessed(AccessTimes policy) override { store_->accessed(*content_, policy); }

  Status sync(bool) override { return store_->device().sync(); }

  // The device is mapped whole, so read() and write() copy without a system call. A window could
  // not follow its bytes to other extents.
  Result<std::unique_ptr<Segment>> map(std::uint64_t, std::size_t) override {
    return fail(ENOTSUP);
  }

  void will_need(std::uint64_t, std::uint64_t) override {}

  Status clone(const Container&) override { return fail(EOPNOTSUPP); }

  std::optional<int> descriptor() const override { return std::nullopt; }

 private:
  Status may_write() const { return writes_ ? Status{} : fail(EBADF); }

  const StorePointer store_;
  const ContentPointer content_;
  const bool writes_;
};

class DevdaxBackend final : public Devdax {
 public:
  explicit DevdaxBackend(StorePointer store) : store_(std::move(store)) {}

  Result<std::shared_ptr<Container>> create(std::uint64_t id, CachePolicy) override {
    return opened(store_->create(id, true), true);
  }

  Result<std::shared_ptr<Container>> open(std::uint64_t id, CachePolicy policy) override {
    const bool writes = policy != CachePolicy::only_read;
    return opened(store_->open(id, writes), writes);
  }

  Result<std::shared_ptr<Container>> adopt(std::uint64_t, Container&) override {
    return fail(EXDEV);
  }

  // The superblock says whose all containers are.
  Status label(std::uint64_t id) override { return store_->exists(id) ? Status{} : fail(ENOENT); }

  Ownership ownership(std::uint64_t) override { return Ownership::own; }

  std::optional<std::uint64_t> remove(std::uint64_t id) override { return store_->remove(id); }

  Result<struct stat> attributes(std::uint64_t id) override {
    const auto container = open(id, CachePolicy::only_read);
    return container ? (*container)->attributes() : std::unexpected(container.error());
  }

  Status set_times(std::uint64_t id, std::optional<FileTime> atime,
                   std::optional<FileTime> mtime) override {
    const auto container = open(id, CachePolicy::only_read);
    return container ? (*container)->set_times(atime, mtime) : std::unexpected(container.error());
  }

  Result<StoredContent> content(std::uint64_t id) override {
    const auto content = store_->open(id, false);
    if (!content) {
      return std::unexpected(content.error());
    }
    const DevdaxContainer user(store_, *content, false);
    return store_->stored(**content);
  }

  // The record of the file's name is in the journal, and that of its bytes too.
  Status sync_name(std::uint64_t) override { return {}; }

  Status sync_all() override { return store_->device().sync(); }

  Status for_each(const std::function<void(std::uint64_t id)>& visit) override {
    for (const auto id : store_->ids()) {
      visit(id);
    }
    return {};
  }

  // Containers have no descriptors, so that no other process writes to them.
  bool may_be_written(std::uint64_t id) override { return store_->is_written(id, true); }

  bool may_be_open(std::uint64_t id) override { return store_->is_used(id, true); }

  bool is_written(std::uint64_t id) override { return store_->is_written(id, false); }

  Space space() override { return store_->space(); }

  Status admit_writer() override { return {}; }

  void look_again(bool) override {}

  void await_removed() override {}

  Durability durability() const override { return store_->device().durability(); }

  bool offers_descriptor() const override { return false; }

  bool zeros_take_space() const override { return false; }

  std::string description() const override { return "devdax on " + store_->device().path(); }

  void set_unreadable(const DeviceRange& range) override { store_->set_unreadable(range); }

 private:
  Result<std::shared_ptr<Container>> opened(Result<ContentPointer> content, bool writes) {
    if (!content) {
      return std::unexpected(content.error());
    }
    try {
      return std::make_shared<DevdaxContainer>(store_, *content, writes);
    } catch (const std::bad_alloc&) {  // no other code closes it
      store_->close(*content, writes);
      throw;
    }
  }

  const StorePointer store_;
};

}  // namespace

Result<std::unique_ptr<Devdax>> make_devdax(DevdaxOptions options) {
  const auto contents = std::move(options.contents);
  const auto unreadable = std::move(options.unreadable);
  ExtentAllocator allocator(options.superblock.data);
  auto store = std::make_shared<ContentStore>(std::move(options), std::move(allocator));
  for (const auto& content : contents) {
    EFS_TRY(store->add(content));
  }
  for (const auto& range : unreadable) {
    store->set_unreadable(range);
  }
  return std::make_unique<DevdaxBackend>(std::move(store));
}

}  // namespace efs::devdax
