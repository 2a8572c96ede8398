// SPDX-License-Identifier: BSD-3-Clause
#include "fs/record.hpp"

#include "fs/record_fields.hpp"

namespace efs::fs {
namespace {

// The records of version 3 have no level, and these types.
constexpr std::uint32_t version_without_levels = 3;
constexpr std::size_t types_without_levels = 15;

template <typename T, typename... Types>
constexpr std::size_t type_of(std::variant<Types...>*) {
  std::size_t index = 0;
  (void)((std::is_same_v<T, Types> || (++index, false)) || ...);
  return index;
}

// The lowest level whose readers can carry out a record of this type.
std::uint8_t needs_of(std::size_t type) {
  constexpr std::size_t content = Record(SetContent{}).index();
  constexpr std::size_t first_event = Record(ledger::Announced{}).index();
  constexpr std::size_t remote = type_of<MakeRemote>(static_cast<Record*>(nullptr));
  if (type == content) {
    return content_level;
  }
  constexpr std::size_t moved = type_of<Moved>(static_cast<Record*>(nullptr));
  if (type > moved) {
    return first_level;  // Pinned: a reader may ignore it
  }
  if (type == moved) {
    return moved_level;
  }
  constexpr std::size_t new_version = type_of<NewVersion>(static_cast<Record*>(nullptr));
  if (type >= new_version) {
    return evicted_level;
  }
  if (type >= remote) {
    return remote_level;
  }
  return type < first_event ? first_level : ledger_level;
}

std::unexpected<Error> too_new(std::size_t type, unsigned needs, unsigned level) {
  return fail(EPROTONOSUPPORT,
              "a record of type " + std::to_string(type) + " needs level " + std::to_string(needs) +
                  " of the format, and this efs has level " + std::to_string(level) +
                  ". Nothing was removed. Open the store with the efs that wrote it, or a newer "
                  "one");
}

// `grows`: bytes behind the known fields are those of a later efs.
template <std::size_t Index = 0>
Result<Record> decode_as(std::size_t type, FieldReader reader, bool grows) {
  if constexpr (Index < std::variant_size_v<Record>) {
    if (type != Index) {
      return decode_as<Index + 1>(type, reader, grows);
    }
    std::variant_alternative_t<Index, Record> record;
    record.fields(reader);
    if (reader.ok() && (grows || reader.at_end())) {
      return record;
    }
  }
  return fail(EPROTO, "record of type " + std::to_string(type) + " has the wrong length");
}

}  // namespace

const MakeNode* node_of(const Record& record) {
  if (const auto* remote = std::get_if<MakeRemote>(&record)) {
    return remote;
  }
  return std::get_if<MakeNode>(&record);
}

std::uint64_t inode_of(const Record& record) {
  return std::visit(
      [](const auto& one) -> std::uint64_t {
        if constexpr (requires { one.ino; }) {
          return one.ino;
        } else {
          return 0;
        }
      },
      record);
}

void encode(const Record& record, std::vector<std::byte>& out) {
  out.push_back(static_cast<std::byte>(record.index()));
  out.push_back(static_cast<std::byte>(needs_of(record.index())));
  // fields() serves reading and writing; the writer changes nothing.
  std::visit([&]<typename T>(const T& one) { const_cast<T&>(one).fields(FieldWriter(out)); },
             record);
}

Result<std::optional<Record>> decode(std::span<const std::byte> bytes, std::uint32_t version,
                                     std::uint8_t level) {
  const bool has_level = version > version_without_levels;
  if (bytes.size() < (has_level ? 2 : 1)) {
    return fail(EPROTO, "empty record");
  }
  const auto type = std::to_integer<std::size_t>(bytes[0]);
  const auto needs = has_level ? std::to_integer<std::uint8_t>(bytes[1]) : std::uint8_t{0};
  const std::size_t known = has_level ? std::variant_size_v<Record> : types_without_levels;
  const auto lowest = type < known ? needs_of(type) : first_level;
  if (has_level && needs < lowest) {
    return fail(EPROTO, "record of type " + std::to_string(type) + " has level " +
                            std::to_string(needs) + ", which no efs writes");
  }
  if (needs > level) {
    return too_new(type, needs, level);
  }
  if (type >= known && has_level) {
    return std::nullopt;
  }
  if (type >= known) {
    return fail(EPROTO, "unknown record type " + std::to_string(type));
  }
  return decode_as(type, FieldReader(bytes.subspan(has_level ? 2 : 1), needs), has_level);
}

}  // namespace efs::fs
