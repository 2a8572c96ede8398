// SPDX-License-Identifier: BSD-3-Clause
#include "store/file_table.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "base/checksum.hpp"
#include "store/format.hpp"

namespace efs::store {
namespace {

constexpr std::array<char, 8> table_magic{'E', 'F', 'S', 'D', 'M', 'E', 'T', 'A'};
constexpr std::uint32_t table_version = 1;
constexpr std::uint64_t chunk_pages = journal_chunk / table_page;

struct RawTable {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t length;  // bytes, with this header
  std::uint64_t generation;
  std::uint32_t files;
  std::uint32_t reserved;
  std::uint64_t checksum;  // of all bytes, with 0 in this field
};

struct RawFile {
  std::array<char, TableFile::longest_name + 1> name;  // ends with zeros
  std::uint64_t size;
  std::uint32_t pieces;  // PageRanges that follow
  std::uint32_t reserved;
};

static_assert(sizeof(RawTable) == 40 && sizeof(RawFile) == 56 && sizeof(PageRange) == 8);

std::span<const std::byte> raw_bytes(const auto& object) {
  return {reinterpret_cast<const std::byte*>(&object), sizeof object};
}

void append(std::vector<std::byte>& to, std::span<const std::byte> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

/// Takes objects from the front of `bytes`. False: there are too few bytes.
bool take(std::span<const std::byte>& bytes, auto& object) {
  if (bytes.size() < sizeof object) {
    return false;
  }
  std::memcpy(&object, bytes.data(), sizeof object);
  bytes = bytes.subspan(sizeof object);
  return true;
}

std::uint64_t checksum_of(std::span<const std::byte> table) {
  std::vector<std::byte> copy(table.begin(), table.end());
  std::memset(copy.data() + offsetof(RawTable, checksum), 0, sizeof(RawTable::checksum));
  return checksum(copy);
}

std::span<const std::byte> copy_in(DeviceMemory& range, std::size_t number) {
  return range.bytes().subspan(number * table_bytes, table_bytes);
}

bool is_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

std::optional<TableFile> take_file(std::span<const std::byte>& bytes) {
  RawFile raw{};
  if (!take(bytes, raw) || raw.name.back() != '\0' || raw.pieces > bytes.size()) {
    return std::nullopt;
  }
  TableFile file{.name = raw.name.data(), .size = raw.size, .pieces = {}};
  for (std::uint32_t i = 0; i < raw.pieces; ++i) {
    PageRange piece;
    if (!take(bytes, piece)) {
      return std::nullopt;
    }
    file.pieces.push_back(piece);
  }
  return file;
}

/// No name is there twice, and the files are in the range, have pages for their sizes and do not
/// overlap.
bool is_sound(const FileTable& table, std::uint64_t pages) {
  std::vector<PageRange> all;
  std::set<std::string_view> names;
  for (const auto& file : table.files) {
    if (file.name.empty() || !names.insert(file.name).second ||
        file.size > file.pages() * table_page) {
      return false;
    }
    all.insert(all.end(), file.pieces.begin(), file.pieces.end());
  }
  std::ranges::sort(all, {}, &PageRange::first);
  std::uint64_t from = first_page;
  for (const auto& piece : all) {
    if (piece.first < from || piece.count == 0 || piece.end() > pages) {
      return false;
    }
    from = piece.end();
  }
  return true;
}

std::optional<RawTable> head_of(std::span<const std::byte> copy) {
  RawTable raw{};
  if (!take(copy, raw) || raw.magic != table_magic) {
    return std::nullopt;
  }
  return raw;
}

std::optional<FileTable> decode(std::span<const std::byte> copy, std::uint64_t pages) {
  const auto raw = head_of(copy);
  if (!raw || raw->version != table_version || raw->length < sizeof(RawTable) ||
      raw->length > copy.size() || checksum_of(copy.first(raw->length)) != raw->checksum) {
    return std::nullopt;
  }
  FileTable table{.generation = raw->generation, .files = {}};
  auto rest = copy.first(raw->length).subspan(sizeof(RawTable));
  for (std::uint32_t i = 0; i < raw->files; ++i) {
    auto file = take_file(rest);
    if (!file) {
      return std::nullopt;
    }
    table.files.push_back(std::move(*file));
  }
  return rest.empty() && is_sound(table, pages) ? std::optional(std::move(table)) : std::nullopt;
}

std::vector<std::byte> encode(const FileTable& table) {
  std::vector<std::byte> bytes(sizeof(RawTable));
  for (const auto& file : table.files) {
    RawFile raw{.name = {},
                .size = file.size,
                .pieces = static_cast<std::uint32_t>(file.pieces.size()),
                .reserved = 0};
    file.name.copy(raw.name.data(), TableFile::longest_name);
    append(bytes, raw_bytes(raw));
    for (const auto& piece : file.pieces) {
      append(bytes, raw_bytes(piece));
    }
  }
  RawTable raw{.magic = table_magic,
               .version = table_version,
               .length = static_cast<std::uint32_t>(bytes.size()),
               .generation = table.generation,
               .files = static_cast<std::uint32_t>(table.files.size()),
               .reserved = 0,
               .checksum = 0};
  std::memcpy(bytes.data(), &raw, sizeof raw);
  raw.checksum = checksum(bytes);
  std::memcpy(bytes.data(), &raw, sizeof raw);
  return bytes;
}

}  // namespace

std::uint64_t pages_of(DeviceMemory& range) {
  return std::min<std::uint64_t>(range.bytes().size() / table_page, UINT32_MAX);
}

std::uint64_t TableFile::pages() const {
  std::uint64_t sum = 0;
  for (const auto& piece : pieces) {
    sum += piece.count;
  }
  return sum;
}

std::optional<std::uint64_t> TableFile::find(std::uint64_t offset, std::uint64_t length) const {
  for (const auto& piece : pieces) {
    const std::uint64_t bytes = piece.count * table_page;
    if (offset < bytes) {
      return length <= bytes - offset ? std::optional(piece.first * table_page + offset)
                                      : std::nullopt;
    }
    offset -= bytes;
  }
  return std::nullopt;
}

Result<FileTable> read_table(DeviceMemory& range) {
  const std::uint64_t pages = pages_of(range);
  if (pages <= first_page) {
    return fail(ENOSPC, "the metadata range of the device has " +
                            std::to_string(range.bytes().size()) + " bytes");
  }
  const auto one = copy_in(range, 0), other = copy_in(range, 1);
  auto first = decode(one, pages), second = decode(other, pages);
  for (const auto& head : {head_of(one), head_of(other)}) {
    if (!first && !second && head && head->version > table_version) {
      return fail(EPROTONOSUPPORT, "the metadata of the device have version " +
                                       std::to_string(head->version) +
                                       ", which only a later efs reads");
    }
  }
  if (first && (!second || first->generation >= second->generation)) {
    return std::move(*first);
  }
  if (second) {
    return std::move(*second);
  }
  // The first table of all is written to the first copy first.
  if (is_zero(other)) {
    return FileTable{};
  }
  return fail(EUCLEAN, "both tables of the device's metadata are damaged");
}

Status write_table(DeviceMemory& range, const FileTable& table) {
  const std::vector<std::byte> bytes = encode(table);
  if (bytes.size() > table_bytes) {
    return fail(ENOSPC, "the table of the device's metadata is full");
  }
  // The copy that read_table() would choose is written last.
  const std::uint64_t pages = pages_of(range);
  const auto first = decode(copy_in(range, 0), pages), second = decode(copy_in(range, 1), pages);
  const bool is_first_last = first && (!second || second->generation < first->generation);
  for (const std::size_t copy : {std::size_t{is_first_last}, std::size_t{!is_first_last}}) {
    range.store(range.bytes().data() + copy * table_bytes, bytes);
    range.drain();
  }
  return {};
}

FreePages::FreePages(std::uint64_t pages, std::vector<PageRange> used)
    : pages_(pages), used_(std::move(used)) {
  std::ranges::sort(used_, {}, &PageRange::first);
}

Status FreePages::lengthen(std::vector<PageRange>& pieces, std::uint64_t now,
                           std::uint64_t wanted) {
  std::vector<PageRange> longer = pieces;
  while (now < wanted) {
    const auto part =
        static_cast<std::uint32_t>(std::min(wanted - now, chunk_pages - now % chunk_pages));
    const bool goes_on = !longer.empty() && is_free(longer.back().end(), part);
    const auto first = goes_on ? static_cast<std::uint32_t>(longer.back().end()) : find(part);
    // A piece that does not go on begins at a multiple of a chunk only.
    if (!first || (!goes_on && now % chunk_pages != 0)) {
      return fail(ENOSPC, "the metadata range of the device is full");
    }
    use({.first = *first, .count = part});
    if (goes_on) {
      longer.back().count += part;
    } else {
      longer.push_back({.first = *first, .count = part});
    }
    now += part;
  }
  pieces = std::move(longer);
  return {};
}

// Whole chunks are taken from the front, and less from the back: so a file of a page does not break
// the space of a chunk.
std::optional<std::uint32_t> FreePages::find(std::uint32_t count) const {
  std::optional<std::uint32_t> found;
  std::uint64_t from = first_page;
  const auto look = [&](std::uint64_t end) {
    if (end >= from + count && (!found || count < chunk_pages)) {
      found = static_cast<std::uint32_t>(count < chunk_pages ? end - count : from);
    }
  };
  for (const auto& range : used_) {
    look(range.first);
    from = range.end();
  }
  look(pages_);
  return found;
}

bool FreePages::is_free(std::uint64_t first, std::uint32_t count) const {
  return first + count <= pages_ && std::ranges::none_of(used_, [&](const PageRange& range) {
           return range.first < first + count && first < range.end();
         });
}

void FreePages::use(PageRange range) {
  used_.insert(std::ranges::upper_bound(used_, range.first, {}, &PageRange::first), range);
}

}  // namespace efs::store
