#pragma once
// How many threads a transfer is worth: few where everything is in memory, many where each call
// waits for a PFS.

#include <cstddef>
#include <functional>

namespace efs::stage {

/// Runs independent pieces of work side by side. It begins with one thread for each of its
/// processors and adds threads while those that run mostly wait, that is while neither their own
/// work nor the queue for a CPU accounts for their time, and as long as more of them get more done.
/// A run that ended so hands its number on to the next one.
class WorkerPool {
 public:
  static constexpr unsigned automatic_most = 64;

  /// `most`: threads at most; 0: automatic_most. `processors`: those that are its own; 0: all.
  explicit WorkerPool(unsigned most, unsigned processors = 0);

  /// Neighbours [begin, end) of the items 0 ... count-1.
  using Work = std::function<void(std::size_t begin, std::size_t end)>;

  /// Calls `work` for all items in pieces of at most `grain`, beginning in order, on several
  /// threads, the caller's among them; returns when all are done. Few items make smaller pieces, so
  /// that each can have a thread; one item has the caller's. Where `work` throws no further piece
  /// is begun, and the first of what was thrown is thrown here when all threads have ended. One run
  /// at a time.
  void run(std::size_t count, std::size_t grain, const Work& work);

  /// The most threads that a run has had so far, the caller's included.
  unsigned widest() const { return widest_; }

 private:
  const unsigned most_;
  const unsigned processors_;
  unsigned widest_ = 0;
  unsigned last_ = 0;   // threads of the run before, where they waited
  bool waits_ = false;  // the last run's threads mostly did
  bool told_ = false;   // the log has that no thread could be had
};

}  // namespace efs::stage
