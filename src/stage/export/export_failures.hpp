// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How the results of one stage-out fail, and whether the PFS is full.

#include <atomic>

#include "base/result.hpp"
#include "stage/copy/progress.hpp"
#include "stage/export/outgoing.hpp"

namespace efs::stage {

/// Thread-safe for different results. `progress` is borrowed.
class ExportFailures {
 public:
  explicit ExportFailures(const Progress& progress) : progress_(progress) {}

  /// Settles the result as failed (or not-saved after a cancel). The caller may complete the state.
  outgoing::Settled& fail_result(Outgoing& out, const Error& error);

  /// The same for a result that did not get its name; another node may have a result of that name
  /// (merge.hpp).
  outgoing::Settled& fail_name(Outgoing& out, const Error& error);

  /// Settles a result that is still `held`.
  void fail_held(Outgoing& out) const;

  /// Settles a result that is not begun, if the PFS is full or the stage-out is cancelled. Returns
  /// true if it has.
  bool leave_untried(Outgoing& out) const;

  /// Records a full PFS. No new result is begun afterwards: partials would compete for the last
  /// space, and possibly none would become whole.
  void record_full(const Error& error);

  bool full() const { return full_; }

  /// Forgets that the PFS was full.
  void forget_full() { full_ = false; }

 private:
  const Progress& progress_;
  std::atomic<bool> full_{false};
};

}  // namespace efs::stage
