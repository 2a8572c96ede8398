#pragma once
// One result on its way back to the PFS.

#include <cstdint>
#include <string>
#include <utility>

#include "fs/staging.hpp"
#include "stage/export/partial.hpp"
#include "stage/export/receipt.hpp"

namespace efs::stage {

/// Touched by one thread at a time. `waiting` -> `written` (the partial is whole) -> `named` (under
/// its real name) -> `settled` (the receipt's entry is final); every state may go straight to
/// `settled`.
struct Outgoing {
  enum class State : std::uint8_t { waiting, written, named, settled };
  const fs::WalkItem* item = nullptr;
  std::string name;     // in its directory on the PFS
  std::string partial;  // likewise, until it is whole and durable
  // written under its name at once, in a directory that is hidden still: that is its partial
  bool straight = false;
  bool fsync = false;  // by itself; else one syncfs covers it
  // another one, whose name a PFS may take for this one's (spelling.hpp)
  const fs::WalkItem* elder = nullptr;
  bool there_already = false;  // `named`, by an earlier stage-out
  std::uint64_t data = 0;      // bytes to move: without holes
  State state = State::waiting;
  // settled by an earlier stage-out: results-dir may have another version by now
  bool brought_before = false;
  // by another node or job, as the claim to its name says: to be tried again behind all else
  std::string held;
  bool partial_left = false;  // settled, but its partial still has to go
  bool no_room = false;       // settled, for want of space only
  // its name is that of something else than the job's own input or result
  bool replaces = false;
  PartialFile file;
  ReceiptEntry entry;

  /// What it is called until it has its name.
  const std::string& way_name() const { return straight ? name : partial; }

  void settle(Action action, std::string reason = {}) {
    state = State::settled;
    entry.action = action;
    entry.reason = std::move(reason);
  }
};

}  // namespace efs::stage
