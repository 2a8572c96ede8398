// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The bytes of a journal, for tests that damage it.

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

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

}  // namespace efs::test
