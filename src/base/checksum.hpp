#pragma once
// XXH3, 64 bits (xxHash's specification, doc/xxhash_spec.md there). Detects accidents, not adversaries.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace efs {

/// XXH3-64 of a block of memory.
std::uint64_t checksum(std::span<const std::byte> data);

/// XXH3-64 of a stream; the value equals checksum() of the concatenation, and `xxhsum -H3`. Not thread-safe. Without memory its
/// constructor throws std::bad_alloc.
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

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// XXH3-128 of a text, as 32 lower-case hexadecimal digits: for names that are made of it.
std::string name_digest(std::string_view text);

/// 16 lower-case hexadecimal digits, as xxhsum prints them.
std::string to_hex(std::uint64_t value);

}  // namespace efs
