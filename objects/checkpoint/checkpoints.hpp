// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The checkpoints of a store: the arrays in the program's memory that are protected, and how they
// reach a version. Each function is one call of efs_objects.h.

#include <unistd.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "objects/checkpoint/fast.hpp"
#include "objects/checkpoint/job.hpp"
#include "objects/checkpoint/snapshot.hpp"
#include "objects/checkpoint/worker.hpp"

namespace efs::objects {

enum class Strategy { none, copy, split, stage, snapshot, automatic };

/// The strategies that "auto" tries, in this order. The last one needs nothing. Not snapshot: a
/// device may write the memory by DMA, and only the program knows.
inline constexpr std::array automatic_order{Strategy::stage, Strategy::split, Strategy::copy};

/// The name of a strategy as in eo_configure(); "" for none.
const char* name_of(Strategy strategy);

/// A copy of an array that is complete, in a draft in the directory of the store.
struct Hint {
  ArrayFile file;
  Shape shape;
};

/// Thread-safe: one call at a time. The store must outlive it.
class Checkpoints {
 public:
  Checkpoints() = default;
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  Status protect(std::string_view name, const eo_array& array);
  Status unprotect(std::string_view name);
  Status configure(std::string_view option, std::string_view value);
  Status checkpoint(const Store& store, std::string_view series, std::uint64_t n, unsigned flags);
  /// Copies an array to the draft of its file in the next version, in the background.
  Status hint(const Store& store, std::string_view name);
  /// Waits for the background work and returns its failure, once.
  Status wait();
  Result<std::uint64_t> restore(const Store& store, std::string_view series, std::uint64_t n);

  /// wait() for a caller that returns no error: it sets the text of eo_error().
  void close() noexcept;

  Strategy used() const { return used_; }

  /// False in a child of the process that opened the store: it has no background thread.
  bool in_its_process() const { return ::getpid() == process_; }

 private:
  Status check_process() const;
  Status finish();
  void rest();
  void rest_from_memory();
  void post(std::function<void()> work);
  Worker& worker();

  /// Decides which bytes of the job are staged, and reserves the memory for them.
  Status prepare(Job& job, Strategy strategy);
  /// The background part of hint().
  void precopy(const Store& store, const Protected& array);
  Status copy_to(ArrayFile& file, const Protected& array);
  /// Ends what hint() has posted. Completed copies stay.
  void end_hints();
  /// Moves the copies of arrays that did not change to the version.
  void adopt(Job& job);
  /// Removes the copies.
  void drop_hints();

  /// Protects the pages of large arrays and copies everything else.
  Status prepare_snapshot(Job& job);
  Status copy_edges(Job& job);
  /// Writes the pages that are protected, and ends their protection.
  Status write_snapshot(Job& job);
  /// Copies what is staged.
  void copy_staged(Job& job);
  Status run(const std::shared_ptr<Job>& job);
  /// Posts the part of the job that follows when the call has returned.
  void post_rest(const std::shared_ptr<Job>& job);

  const pid_t process_ = ::getpid();
  std::atomic<Strategy> used_ = Strategy::none;

  std::mutex calls_;  // held during each call; guards what follows
  std::map<std::string, Protected, std::less<>> arrays_;
  Strategy strategy_ = Strategy::copy;
  Fast fast_;
  Rate fast_rate_;
  std::uint64_t posted_ = 0;  // the last work of a checkpoint
  bool hinted_ = false;       // work of hint() was posted
  std::atomic<bool> ending_hints_ = false;
  // While the worker has work, these belong to it.
  Medium medium_;
  std::map<std::string, Hint, std::less<>> hints_;
  std::unique_ptr<Snapshot> snapshot_;
  Status outcome_;  // of the background work
  // Last: its destruction waits for the work.
  std::unique_ptr<Worker> worker_;
};

/// Restores the arrays from version n or, with EO_LATEST, from the newest good one; returns its
/// number. Verifies all before it changes the memory.
Result<std::uint64_t> restore_arrays(const Store& store, std::string_view series, std::uint64_t n,
                                     const std::vector<Protected>& arrays);

}  // namespace efs::objects
