#pragma once
// The contract between storage and everything above it. A backend knows bytes and durability and
// nothing else: no path, no permission, no FUSE. How to add a kind: backends/README.md.

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/clock.hpp"
#include "base/result.hpp"

namespace efs {

/// How much survives which failure, after libpmem's granularity.
enum class Durability : std::uint8_t {
  volatile_memory,  // tmpfs: lives as long as the machine
  page,             // page cache: survives our processes at once, power loss from the next sync on
  cache_line,       // persistent memory: a drained store survives power loss
};

struct Space {
  std::uint64_t capacity = 0;   // bytes
  std::uint64_t used = 0;       // bytes
  std::uint64_t available = 0;  // bytes
};

/// Where a new container is to go, in a store of several places.
struct Placement {
  std::optional<unsigned> place;  // nullopt: where new ones go
  std::uint64_t size = 0;         // bytes that it will hold, as far as that is known
};

/// A window of a container, mapped. Stores are durable after flush() and the container's drain().
/// Valid as long as it lives, also when the container is closed; not beyond the container's end.
class Segment {
 public:
  virtual ~Segment() = default;
  virtual std::span<std::byte> bytes() = 0;
  /// Copies into the window at `offset` and flushes what it stored; drain comes later.
  virtual void store(std::size_t offset, std::span<const std::byte> data) = 0;
};

/// An open container: a growable byte object that starts at offset 0. Thread-safe; concurrent
/// writes to overlapping ranges give one or the other per page, as the caller has no lock to offer.
class Container {
 public:
  virtual ~Container() = default;
  virtual Result<std::size_t> read(std::span<std::byte> into, std::uint64_t offset) = 0;
  /// May write less than asked where the capacity ends; ENOSPC when nothing fits.
  virtual Result<std::size_t> write(std::span<const std::byte> from, std::uint64_t offset) = 0;
  virtual Status truncate(std::uint64_t size) = 0;
  /// fallocate(2) with its modes: reserves, punches, zeroes. EOPNOTSUPP where the store cannot.
  virtual Status allocate(int mode, std::uint64_t offset, std::uint64_t length) = 0;
  /// lseek(2) with SEEK_DATA or SEEK_HOLE.
  virtual Result<std::uint64_t> seek(std::uint64_t offset, int whence) = 0;
  /// Size, blocks and times are the container's; all else is meaningless.
  virtual Result<struct stat> attributes() = 0;
  /// nullopt leaves a time as it is; stamp_now is now.
  virtual Status set_times(std::optional<FileTime> atime, std::optional<FileTime> mtime) = 0;
  /// Moves the access time as a read by a program does: where it is due after relatime, and as the
  /// store's mount has it.
  virtual void accessed(AccessTimes policy) = 0;
  /// Returns when data (and with `metadata` the times) survive what the durability class promises.
  virtual Status sync(bool metadata) = 0;
  /// Maps [offset, offset + length), which must be allocated. ENOTSUP where mapping buys nothing.
  virtual Result<std::unique_ptr<Segment>> map(std::uint64_t offset, std::size_t length) = 0;
  /// For kernel passthrough and staging; -1 where there is none. Owned by the container.
  virtual int descriptor() const = 0;
  /// All that this new container holds was stored through its descriptor: where bytes are counted,
  /// these are now. Call it once, while it still has its name.
  virtual void count_stored() = 0;
};

/// What a container says of itself. `own`: also where nothing is known. `unfinished`: it is empty
/// and says nothing, as power loss leaves one whose name was on the medium before its label.
enum class Ownership { own, another, unfinished };

/// Is a container to be kept open for whoever asks for it next (in bounded number), or closed with
/// its last holder? `only_read` (of open()): closed likewise, and not open for writing, so that who
/// asks whether somebody has it so does not meet its holder.
enum class CachePolicy : std::uint8_t { kept_open, closed, only_read };

/// A store of containers, addressed by a number that the caller chooses. Thread-safe. Every member
/// is pure: a backend in front of others cannot leave one out.
class Backend {
 public:
  virtual ~Backend() = default;
  /// EEXIST if there is one; its mtime and ctime are now.
  virtual Result<std::shared_ptr<Container>> create(std::uint64_t id, CachePolicy policy) = 0;

  Result<std::shared_ptr<Container>> create(std::uint64_t id) {
    return create(id, CachePolicy::kept_open);
  }

  /// A container that is the open file `fd`, under one more name: nothing is copied, and its bytes
  /// are shared with whoever has the other names (fs/seal.hpp). EXDEV where this store cannot have
  /// that file; ENOSPC where it does not fit.
  virtual Result<std::shared_ptr<Container>> adopt(std::uint64_t id, int fd) = 0;
  /// The descriptor count never follows the file count. EUCLEAN, with a text that says so: it is
  /// labelled as another one, or has lost its label.
  virtual Result<std::shared_ptr<Container>> open(std::uint64_t id, CachePolicy policy) = 0;

  Result<std::shared_ptr<Container>> open(std::uint64_t id) {
    return open(id, CachePolicy::kept_open);
  }

  /// The container is this store's alone from now on, and says so as a created one does. For one
  /// that was adopted, while it is sealed, and for an unfinished one.
  virtual Status label(std::uint64_t id) = 0;
  virtual Ownership ownership(std::uint64_t id) = 0;
  /// Frees the space once the last reader is gone (rule R3 of src/store/README.md). Idempotent. How
  /// much that is, bytes. nullopt: it stays. What is labelled as another one may be the only copy
  /// of that.
  virtual std::optional<std::uint64_t> remove(std::uint64_t id) = 0;
  virtual Result<struct stat> attributes(std::uint64_t id) = 0;
  /// nullopt leaves a time as it is; stamp_now is now.
  virtual Status set_times(std::uint64_t id, std::optional<FileTime> atime,
                           std::optional<FileTime> mtime) = 0;
  /// Returns when the container's existence (not its bytes) survives what the durability class
  /// promises.
  virtual Status sync_name(std::uint64_t id) = 0;
  /// Returns when the bytes and the existence of every container survive what the durability class
  /// promises.
  virtual Status sync_all() = 0;
  /// The id of every container that exists, in no order; what only has the name of one is none. For
  /// recovery and checks: not while others create or remove. After an error: of all containers but
  /// those in directories that cannot be listed.
  virtual Status for_each(const std::function<void(std::uint64_t id)>& visit) = 0;
  /// May anybody write to the container now, through a descriptor or a mapping? False is a proof.
  /// Call it with no Container of this id in hand: one's own counts. True where that cannot be
  /// told.
  virtual bool may_be_written(std::uint64_t id) = 0;
  /// Has anybody it open for writing? True is a proof, under the same condition.
  virtual bool is_written(std::uint64_t id) = 0;
  virtual Space space() = 0;
  /// ENOSPC where the declared capacity is used up and the kernel will not say so (advisory
  /// enforcement).
  virtual Status admit_writer() = 0;
  /// Something was freed: what admit_writer() remembers of the use may be too much.
  virtual void look_again() = 0;
  virtual Durability durability() const = 0;
  /// May the kernel do I/O on descriptors directly? False where the daemon must count every byte.
  virtual bool offers_descriptor() const = 0;
  /// A tmpfs with huge pages: one byte stored into a file that has its size already takes a whole
  /// huge page, zeros but for that byte. To punch the zeros gives their space back. False where
  /// bytes are counted.
  virtual bool zeros_take_space() const = 0;
  virtual std::string description() const = 0;

  // A store may consist of several places, numbered from 0 (virtual_device.hpp). A plain backend is
  // one place (PlainBackend).
  virtual unsigned places() const = 0;
  /// The backend that is this place; lives as long as the store.
  virtual Backend& at(unsigned place) = 0;
  /// Where a container is; 0 where there is none.
  virtual unsigned place_of(std::uint64_t id) = 0;
  /// Where policy would put a new container now; ENOSPC: nowhere.
  virtual Result<unsigned> place_for(const Placement& wanted) = 0;
  /// As create(), there; or, where that place refuses it for want of space and policy allows it, in
  /// the next one.
  virtual Result<std::shared_ptr<Container>> create_at(std::uint64_t id, unsigned place,
                                                       CachePolicy policy) = 0;
};

/// A backend that is one place.
class PlainBackend : public Backend {
 public:
  unsigned places() const override { return 1; }

  Backend& at(unsigned) override { return *this; }

  unsigned place_of(std::uint64_t) override { return 0; }

  Result<unsigned> place_for(const Placement&) override { return 0U; }

  Result<std::shared_ptr<Container>> create_at(std::uint64_t id, unsigned,
                                               CachePolicy policy) override {
    return create(id, policy);
  }
};

}  // namespace efs
