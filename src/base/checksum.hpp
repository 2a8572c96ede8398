// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// XXH3, 64 bits (xxHash's specification, doc/xxhash_spec.md there). Detects accidents, not
// adversaries.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace efs {

/// XXH3-64 of a block of memory.
std::uint64_t checksum(std::span<const std::byte> data);

/// XXH3-64 of a stream. The value equals checksum() of the concatenation, and `xxhsum -H3`. Not
/// thread-safe. The constructor throws std::bad_alloc without memory.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;
  void update(std::span<const std::byte> data);
  /// Feeds `length` zero bytes, for the holes of sparse files.
  void update_zeros(std::uint64_t length);
  std::uint64_t digest() const;
  /// Restores the state of a new object.
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The algorithm of a file's checksum.
enum class SumKind : std::uint8_t {
  xxh3,  // XXH3-64 of the content, as `xxhsum -H3` prints it
  // Covers only the blocks that are not all zero. Holes cost nothing, and every copy has the same
  // value, wherever its holes are.
  xxh3_sparse,
};

/// Returns xxh3_sparse if it saves work: the file has holes, and they may be as large as a block.
SumKind sum_kind_for(std::uint64_t size, std::uint64_t allocated);

struct FileSum {
  std::uint64_t value = 0;
  SumKind kind = SumKind::xxh3;

  FileSum(std::uint64_t sum = 0, SumKind made = SumKind::xxh3) : value(sum), kind(made) {}

  friend bool operator==(const FileSum&, const FileSum&) = default;
};

/// to_text() writes "xxh3:HEX" or "xxh3-sparse:HEX". file_sum_of() parses this form and returns
/// nullopt for any other text.
std::string to_text(const FileSum& sum);
std::optional<FileSum> file_sum_of(std::string_view text);

/// The checksum of a file that the caller feeds from the begin to the end. Not thread-safe.
///
/// xxh3-sparse divides the file into aligned blocks of 1 MiB; the file's end cuts the last block.
/// Each block with a nonzero byte contributes three numbers, in the order of the blocks: the
/// block's offset, its length, and the XXH3-64 of its bytes. Three more numbers follow: the file's
/// size, 0, 0. The checksum is the XXH3-64 of these numbers (64 bits each, little-endian).
class FileChecksum {
 public:
  static constexpr std::uint64_t block_size = 1U << 20U;

  explicit FileChecksum(SumKind kind) : kind_(kind) {
    if (kind == SumKind::xxh3_sparse) {
      block_.emplace();
    }
  }

  void update(std::span<const std::byte> data);
  /// Feeds a hole: the next `length` bytes are zero.
  void skip(std::uint64_t length);
  /// Call once, at the end of the file.
  FileSum finish();

  /// The bytes hashed so far, without skipped holes.
  std::uint64_t hashed() const { return hashed_; }

 private:
  void end_block();
  void add(std::uint64_t offset, std::uint64_t length, std::uint64_t digest);

  const SumKind kind_;
  Checksum sum_;
  std::optional<Checksum> block_;  // with xxh3_sparse
  std::uint64_t at_ = 0;
  std::uint64_t zeros_ = 0;  // zeros at the end of the current block that block_ does not have yet
  bool has_data_ = false;    // the current block has data
  std::uint64_t hashed_ = 0;
};

/// XXH3-128 of a text, as 32 lower-case hexadecimal digits. For names derived from the text.
std::string name_digest(std::string_view text);

/// 16 lower-case hexadecimal digits, as xxhsum prints them.
std::string to_hex(std::uint64_t value);

}  // namespace efs
