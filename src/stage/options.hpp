#pragma once
// What a transfer is told besides what it moves.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "base/result.hpp"
#include "stage/pfs/pauses.hpp"

namespace efs::stage {

class Cache;
class OpenedDirectories;
class PlacedNames;

struct Options {
  // threads at most; 0: as many as the PFS keeps waiting, up to 64
  unsigned workers = 0;
  // load, unload: one processor stays theirs, where there are several
  bool beside_programs = false;
  std::uint64_t transfer_size = 2U << 20U;  // bytes per PFS request
  // Stage-out: what is made durable together; an eighth of it where time may run out.
  std::uint64_t batch_bytes = 1U << 30U;
  // stage-out: named in the receipt, of what a deadline left
  std::size_t most_not_tried = 100'000;
  bool by_rank = false;  // stage-out: in the order of the job file's rules, where time may run out
  std::string partial_tag = {};  // stage-out: of the store that it comes from (partial_tag_of())
  // stage-out: an earlier process of the store may have been killed at work, or a transfer of this
  // one have failed where it could not clean up
  bool has_a_past = false;
  // stage-out: that the receipt is to get in results-dir: no result can have it; "": none
  std::string receipt_name = {};
  // what the store has put under names of results-dir; null: what is there is nobody else's.
  // Outlives the transfer
  PlacedNames* placed = nullptr;
  // stage-out: which directories there a process of the store has opened to their owner; outlives
  // the transfer
  OpenedDirectories* opened = nullptr;
  Cache* cache = nullptr;  // stage-in: of reusable inputs; outlives the transfer
  // load, unload: called once, before anything moves; an error ends it
  std::function<Status(std::uint64_t bytes)> wait_for_turn = {};
  Pauses* pauses = &real_pauses();  // where the time goes by in which another's name is waited for

  /// On which the transfer computes; at least 1.
  unsigned processors() const {
    const unsigned all = std::max(1U, std::thread::hardware_concurrency());
    return beside_programs && all > 1 ? all - 1 : all;
  }
};

}  // namespace efs::stage
