// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Makes room in the buffer: contents that the PFS has, and that no program uses, leave it (key
// `evict`). The files keep their names and attributes, and the next open fetches the content.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "stage/live/live_transfer.hpp"

namespace efs::stage {

/// The outcome of an eviction.
struct Eviction {
  std::uint64_t files = 0, bytes = 0;  // whose room is free
  std::uint64_t stayed = 0;            // files that were tried in vain
  std::string why{};                   // of the last one of them, with its path
  bool is_unfinished = false;          // files have left whose room could not be freed yet
};

/// The files whose version the PFS did not have when it was asked. A later round does not ask again
/// for a while, unless the content has changed. Not thread-safe.
class Refusals {
 public:
  using Clock = std::chrono::steady_clock;
  using Candidate = fs::Staging::EvictionCandidate;
  static constexpr std::chrono::seconds lasting{30};
  static constexpr std::size_t most = 65536;  // further files are asked for in each round

  /// The error code of the refusal; 0: the PFS must be asked.
  int of(const Candidate& file, Clock::time_point now);
  void note(const Candidate& file, int code, Clock::time_point now);

 private:
  struct Refusal {
    FileTime since;
    int code = 0;
    Clock::time_point until;
  };

  std::unordered_map<std::uint64_t, Refusal> known_;
};

/// Frees at least `bytes`, if there are so many: first of the files that no program has opened
/// lately, the oldest contents first. A file is a candidate if it is clean, has one name, and is an
/// input of a resource, or a result of a rule, with `evict: when-full`. The PFS is asked for the
/// very version right before, unless `refusals` has its answer. Gives up when the PFS fails for
/// several files in a row.
Eviction evict(const LiveArguments& with, std::uint64_t bytes, Refusals& refusals);

}  // namespace efs::stage
