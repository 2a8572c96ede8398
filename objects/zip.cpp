// SPDX-License-Identifier: BSD-3-Clause
#include "objects/zip.hpp"

#include <algorithm>
#include <optional>

#include "objects/name.hpp"

namespace efs::objects {

namespace {

constexpr std::uint32_t local_signature = 0x04034b50;
constexpr std::uint32_t central_signature = 0x02014b50;
constexpr std::uint32_t end_signature = 0x06054b50;
constexpr std::uint32_t end64_signature = 0x06064b50;
constexpr std::uint32_t locator_signature = 0x07064b50;
constexpr std::size_t local_size = 30;
constexpr std::size_t central_size = 46;
constexpr std::size_t end_size = 22;
constexpr std::size_t end64_size = 56;
constexpr std::size_t locator_size = 20;
constexpr std::size_t max_comment = 0xffff;
constexpr std::uint32_t ones16 = 0xffff;
constexpr std::uint32_t ones32 = 0xffffffff;

constexpr std::uint64_t alignment = 64;
constexpr std::uint32_t alignment_id = 0xd935;  // an extra field that other programs skip
constexpr std::uint32_t zip64_id = 1;
constexpr std::uint32_t plain_version = 20;
constexpr std::uint32_t zip64_version = 45;
constexpr std::uint32_t made_by = 3U << 8U;  // Unix
constexpr std::uint32_t utf8_flag = 0x800;
constexpr std::uint32_t encrypted_flag = 1;
constexpr std::uint32_t no_date = 0x21;  // 1980-01-01: the same arrays, the same bytes
constexpr std::uint32_t attributes = 0100600U << 16U;  // a regular file

void put(std::string& text, int bytes, std::uint64_t value) {
  for (int i = 0; i < bytes; ++i) {
    text += static_cast<char>(value >> 8 * i & 0xffU);
  }
}

std::uint64_t get(std::string_view text, std::size_t at, int bytes) {
  std::uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; --i) {
    value = value << 8U | static_cast<unsigned char>(text[at + static_cast<std::size_t>(i)]);
  }
  return value;
}

bool has(std::string_view text, std::uint64_t at, std::uint64_t size) {
  return at <= text.size() && size <= text.size() - at;
}

std::uint32_t flags_of(std::string_view name) {
  return std::ranges::any_of(name, [](char byte) { return (byte & 0x80) != 0; }) ? utf8_flag : 0;
}

/// The fields that local and central headers share, from the needed version on.
void put_common(std::string& text, const Member& member, std::uint32_t version) {
  put(text, 2, version);
  put(text, 2, flags_of(member.name));
  put(text, 2, 0);  // stored
  put(text, 2, 0);  // time
  put(text, 2, no_date);
  put(text, 4, member.crc);
  put(text, 4, member.size);
  put(text, 4, member.size);
  put(text, 2, member.name.size() + object_suffix.size());
}

void put_central(std::string& text, const Member& member) {
  const bool far = member.offset >= ones32;
  put(text, 4, central_signature);
  put(text, 2, made_by | zip64_version);
  put_common(text, member, far ? zip64_version : plain_version);
  put(text, 2, far ? 12 : 0);  // extra field
  put(text, 2, 0);             // comment
  put(text, 2, 0);             // disk
  put(text, 2, 0);             // internal attributes
  put(text, 4, attributes);
  put(text, 4, far ? ones32 : member.offset);
  text += member.name;
  text += object_suffix;
  if (far) {
    put(text, 2, zip64_id);
    put(text, 2, 8);
    put(text, 8, member.offset);
  }
}

void put_end64(std::string& text, std::uint64_t count, std::uint64_t size, std::uint64_t offset) {
  put(text, 4, end64_signature);
  put(text, 8, end64_size - 12);
  put(text, 2, made_by | zip64_version);
  put(text, 2, zip64_version);
  put(text, 8, 0);  // disks
  put(text, 8, count);
  put(text, 8, count);
  put(text, 8, size);
  put(text, 8, offset);
  put(text, 4, locator_signature);
  put(text, 4, 0);  // disk
  put(text, 8, offset + size);
  put(text, 4, 1);  // disks
}

std::unexpected<Failure> bad_zip(const std::string& reason) {
  return fail(EBADMSG, "the bundle is damaged: " + reason,
              "Make it again; the file is damaged or not a .npz file");
}

/// Where the central directory is, and how many members it has.
struct Directory {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint64_t count = 0;
};

/// The values of the zip64 end, which replace those of the end at `end`.
Result<Directory> read_end64(std::string_view file, std::size_t end) {
  if (end < locator_size || get(file, end - locator_size, 4) != locator_signature) {
    return bad_zip("the locator of its directory is missing");
  }
  const std::uint64_t at = get(file, end - locator_size + 8, 8);
  if (!has(file.substr(0, end - locator_size), at, end64_size) ||
      get(file, at, 4) != end64_signature) {
    return bad_zip("the position of its directory is wrong");
  }
  const Directory directory{get(file, at + 48, 8), get(file, at + 40, 8), get(file, at + 32, 8)};
  return has(file.substr(0, at), directory.offset, directory.size)
             ? Result<Directory>(directory)
             : bad_zip("its directory is outside of the file");
}

Result<Directory> read_end(std::string_view file) {
  const std::size_t last = file.size() < end_size ? 0 : file.size() - end_size;
  const std::size_t first = last > max_comment ? last - max_comment : 0;
  for (std::size_t at = last + 1; at-- > first && file.size() >= end_size;) {
    if (get(file, at, 4) != end_signature || at + end_size + get(file, at + 20, 2) != file.size()) {
      continue;
    }
    const Directory directory{get(file, at + 16, 4), get(file, at + 12, 4), get(file, at + 10, 2)};
    if (directory.count == ones16 || directory.size == ones32 || directory.offset == ones32) {
      return read_end64(file, at);
    }
    return has(file.substr(0, at), directory.offset, directory.size)
               ? Result<Directory>(directory)
               : bad_zip("its directory is outside of the file");
  }
  return bad_zip("it has no end");
}

/// Replaces values that do not fit 32 bits by those of the zip64 extra field.
bool read_zip64(std::string_view extra, std::uint64_t& size, std::uint64_t& packed,
                std::uint64_t& offset) {
  if (size != ones32 && packed != ones32 && offset != ones32) {
    return true;
  }
  while (extra.size() >= 4) {
    const std::uint64_t length = get(extra, 2, 2);
    if (!has(extra, 4, length)) {
      return false;
    }
    std::string_view field = extra.substr(4, length);
    if (get(extra, 0, 2) == zip64_id) {
      for (std::uint64_t* value : {&size, &packed, &offset}) {
        if (*value == ones32) {
          if (field.size() < 8) {
            return false;
          }
          *value = get(field, 0, 8);
          field.remove_prefix(8);
        }
      }
      return true;
    }
    extra.remove_prefix(4 + length);
  }
  return false;
}

/// Sets the start of a member from its local header. Returns false if the header is not that of the
/// member, or the bytes are not before `limit`.
bool read_local(std::string_view file, std::string_view full_name, Member& member) {
  if (!has(file, member.offset, local_size) || get(file, member.offset, 4) != local_signature) {
    return false;
  }
  const std::uint64_t name = get(file, member.offset + 26, 2);
  const std::uint64_t extra = get(file, member.offset + 28, 2);
  const std::uint64_t at = member.offset + local_size;
  if (!has(file, at, name + extra) || file.substr(at, name) != full_name) {
    return false;
  }
  member.start = at + name + extra;
  return !member.stored || has(file, member.start, member.size);
}

/// Reads one entry of the directory, and removes it. Returns NULL for a damaged one.
std::optional<Member> read_entry(std::string_view& directory, std::string_view before) {
  if (directory.size() < central_size || get(directory, 0, 4) != central_signature) {
    return std::nullopt;
  }
  const std::uint64_t name = get(directory, 28, 2);
  const std::uint64_t extra = get(directory, 30, 2);
  const std::uint64_t comment = get(directory, 32, 2);
  if (!has(directory, central_size, name + extra + comment)) {
    return std::nullopt;
  }
  Member member;
  member.crc = static_cast<std::uint32_t>(get(directory, 16, 4));
  member.stored = get(directory, 10, 2) == 0 && (get(directory, 8, 2) & encrypted_flag) == 0;
  std::uint64_t packed = get(directory, 20, 4);
  member.size = get(directory, 24, 4);
  member.offset = get(directory, 42, 4);
  const std::string_view full_name = directory.substr(central_size, name);
  if (!read_zip64(directory.substr(central_size + name, extra), member.size, packed,
                  member.offset) ||
      (member.stored && packed != member.size) || !read_local(before, full_name, member)) {
    return std::nullopt;
  }
  if (full_name.ends_with(object_suffix)) {
    member.name = full_name.substr(0, name - object_suffix.size());
  }
  directory.remove_prefix(central_size + name + extra + comment);
  return member;
}

}  // namespace

std::string local_header(Member& member) {
  std::string text;
  const std::uint64_t before = local_size + member.name.size() + object_suffix.size() + 4 + 2;
  const std::uint64_t padding = (alignment - (member.offset + before) % alignment) % alignment;
  text.reserve(before + padding);
  put(text, 4, local_signature);
  put_common(text, member, plain_version);
  put(text, 2, 4 + 2 + padding);
  text += member.name;
  text += object_suffix;
  put(text, 2, alignment_id);
  put(text, 2, 2 + padding);
  put(text, 2, alignment);
  text.append(padding, '\0');
  member.start = member.offset + text.size();
  return text;
}

std::string zip_end(const std::vector<Member>& members, std::uint64_t offset) {
  std::string text;
  for (const Member& member : members) {
    put_central(text, member);
  }
  const std::uint64_t size = text.size();
  if (members.size() >= ones16 || size >= ones32 || offset >= ones32) {
    put_end64(text, members.size(), size, offset);
  }
  put(text, 4, end_signature);
  put(text, 4, 0);  // disks
  put(text, 2, std::min<std::uint64_t>(members.size(), ones16));
  put(text, 2, std::min<std::uint64_t>(members.size(), ones16));
  put(text, 4, std::min<std::uint64_t>(size, ones32));
  put(text, 4, std::min<std::uint64_t>(offset, ones32));
  put(text, 2, 0);  // comment
  return text;
}

Result<std::vector<Member>> parse_zip(std::string_view file) {
  const auto found = read_end(file);
  if (!found) {
    return std::unexpected(found.error());
  }
  std::string_view directory = file.substr(found->offset, found->size);
  if (found->count > directory.size() / central_size) {
    return bad_zip("its directory is too short");
  }
  std::vector<Member> members;
  members.reserve(found->count);
  for (std::uint64_t i = 0; i < found->count; ++i) {
    auto member = read_entry(directory, file.substr(0, found->offset));
    if (!member) {
      return bad_zip("member " + std::to_string(i) + " is not valid");
    }
    // Members without a valid name have no name in the library.
    if (check_name(member->name)) {
      members.push_back(std::move(*member));
    }
  }
  return members;
}

}  // namespace efs::objects
