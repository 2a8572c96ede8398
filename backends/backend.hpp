// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The contract between storage and the layers above it. A backend handles bytes and durability
// only: no path, no permission, no FUSE. backends/README.md explains how to add a kind.

#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/clock.hpp"
#include "base/durability.hpp"
#include "base/result.hpp"

namespace efs {

struct Space {
  std::uint64_t capacity = 0;   // bytes
  std::uint64_t used = 0;       // bytes
  std::uint64_t available = 0;  // bytes
};

/// The wanted backend for a new container, in a store of several backends.
struct Placement {
  std::optional<unsigned> place;  // index of the backend; nullopt: the default for new containers
  std::uint64_t size = 0;         // expected size in bytes; 0: not known
};

/// A mapped window of a container. Stored data is durable after flush() and the container's
/// drain(). The window stays valid while this object exists, also after the container is closed,
/// but not beyond the container's end.
class Segment {
 public:
  virtual ~Segment() = default;
  virtual std::span<std::byte> bytes() = 0;
  /// Copies into the window at `offset` and flushes the stored bytes; the caller drains later.
  virtual void store(std::size_t offset, std::span<const std::byte> data) = 0;
};

/// An open container: a growable object of bytes that starts at offset 0. Thread-safe. Concurrent
/// writes to overlapping ranges leave one or the other version per page: the caller holds no lock.
class Container {
 public:
  virtual ~Container() = default;
  virtual Result<std::size_t> read(std::span<std::byte> into, std::uint64_t offset) = 0;
  /// May write less than requested where the capacity ends. ENOSPC if nothing fits.
  virtual Result<std::size_t> write(std::span<const std::byte> from, std::uint64_t offset) = 0;
  virtual Status truncate(std::uint64_t size) = 0;
  /// fallocate(2) with its modes: reserves, punches, zeroes. EOPNOTSUPP if the store cannot.
  virtual Status allocate(int mode, std::uint64_t offset, std::uint64_t length) = 0;
  /// lseek(2) with SEEK_DATA or SEEK_HOLE.
  virtual Result<std::uint64_t> seek(std::uint64_t offset, int whence) = 0;
  /// Size, blocks and times. Of a container that is a file, all of fstat(2). Of another one also:
  /// st_mode has S_IFREG, st_nlink is 1 and st_ino is 0.
  virtual Result<struct stat> attributes() = 0;
  /// nullopt leaves a time unchanged; stamp_now sets the current time.
  virtual Status set_times(std::optional<FileTime> atime, std::optional<FileTime> mtime) = 0;
  /// Updates the access time for a program's read, as relatime requires and as the store's mount
  /// permits.
  virtual void accessed(AccessTimes policy) = 0;
  /// Returns when the data (and with `metadata` the times) have the durability that the class
  /// promises.
  virtual Status sync(bool metadata) = 0;
  /// Maps [offset, offset + length), which must be allocated. ENOTSUP if mapping has no benefit.
  virtual Result<std::unique_ptr<Segment>> map(std::uint64_t offset, std::size_t length) = 0;
  /// A hint that these bytes will be read soon. Does not wait; has no result.
  virtual void will_need(std::uint64_t offset, std::uint64_t length) = 0;
  /// Fills this empty container with the blocks of `other`, and copies nothing. EOPNOTSUPP or
  /// another error if the two cannot share blocks: the caller copies.
  virtual Status clone(const Container& other) = 0;
  /// For kernel passthrough, and for the seal and the hard links of a cache of inputs, alone.
  /// nullopt: the container is no file. The members above do everything else, and a store that
  /// counts bytes sees only theirs. Owned by the container.
  virtual std::optional<int> descriptor() const = 0;
};

/// The owner according to a container's label. `own`: also if the label is unknown. `unfinished`:
/// empty and without a label. Power loss leaves such a container if the name reached the medium
/// before the label.
enum class Ownership { own, another, unfinished };

/// Whether a container stays open for a later open (in bounded number), or closes with its last
/// user. `only_read` (of open()): closes with its last user and is opened without write access. A
/// check for writers then does not find this container's own descriptor.
enum class CachePolicy : std::uint8_t { kept_open, closed, only_read };

/// `if_unused`: EBUSY if any process may have the container of `id` open or mapped. `undo`: takes
/// the last exchange of the two back. `at_set_up`: as recorded by an earlier process; does nothing
/// if this object knows of it, and one of the two may not exist.
enum class Exchange : std::uint8_t { if_unused, undo, at_set_up };

/// A store of containers. The caller chooses the number that addresses a container. Thread-safe.
/// Every member is pure: a backend that wraps others must implement each.
class Backend {
 public:
  virtual ~Backend() = default;
  /// EEXIST if the container exists. Sets mtime and ctime to the current time.
  virtual Result<std::shared_ptr<Container>> create(std::uint64_t id, CachePolicy policy) = 0;

  Result<std::shared_ptr<Container>> create(std::uint64_t id) {
    return create(id, CachePolicy::kept_open);
  }

  /// Creates a container that is one more name of the file that `other` is. Copies nothing; the
  /// bytes are shared with the other names (fs/seal.hpp). EXDEV if this store cannot link that
  /// file, or one of the two is no file; ENOSPC if the file does not fit.
  virtual Result<std::shared_ptr<Container>> adopt(std::uint64_t id, Container& other) = 0;
  /// The number of descriptors does not grow with the number of files. EUCLEAN, with a text, if the
  /// container carries another label or has lost its label.
  virtual Result<std::shared_ptr<Container>> open(std::uint64_t id, CachePolicy policy) = 0;

  Result<std::shared_ptr<Container>> open(std::uint64_t id) {
    return open(id, CachePolicy::kept_open);
  }

  /// Labels the container as this store's own, as create() does. For an adopted container while it
  /// is sealed, and for an unfinished one.
  virtual Status label(std::uint64_t id) = 0;
  virtual Ownership ownership(std::uint64_t id) = 0;
  /// Removes the container; its space is free once the last reader closes it (rule R3 of
  /// src/store/README.md). Idempotent. Returns the freed bytes, or nullopt if the container
  /// remains. Never removes a container with another label: it may be the only copy of another
  /// store.
  virtual std::optional<std::uint64_t> remove(std::uint64_t id) = 0;
  virtual Result<struct stat> attributes(std::uint64_t id) = 0;
  /// nullopt leaves a time unchanged; stamp_now sets the current time.
  virtual Status set_times(std::uint64_t id, std::optional<FileTime> atime,
                           std::optional<FileTime> mtime) = 0;
  /// Returns when the container's existence (not its bytes) has the durability that the class
  /// promises.
  virtual Status sync_name(std::uint64_t id) = 0;
  /// Returns when the bytes and the existence of every container have the durability that the class
  /// promises.
  virtual Status sync_all() = 0;
  /// Visits the number of every container, in no order. Skips other objects with the name of a
  /// container. For recovery and checks: no other thread may create or remove meanwhile. After an
  /// error, the visits lack the containers of the directories that could not be listed.
  virtual Status for_each(const std::function<void(std::uint64_t id)>& visit) = 0;
  /// Returns whether any process may write to the container now, through a descriptor or a mapping.
  /// False is a proof; true also means unknown. The caller must hold no Container of this number:
  /// its descriptor counts.
  virtual bool may_be_written(std::uint64_t id) = 0;
  /// Returns whether any process may have the container open or mapped, for reading too. False is a
  /// proof; true also means unknown. The caller must hold no Container of this number.
  virtual bool may_be_open(std::uint64_t id) = 0;
  /// Returns whether any process has the container open for writing. True is a proof, under the
  /// same condition.
  virtual bool is_written(std::uint64_t id) = 0;
  virtual Space space() = 0;
  /// ENOSPC if the declared capacity is used up and the kernel does not enforce it (advisory
  /// enforcement).
  virtual Status admit_writer() = 0;
  /// Call after containers were removed or cut: the use that admit_writer() and space() remember
  /// may be too high. `only_if_full`: only if it leaves no room. A new sum may take long.
  virtual void look_again(bool only_if_full) = 0;
  /// Returns when no sync of the store by another process keeps the space of containers that were
  /// removed before the call. Writes all data of the file system back, so it may take seconds.
  virtual void await_removed() = 0;
  virtual Durability durability() const = 0;
  /// Returns whether the kernel may do I/O on descriptors directly. False if containers have none,
  /// or if the daemon must count every byte.
  virtual bool offers_descriptor() const = 0;
  /// A tmpfs with huge pages: one byte stored into a file that has its size already takes a whole
  /// huge page, zeros but for that byte. To punch the zeros gives their space back. False where
  /// bytes are counted.
  virtual bool zeros_take_space() const = 0;
  virtual std::string description() const = 0;

  // The number of member backends, called places and numbered from 0 (virtual_device.hpp). A plain
  // backend is one place (PlainBackend).
  virtual unsigned places() const = 0;
  /// Returns the backend of this place; it lives as long as the store.
  virtual Backend& at(unsigned place) = 0;
  /// Returns the place of a container; 0 if there is no such container.
  virtual unsigned place_of(std::uint64_t id) = 0;
  /// From here on `id` addresses the container that `other` has addressed until now, and `other`
  /// that of `id`. For this object only: a caller that wants it beyond the process records it, and
  /// calls this again at the next set-up. An open() ends before this call, or opens the other
  /// container. EXDEV: this store is one place.
  virtual Status exchange(std::uint64_t id, std::uint64_t other, Exchange when) = 0;
  /// Returns the place that the policy selects for a new container now; ENOSPC if there is none.
  virtual Result<unsigned> place_for(const Placement& wanted) = 0;
  /// As create(), in `place`. If that place lacks space and the policy permits it, in the next
  /// place.
  virtual Result<std::shared_ptr<Container>> create_at(std::uint64_t id, unsigned place,
                                                       CachePolicy policy) = 0;
};

/// A backend that is one place.
class PlainBackend : public Backend {
 public:
  unsigned places() const override { return 1; }

  Backend& at(unsigned) override { return *this; }

  unsigned place_of(std::uint64_t) override { return 0; }

  Status exchange(std::uint64_t, std::uint64_t, Exchange) override { return fail(EXDEV); }

  Result<unsigned> place_for(const Placement&) override { return 0U; }

  Result<std::shared_ptr<Container>> create_at(std::uint64_t id, unsigned,
                                               CachePolicy policy) override {
    return create(id, policy);
  }
};

}  // namespace efs
