// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One result during its export.

#include <cstdint>
#include <string>
#include <utility>

#include "fs/staging.hpp"
#include "stage/export/conflict.hpp"
#include "stage/export/partial.hpp"
#include "stage/export/receipt.hpp"

namespace efs::stage {

/// Used by one thread at a time. The states are `waiting` -> `written` (the partial is whole) ->
/// `named` (it has its real name) -> `settled` (the receipt's entry is final). Every state may go
/// directly to `settled`.
struct Outgoing {
  enum class State : std::uint8_t { waiting, written, named, settled };
  const fs::WalkItem* item = nullptr;
  std::string name;     // in its directory on the PFS
  std::string partial;  // the name in that directory until the file is whole and durable
  // written directly under its real name in a hidden directory, which serves as the partial
  bool straight = false;
  bool fsync = false;  // fsync for this file; otherwise one syncfs covers all
  // an earlier result whose name collides with this one on a case-insensitive PFS (spelling.hpp)
  const fs::WalkItem* elder = nullptr;
  bool there_already = false;  // `named` by an earlier stage-out
  std::uint64_t data = 0;      // bytes to transfer, without holes
  State state = State::waiting;
  // settled by an earlier stage-out; results-dir may have another version by now
  bool brought_before = false;
  // not empty: another node or job has a claim to the name (the text says which); the export tries
  // again after all other results
  std::string held;
  bool partial_left = false;  // settled, but the partial must still be removed
  bool no_room = false;       // settled as failed because of missing space only
  // the name belongs to a file that is neither the job's input nor its result
  bool replaces = false;
  // with entry.placed_as: why it did not get its own name
  Obstacle kept_beside = Obstacle::none;
  PartialFile file;
  ReceiptEntry entry;

  /// The temporary name during the export.
  const std::string& way_name() const { return straight ? name : partial; }

  /// The partial, for the open directory of the result.
  PartialJob job(int directory) const {
    return {.item = *item,
            .directory = directory,
            .partial = way_name(),
            .is_hidden = straight,
            .fsync = fsync,
            .name = name,
            .rule = {.is_new = !entry.placed_as.empty()}};
  }

  void settle(Action action, std::string reason = {}) {
    state = State::settled;
    entry.action = action;
    entry.reason = std::move(reason);
  }
};

}  // namespace efs::stage
