// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Chooses the number of threads of a transfer: few if all data are in memory, many if each call
// waits for the PFS.

#include <cstddef>
#include <functional>

namespace efs::stage {

/// Runs independent pieces of work in parallel. A run begins with one thread for each processor of
/// the pool. It adds threads while the running threads mostly wait, that is while neither their own
/// work nor the queue for a CPU accounts for their time, and while more threads finish more work.
/// If a run ended with waiting threads, the next run begins with the same number.
class WorkerPool {
 public:
  static constexpr unsigned automatic_most = 64;

  /// `most`: upper bound on threads; 0: automatic_most. `processors`: the number that the pool may
  /// use; 0: all.
  explicit WorkerPool(unsigned most, unsigned processors = 0);

  /// Processes the consecutive items [begin, end) out of 0 ... count-1.
  using Work = std::function<void(std::size_t begin, std::size_t end)>;

  /// Calls `work` for all items in pieces of at most `grain`, beginning in order, on several
  /// threads, the caller's among them; returns when all are done. Few items make smaller pieces, so
  /// that each can have a thread; one item has the caller's. Where `work` throws no further piece
  /// is begun, and the first of what was thrown is thrown here when all threads have ended. One run
  /// at a time.
  void run(std::size_t count, std::size_t grain, const Work& work);

  /// The largest number of threads of a run so far, the caller's included.
  unsigned widest() const { return widest_; }

 private:
  const unsigned most_;
  const unsigned processors_;
  unsigned widest_ = 0;
  unsigned last_ = 0;   // threads of the previous run, if they mostly waited
  bool waits_ = false;  // the threads of the last run mostly waited
  bool told_ = false;   // the failure to start a thread was logged
};

}  // namespace efs::stage
