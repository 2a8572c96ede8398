// SPDX-License-Identifier: BSD-3-Clause
#include "backends/devdax/superblock.hpp"

#include <sys/random.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/checksum.hpp"

namespace efs::devdax {
namespace {

constexpr std::array<char, 8> magic{'E', 'F', 'S', 'D', 'A', 'X', 'S', 'B'};
constexpr std::uint32_t zero_before_use_flag = 1, unfinished_flag = 2;
constexpr std::uint64_t looked_at = 1U << 20U;  // the first bytes, in which content shows

/// As it is on the device. Magic, version, length and checksum stay at their places in all later
/// versions.
struct Raw {
  std::array<char, 8> magic{};
  std::uint32_t version = 0, length = 0;
  std::uint64_t generation = 0;
  std::array<std::uint8_t, 16> uuid{};
  std::uint32_t owner = 0, flags = 0;
  std::uint64_t size = 0;
  std::uint64_t metadata_offset = 0, metadata_length = 0;
  std::uint64_t data_offset = 0, data_blocks = 0, block = 0;
  std::uint64_t reserved = 0;
  std::uint64_t checksum = 0;
};

static_assert(sizeof(Raw) == 112 && offsetof(Raw, uuid) == 24 && offsetof(Raw, size) == 48 &&
              offsetof(Raw, metadata_offset) == 56 && offsetof(Raw, data_offset) == 72 &&
              offsetof(Raw, checksum) == 104);

std::uint64_t sum_of(const Raw& raw) {
  return checksum(std::as_bytes(std::span(&raw, 1)).first(offsetof(Raw, checksum)));
}

Raw raw_of(const Superblock& from, bool unfinished) {
  Raw raw{.magic = magic,
          .version = superblock_version,
          .length = sizeof(Raw),
          .generation = from.generation,
          .uuid = from.uuid,
          .owner = from.owner,
          .flags = (from.zero_before_use ? zero_before_use_flag : 0) |
                   (unfinished ? unfinished_flag : 0),
          .size = from.size,
          .metadata_offset = from.metadata.offset,
          .metadata_length = from.metadata.length,
          .data_offset = from.data.offset,
          .data_blocks = from.data.blocks,
          .block = from.data.block};
  raw.checksum = sum_of(raw);
  return raw;
}

Superblock superblock_of(const Raw& raw) {
  return {.generation = raw.generation,
          .uuid = raw.uuid,
          .owner = raw.owner,
          .zero_before_use = (raw.flags & zero_before_use_flag) != 0,
          .size = raw.size,
          .metadata = {.offset = raw.metadata_offset, .length = raw.metadata_length},
          .data = {.offset = raw.data_offset, .blocks = raw.data_blocks, .block = raw.block}};
}

Raw copy_at(DeviceMemory& device, std::uint64_t offset) {
  Raw raw;
  std::memcpy(&raw, device.bytes().data() + offset, sizeof raw);
  return raw;
}

bool is_valid(const Raw& raw) {
  return raw.magic == magic && raw.version == superblock_version && raw.length == sizeof(Raw) &&
         raw.checksum == sum_of(raw);
}

/// The index of the latest copy.
std::optional<std::size_t> latest(const std::array<Raw, 2>& copies) {
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    if (is_valid(copies[i]) && (!found || copies[i].generation > copies[*found].generation)) {
      found = i;
    }
  }
  return found;
}

std::optional<std::size_t> latest(DeviceMemory& device) {
  return latest({copy_at(device, superblock_at[0]), copy_at(device, superblock_at[1])});
}

/// The copy that is not the latest goes first, so that the latest is whole until it is replaced.
void write_both(DeviceMemory& device, const Raw& raw) {
  const auto newest = latest(device);
  const std::size_t first = newest ? 1 - *newest : 0;
  for (const std::size_t copy : {first, 1 - first}) {
    device.store(device.bytes().data() + superblock_at[copy], std::as_bytes(std::span(&raw, 1)));
    device.drain();
  }
}

bool fits(const Superblock& one, std::uint64_t device_size) {
  return one.size <= device_size && one.data.is_sound() && one.metadata.offset >= metadata_begin &&
         one.metadata.length < one.size && one.metadata.offset < one.size &&
         one.metadata.end() <= one.data.offset && one.data.offset < one.size &&
         one.data.bytes() <= one.size - one.data.offset;
}

struct KnownContent {
  std::uint64_t offset;
  std::string_view bytes, name;
};

using namespace std::string_view_literals;

constexpr std::array known_contents{
    KnownContent{0, "XFSB"sv, "an XFS file system"},
    KnownContent{0x438, "\x53\xef"sv, "an ext2, ext3 or ext4 file system"},
    KnownContent{0x10040, "_BHRfS_M"sv, "a Btrfs file system"},
    KnownContent{0, "LUKS\xba\xbe"sv, "an encrypted volume (LUKS)"},
    KnownContent{0, "PMEMPOOL"sv, "a poolset of PMDK"},
    KnownContent{0, "PMEMOBJ\0"sv, "a pool of libpmemobj"},
    KnownContent{0, "PMEMBLK\0"sv, "a pool of libpmemblk"},
    KnownContent{0, "PMEMLOG\0"sv, "a pool of libpmemlog"},
    KnownContent{0x200, "LABELONE"sv, "a physical volume of LVM"},
    KnownContent{0x200, "EFI PART"sv, "a partition table (GPT)"},
    KnownContent{0x1fe, "\x55\xaa"sv, "a partition table (MBR)"}};

std::string name_of_content(std::span<const std::byte> bytes) {
  for (const auto& known : known_contents) {
    if (known.offset + known.bytes.size() <= bytes.size() &&
        std::memcmp(bytes.data() + known.offset, known.bytes.data(), known.bytes.size()) == 0) {
      return std::string(known.name);
    }
  }
  return "bytes that are not zero";
}

Found without_superblock(DeviceMemory& device, const std::array<Raw, 2>& copies) {
  for (const Raw& raw : copies) {
    if (raw.magic == magic && raw.version > superblock_version) {
      return {.content = Content::another_version,
              .superblock = {},
              .unfinished = false,
              .text = "a superblock of version " + std::to_string(raw.version)};
    }
  }
  if (copies[0].magic == magic || copies[1].magic == magic) {
    return {.content = Content::damaged,
            .superblock = {},
            .unfinished = false,
            .text = "both superblocks are damaged"};
  }
  const auto bytes = device.bytes();
  const auto first = bytes.first(std::min<std::uint64_t>(bytes.size(), looked_at));
  if (std::ranges::all_of(first, [](std::byte byte) { return byte == std::byte{0}; })) {
    return {};
  }
  return {.content = Content::foreign,
          .superblock = {},
          .unfinished = false,
          .text = name_of_content(first)};
}

void zero_metadata(DeviceMemory& device, const DeviceRange& range) {
  const std::vector<std::byte> zeros(std::min<std::uint64_t>(range.length, 1U << 20U));
  for (std::uint64_t done = 0; done < range.length;) {
    const auto part = std::min<std::uint64_t>(zeros.size(), range.length - done);
    device.store(device.bytes().data() + range.offset + done, std::span(zeros).first(part));
    done += part;
  }
  device.drain();
}

/// The data range may be trusted if all that was stored there was this user's.
bool is_all_own(const Found& found) {
  return found.content == Content::own && !found.superblock->zero_before_use;
}

}  // namespace

Found read_superblock(DeviceMemory& device, uid_t owner) {
  const std::array copies{copy_at(device, superblock_at[0]), copy_at(device, superblock_at[1])};
  const auto newest = latest(copies);
  if (!newest) {
    return without_superblock(device, copies);
  }
  const Superblock one = superblock_of(copies[*newest]);
  if (!fits(one, device.bytes().size())) {
    return {.content = Content::damaged,
            .superblock = {},
            .unfinished = false,
            .text = "its superblock describes a device of " + std::to_string(one.size) +
                    " bytes, and this one has " + std::to_string(device.bytes().size())};
  }
  return {.content = one.owner == owner ? Content::own : Content::another_users,
          .superblock = one,
          .unfinished = (copies[*newest].flags & unfinished_flag) != 0,
          .text = "a store of user " + std::to_string(one.owner)};
}

Status may_format(const Found& found, const std::string& path, bool force) {
  if (force || found.content == Content::empty) {
    return {};
  }
  const std::string has = "the device " + path + " has " + found.text;
  const std::string remedy = ". --format overwrites it";
  switch (found.content) {
    case Content::own: return fail(EEXIST, has + remedy);
    case Content::another_users: return fail(EACCES, has + remedy);
    case Content::damaged:
      return fail(EUCLEAN, "the device " + path + " has a damaged store: " + found.text + remedy);
    case Content::another_version:
      return fail(EUCLEAN, has + ", which only a later efs knows" + remedy);
    default: return fail(EUCLEAN, has + remedy);
  }
}

Result<Superblock> format(DeviceMemory& device, const Found& found, const FormatOptions& options) {
  const std::uint64_t size = device.bytes().size(), align = std::max(options.align, options.block);
  if (!BlockLayout{.offset = 0, .blocks = 1, .block = options.block}.is_sound()) {
    return fail(EINVAL, "the block size " + std::to_string(options.block) +
                            " is not a power of two from " +
                            std::to_string(BlockLayout::smallest_block) + " to " +
                            std::to_string(BlockLayout::largest_block));
  }
  Superblock made;
  made.size = size;
  made.owner = options.owner;
  made.zero_before_use = !is_all_own(found);
  made.data.block = options.block;
  made.metadata.offset = metadata_begin;
  // an eighth of a small device
  made.metadata.length = std::min(options.metadata, size / 8) / 4096 * 4096;
  made.data.offset = round_up(made.metadata.end(), align);
  made.data.blocks = made.data.offset < size ? (size - made.data.offset) / options.block : 0;
  if (made.data.blocks == 0) {
    return fail(ENOSPC, "the device has " + std::to_string(size) +
                            " bytes, which is too little for its metadata and one block of " +
                            std::to_string(options.block));
  }
  // What lies between belongs to the metadata.
  made.metadata.length = made.data.offset - made.metadata.offset;
  if (::getrandom(made.uuid.data(), made.uuid.size(), 0) !=
      static_cast<ssize_t>(made.uuid.size())) {
    return fail_errno("getrandom");
  }
  const auto newest = latest(device);
  made.generation = newest ? copy_at(device, superblock_at[*newest]).generation + 1 : 1;
  write_both(device, raw_of(made, true));
  return finish_format(device, made);
}

Result<Superblock> finish_format(DeviceMemory& device, const Superblock& superblock) {
  zero_metadata(device, superblock.metadata);
  Superblock finished = superblock;
  ++finished.generation;
  write_both(device, raw_of(finished, false));
  return finished;
}

}  // namespace efs::devdax
