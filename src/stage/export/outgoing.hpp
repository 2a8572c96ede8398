// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One result during its export.

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "fs/staging.hpp"
#include "stage/export/conflict.hpp"
#include "stage/export/partial.hpp"
#include "stage/export/receipt.hpp"

namespace efs::stage {

/// The states of a result, in their order. Every state may go directly to Settled.
namespace outgoing {

/// There is no whole partial. `held`: as in Written, for a further name of a file.
struct Waiting {
  std::string held{};
};

/// The partial is whole. `held`: not empty if another node or job has a claim to the name (the
/// text says which); the export tries again after all other results.
struct Written {
  std::string held{};
};

/// The file has its real name.
struct Named {
  bool there_already = false;  // an earlier stage-out has given the name
  bool partial_left = false;   // a partial was written for nothing, and must be removed
};

/// The receipt's entry is final.
struct Settled {
  bool no_room = false;       // failed because of missing space only
  bool partial_left = false;  // the partial may exist, and must be removed
  // an earlier stage-out has settled it; results-dir may have another version by now
  bool is_of_before = false;
};

using State = std::variant<Waiting, Written, Named, Settled>;

}  // namespace outgoing

/// Used by one thread at a time.
struct Outgoing {
  const fs::WalkItem* item = nullptr;
  std::string name;     // in its directory on the PFS
  std::string partial;  // the name in that directory until the file is whole and durable
  // written directly under its real name in a hidden directory, which serves as the partial
  bool straight = false;
  bool fsync = false;  // fsync for this file; otherwise one syncfs covers all
  // an earlier result whose name collides with this one on a case-insensitive PFS (spelling.hpp)
  const fs::WalkItem* elder = nullptr;
  std::uint64_t data = 0;  // bytes to transfer, without holes
  // the name belongs to a file that is neither the job's input nor its result
  bool replaces = false;
  // with entry.placed_as: why it did not get its own name
  Obstacle kept_beside = Obstacle::none;
  PartialFile file;  // as written, or as linked
  ReceiptEntry entry;
  outgoing::State state{};

  template <typename State>
  bool is() const {
    return std::holds_alternative<State>(state);
  }

  /// The claim that holds the name up; "": none.
  std::string held() const {
    const auto* waiting = std::get_if<outgoing::Waiting>(&state);
    const auto* written = std::get_if<outgoing::Written>(&state);
    return waiting != nullptr ? waiting->held : written != nullptr ? written->held : std::string();
  }

  /// Requires: waiting or written.
  void hold(std::string claim) {
    if (auto* written = std::get_if<outgoing::Written>(&state)) {
      written->held = std::move(claim);
    } else {
      std::get<outgoing::Waiting>(state).held = std::move(claim);
    }
  }

  /// True if the file with way_name() must be removed.
  bool partial_left() const {
    const auto* named = std::get_if<outgoing::Named>(&state);
    const auto* settled = std::get_if<outgoing::Settled>(&state);
    return named != nullptr ? named->partial_left : settled != nullptr && settled->partial_left;
  }

  /// Requires: named or settled.
  void set_partial_left(bool left) {
    if (auto* named = std::get_if<outgoing::Named>(&state)) {
      named->partial_left = left;
    } else {
      std::get<outgoing::Settled>(state).partial_left = left;
    }
  }

  /// The temporary name during the export.
  const std::string& way_name() const { return straight ? name : partial; }

  /// The partial, for the open directory of the result.
  PartialJob job(PfsRef directory) const {
    return {.item = *item,
            .directory = directory,
            .partial = way_name(),
            .is_hidden = straight,
            .fsync = fsync,
            .name = name,
            .rule = {.is_new = !entry.placed_as.empty()}};
  }

  /// The caller may complete the returned state.
  outgoing::Settled& settle(Action action, std::string reason = {}) {
    entry.action = action;
    entry.reason = std::move(reason);
    return state.emplace<outgoing::Settled>();
  }
};

}  // namespace efs::stage
