// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The bytes of a journal, for tests that damage it.

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/checksum.hpp"
#include "store/format.hpp"

namespace efs::test {

inline store::JournalHeader header_of(const std::string& journal) {
  store::JournalHeader header{};
  std::memcpy(&header, journal.data(), sizeof header);
  return header;
}

/// Returns the offsets of the records in a journal of one chunk, and the end of the last.
inline std::vector<std::size_t> record_offsets(const std::string& journal) {
  std::vector<std::size_t> offsets;
  std::size_t at = sizeof(store::JournalHeader);
  for (store::RecordHeader header{};; at += (sizeof header + header.length + 7) / 8 * 8) {
    offsets.push_back(at);
    std::memcpy(&header, journal.data() + at, sizeof header);
    if (header.length == 0) {
      return offsets;
    }
  }
}

/// Returns a journal that lost all bytes from `offset` on. `shorter`: the file ends there;
/// otherwise zeros follow.
inline std::string cut_at(const std::string& journal, std::size_t offset, bool shorter) {
  std::string cut = journal.substr(0, offset);
  if (!shorter) {
    cut.resize(journal.size());
  }
  return cut;
}

/// Sets the checksum of a header that a test has changed.
inline void seal(store::JournalHeader& header) {
  header.checksum = checksum(
      std::as_bytes(std::span(&header, 1)).first(offsetof(store::JournalHeader, checksum)));
}

/// Sets the checksum of a record at `at` that a test has changed.
inline void seal_record(std::string& journal, std::size_t at) {
  store::RecordHeader header{};
  std::memcpy(&header, journal.data() + at, sizeof header);
  const std::string summed = journal.substr(at, offsetof(store::RecordHeader, checksum)) +
                             journal.substr(at + sizeof header, header.length);
  header.checksum = checksum(std::as_bytes(std::span(summed)));
  std::memcpy(journal.data() + at, &header, sizeof header);
}

/// Returns the good records of a journal of one chunk as an efs of format 3 wrote them: payloads
/// without a level.
inline std::string in_format_3(const std::string& journal) {
  std::string old = journal.substr(0, sizeof(store::JournalHeader));
  store::JournalHeader journal_header = header_of(old);
  journal_header.version = 3;
  seal(journal_header);
  std::memcpy(old.data(), &journal_header, sizeof journal_header);
  store::RecordHeader header{};
  for (std::size_t at = old.size(); at + sizeof header < journal.size();) {
    std::memcpy(&header, journal.data() + at, sizeof header);
    std::string record = journal.substr(at, sizeof header + header.length);
    const std::string before = record;
    if (header.length < 2 || record.size() != sizeof header + header.length) {
      break;
    }
    seal_record(record, 0);
    if (record != before) {
      break;  // torn
    }
    at += (record.size() + 7) / 8 * 8;
    record.erase(sizeof header + 1, 1);
    --header.length;
    std::memcpy(record.data(), &header, sizeof header);
    seal_record(record, 0);
    record.resize((record.size() + 7) / 8 * 8);
    old += record;
  }
  old.resize(journal.size());
  return old;
}

}  // namespace efs::test
