// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The table of the metadata files on a device: their names, sizes and pages. src/store/README.md,
// "Metadata on a device", has the format.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/device_memory.hpp"
#include "base/result.hpp"

namespace efs::store {

inline constexpr std::uint64_t table_page = 4096;         // bytes
inline constexpr std::uint64_t table_bytes = 64U << 10U;  // of each of the two copies
inline constexpr std::uint64_t first_page = 2 * table_bytes / table_page;

/// Pages of the range that follow one another. Page 0 is the range's first.
struct PageRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;

  std::uint64_t end() const { return std::uint64_t{first} + count; }

  bool operator==(const PageRange&) const = default;
};

struct TableFile {
  static constexpr std::size_t longest_name = 39;  // bytes

  std::string name;
  std::uint64_t size = 0;         // bytes
  std::vector<PageRange> pieces;  // in the order of the file

  /// All pages of the pieces.
  std::uint64_t pages() const;
  /// The place in the range of the bytes [offset, offset + length) of the file. nullopt: they are
  /// not in one piece.
  std::optional<std::uint64_t> find(std::uint64_t offset, std::uint64_t length) const;

  bool operator==(const TableFile&) const = default;
};

struct FileTable {
  std::uint64_t generation = 0;  // increases with every write
  std::vector<TableFile> files;
};

/// The pages of a range, with those of the tables.
std::uint64_t pages_of(DeviceMemory& range);

/// Reads the newest valid copy. A range of zeros has no file yet. EUCLEAN with a text if neither
/// copy is valid, EPROTONOSUPPORT if only a later efs can read the table, ENOSPC if the range is
/// too small.
Result<FileTable> read_table(DeviceMemory& range);

/// Writes both copies, one after the other; durable on return. A crash leaves this table or the
/// former one. ENOSPC, with nothing written, if the table is too long.
Status write_table(DeviceMemory& range, const FileTable& table);

/// Chooses pages for the files of a range.
class FreePages {
 public:
  /// `pages`: of the whole range.
  FreePages(std::uint64_t pages, std::vector<PageRange> used);

  /// Lengthens `pieces` from `now` pages to `wanted`. A window of the journal must be in one piece:
  /// so the pages between two multiples of its chunk are in one. ENOSPC: `pieces` is as before.
  Status lengthen(std::vector<PageRange>& pieces, std::uint64_t now, std::uint64_t wanted);

 private:
  std::optional<std::uint32_t> find(std::uint32_t count) const;
  bool is_free(std::uint64_t first, std::uint32_t count) const;
  void use(PageRange range);

  const std::uint64_t pages_;
  std::vector<PageRange> used_;  // in order
};

}  // namespace efs::store
