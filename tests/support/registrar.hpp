// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Registers containers for passthrough without a kernel.

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <set>

#include "fuse/backing.hpp"

namespace efs::test {

/// Registers like the kernel: ids are positive numbers, and each is closed once.
class Registrar final : public fuse::BackingRegistrar {
 public:
  std::vector<Result<int>> open_backing(std::span<const fuse::Registration> files) override {
    ++questions;
    CHECK(files.size() <= most_at_once);
    std::vector<Result<int>> ids;
    for ([[maybe_unused]] const auto& file : files) {
      if (fail_next > 0) {
        --fail_next;
        ids.push_back(fail(EMFILE));
      } else {
        known.insert(++last);
        ids.push_back(last);
      }
    }
    return ids;
  }

  void close_backing(std::span<const int> ids) override {
    ++closings;
    CHECK(ids.size() <= most_at_once);
    for (const int id : ids) {
      CHECK(known.erase(id) == 1);
    }
  }

  std::set<int> known;
  int last = 0, questions = 0, closings = 0, fail_next = 0;
};

/// So many idle ids, whatever the machine has.
inline fuse::BackingTable::IdleLimit at_most(std::size_t ids) {
  return [ids](std::size_t) {
    return ids;
  };
}

}  // namespace efs::test
