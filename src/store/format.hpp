// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The format of the journal: little-endian, version 4. src/store/README.md describes it.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace efs::store {

inline constexpr std::array<char, 8> journal_magic{'E', 'F', 'S', 'J', 'R', 'N', 'L', '\0'};
inline constexpr std::uint32_t journal_version = 4;
// efs also reads the versions from this one on. Only a snapshot makes another version of a journal.
inline constexpr std::uint32_t oldest_version = 3;
// bytes; no record crosses a multiple of it
inline constexpr std::uint64_t journal_chunk = 4u << 20;
inline constexpr std::uint64_t record_alignment = 8;
inline constexpr std::uint64_t unfinished = UINT64_MAX;

struct JournalHeader {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t header_size;
  std::uint64_t first_sequence;  // of the first record in the file
  std::uint64_t chunk;
  // the last record when the journal got its name; unfinished: it never got one
  std::uint64_t complete_to;
  std::array<std::uint8_t, 16> instance;  // of the store: see instance_id.hpp
  std::uint64_t checksum;                 // XXH3 of the fields above
};

static_assert(sizeof(JournalHeader) == 64);
static_assert(offsetof(JournalHeader, version) == 8 &&
              offsetof(JournalHeader, first_sequence) == 16 &&
              offsetof(JournalHeader, chunk) == 24 && offsetof(JournalHeader, complete_to) == 32 &&
              offsetof(JournalHeader, instance) == 40 && offsetof(JournalHeader, checksum) == 56);
static_assert(std::endian::native == std::endian::little,
              "the medium is little-endian and the code copies native integers");

struct RecordHeader {
  // bytes of the payload; 0: no record here; end_of_chunk: the next record is in the next chunk
  std::uint32_t length;
  // when this record was appended, all records up to `sequence` minus this survived power loss; 0:
  // unknown
  std::uint32_t unsettled;
  std::uint64_t sequence;
  std::uint64_t request;
  std::uint64_t checksum;  // XXH3 of the 24 bytes above, followed by the payload
};

static_assert(sizeof(RecordHeader) == 32 && sizeof(RecordHeader) % record_alignment == 0);
static_assert(offsetof(RecordHeader, sequence) == 8 && offsetof(RecordHeader, request) == 16 &&
              offsetof(RecordHeader, checksum) == 24);
inline constexpr std::uint32_t end_of_chunk = 0xffffffff;

/// The file beside the journal with the number of the last record. Not durable; ignored after power
/// loss.
inline constexpr std::array<char, 8> last_magic{'E', 'F', 'S', 'L', 'A', 'S', 'T', '\0'};
inline constexpr std::uint64_t last_size = 4096;  // bytes of the file

struct LastRecord {
  std::array<char, 8> magic;
  std::array<std::uint8_t, 16> instance;
  std::uint64_t sequence;
};

static_assert(sizeof(LastRecord) == 32 && offsetof(LastRecord, sequence) == 24);

}  // namespace efs::store
