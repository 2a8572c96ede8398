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

/// XXH3-64 of a stream; the value equals checksum() of the concatenation, and `xxhsum -H3`. Not
/// thread-safe. Without memory its constructor throws std::bad_alloc.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;
  void update(std::span<const std::byte> data);
  /// Feeds `length` zero bytes: the holes of sparse files.
  void update_zeros(std::uint64_t length);
  std::uint64_t digest() const;
  /// As a new one.
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// How the checksum of a file is made.
enum class SumKind : std::uint8_t {
  xxh3,  // XXH3-64 of the content, as `xxhsum -H3` prints it
  // By the blocks that are not all zero: holes cost nothing, and every copy has the same value,
  // whichever way its holes lie.
  xxh3_sparse,
};

/// xxh3_sparse where it saves something: the file has holes, and they may be as large as a block.
SumKind sum_kind_for(std::uint64_t size, std::uint64_t allocated);

struct FileSum {
  std::uint64_t value = 0;
  SumKind kind = SumKind::xxh3;

  FileSum(std::uint64_t sum = 0, SumKind made = SumKind::xxh3) : value(sum), kind(made) {}

  friend bool operator==(const FileSum&, const FileSum&) = default;
};

/// "xxh3:HEX", "xxh3-sparse:HEX"; and that read again: none where it is anything else.
std::string to_text(const FileSum& sum);
std::optional<FileSum> file_sum_of(std::string_view text);

/// The checksum of a file that is told from its begin to its end. Not thread-safe.
///
/// xxh3-sparse is the XXH3-64 of three numbers (64 bits each, little-endian) for each aligned block
/// of 1 MiB, the last one cut at the file's end, that has a byte other than zero, in their order:
/// its offset, its length, and the XXH3-64 of its bytes. Three more end it: the file's size, 0, 0.
class FileChecksum {
 public:
  static constexpr std::uint64_t block_size = 1U << 20U;

  explicit FileChecksum(SumKind kind) : kind_(kind) {
    if (kind == SumKind::xxh3_sparse) {
      block_.emplace();
    }
  }

  void update(std::span<const std::byte> data);
  /// The next so many bytes are zero: a hole.
  void skip(std::uint64_t length);
  /// Once, at the end of the file.
  FileSum finish();

  /// Bytes that were hashed so far, which is what it costs.
  std::uint64_t hashed() const { return hashed_; }

 private:
  void end_block();
  void add(std::uint64_t offset, std::uint64_t length, std::uint64_t digest);

  const SumKind kind_;
  Checksum sum_;
  std::optional<Checksum> block_;  // with xxh3_sparse
  std::uint64_t at_ = 0;
  std::uint64_t zeros_ = 0;  // at the end of what is known of the block, and not in block_ yet
  bool has_data_ = false;    // in the block
  std::uint64_t hashed_ = 0;
};

/// XXH3-128 of a text, as 32 lower-case hexadecimal digits: for names that are made of it.
std::string name_digest(std::string_view text);

/// 16 lower-case hexadecimal digits, as xxhsum prints them.
std::string to_hex(std::uint64_t value);

}  // namespace efs
