// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The options of a transfer.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/result.hpp"
#include "stage/pfs/pauses.hpp"
#include "stage/pfs/publisher.hpp"

namespace efs::stage {

class Cache;
class OpenedDirectories;
class PlacedNames;

struct Options {
  // upper bound on threads; 0: up to 64, as many as the PFS keeps waiting
  unsigned workers = 0;
  // load, unload: leaves one of several processors to programs
  bool beside_programs = false;
  std::uint64_t transfer_size = 2U << 20U;  // bytes per PFS request
  // stage-out: bytes that one batch makes durable together; an eighth of that if there is a
  // deadline
  std::uint64_t batch_bytes = 1U << 30U;
  // stage-out: how many files left by a deadline the receipt names
  std::size_t most_not_tried = 100'000;
  bool by_rank = false;          // stage-out with a deadline: in the order of the job file's rules
  std::string partial_tag = {};  // stage-out: the tag of the store (partial_tag_of())
  // stage-out: an earlier process of the store may have been killed during a transfer, or a
  // transfer of this process may have failed without cleaning up
  bool has_a_past = false;
  // stage-out: directories whose results go whole or not at all: each gets its name in results-dir
  // when all of them are durable. A conflict if results-dir has the directory, or if it cannot be
  // hidden. None is in another one, and all results are in one batch.
  std::vector<std::string> sets = {};
  // stage-out: the receipt's name in results-dir, which no result can have; "": none
  std::string receipt_name = {};
  // the ledger of the store; null: only this store writes to results-dir. Must outlive the
  // transfer
  PlacedNames* placed = nullptr;
  // stage-out: how results get their names; must outlive the transfer
  Publisher* publisher = &guarded_publisher();
  // stage-out: the directories whose mode a process of the store has changed; must outlive the
  // transfer
  OpenedDirectories* opened = nullptr;
  Cache* cache = nullptr;  // stage-in: reusable inputs; must outlive the transfer
  // load, unload: called once before the transfer begins; an error ends the transfer
  std::function<Status(std::uint64_t bytes)> wait_for_turn = {};
  Pauses* pauses = &real_pauses();  // the clock of waits for claimed names

  /// The number of processors for the transfer; at least 1.
  unsigned processors() const {
    const unsigned all = std::max(1U, std::thread::hardware_concurrency());
    return beside_programs && all > 1 ? all - 1 : all;
  }
};

}  // namespace efs::stage
