// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One version that is written from a program's memory, from copies of it, or from both.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "objects/checkpoint/pace.hpp"
#include "objects/checksum.hpp"
#include "objects/store.hpp"

namespace efs::objects {

/// Arrays up to this size are copied, compared and stored as a whole.
constexpr std::uint64_t small_array = 65536;
/// The unit of long writes and of write protection.
constexpr std::uint64_t granule_size = 2U << 20U;

/// An array in the program's memory.
struct Protected {
  std::string name;
  Shape shape;
  char* data = nullptr;
};

/// Writes to the storage of a store, at its pace, and measures their rate. One thread at a time.
class Medium {
 public:
  /// 0: no limit.
  void set_pace(double bytes_per_second) { pace_ = Pace(bytes_per_second); }

  double rate() const { return rate_.value(); }

  /// Adds the bytes to the sum if it is not NULL.
  Status write(int fd, std::string_view bytes, std::uint64_t offset, Checksum* sum);

 private:
  Pace pace_;
  Rate rate_;
};

/// The file of a large array in a version, before it has its name.
struct ArrayFile {
  Entry entry;
  DraftFile draft;
  std::uint64_t header = 0;     // bytes before the first element
  std::optional<Checksum> sum;  // of the bytes of the file before `summed`
  std::uint64_t summed = 0;
};

/// Writes a part of the elements. The sum ends if the parts are not in their order.
Status write_part(ArrayFile& file, Medium& medium, std::string_view bytes, std::uint64_t offset);

/// Creates the draft of a file with its size and its header.
Result<ArrayFile> create_array_file(Entry entry, const Shape& shape);

/// An array of a checkpoint. Bytes before `direct` are in the program's memory; the others are
/// staged: `offset` bytes after the begin of all staged memory.
struct Item {
  Protected array;
  std::uint64_t direct = 0;
  std::uint64_t offset = 0;
  char* staged = nullptr;
  std::optional<ArrayFile> file;
  bool stored = false;  // nothing is left to be written

  std::uint64_t rest() const { return array.shape.bytes - direct; }

  bool small() const { return array.shape.bytes <= small_array; }
};

/// A version that was begun. Without a commit its destruction aborts it.
class Job {
 public:
  Job(std::unique_ptr<Store> version, unsigned flags)
      : version_(std::move(version)), flags_(flags) {}

  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();

  const Store& version() const { return *version_; }

  std::vector<Item>& items() { return items_; }

  /// Bytes that are not stored yet.
  std::uint64_t bytes() const;

  /// Plans the first `direct` bytes of all arrays to be written from the program's memory, and the
  /// others to be staged. With `staged` small arrays are staged as a whole. Returns the staged
  /// size.
  std::uint64_t place(std::uint64_t direct, bool staged);
  /// Sets the begin of the staged memory.
  void stage_at(char* memory);

  /// Runs a part of the work in a background thread; its failure names the version.
  template <typename Work>
  Status background(Work work) noexcept {
    try {
      Status status = work();
      return status ? status : in_background(std::move(status.error()));
    } catch (...) {
      return fail(ENOMEM);
    }
  }

  /// Writes what is in the program's memory.
  Status write_direct(Medium& medium);
  /// Writes what is staged.
  Status write_staged(Medium& medium);
  /// Writes a part of an item.
  Status write(Item& item, Medium& medium, const char* from, std::uint64_t size,
               std::uint64_t offset);
  /// Gives the files their names and publishes the version.
  Status commit();

 private:
  Status publish_file(const Item& item) const;
  Status store_small(Item& item, char* data);
  Status in_background(Failure failure) const;

  std::unique_ptr<Store> version_;
  unsigned flags_;
  std::vector<Item> items_;
  bool committed_ = false;
};

}  // namespace efs::objects
