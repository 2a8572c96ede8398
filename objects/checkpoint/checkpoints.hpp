// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The checkpoints of a store: the arrays in the program's memory that are protected, and how they
// reach a version. Each function is one call of efs_objects.h.

#include <unistd.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "objects/checkpoint/job.hpp"

namespace efs::objects {

enum class Strategy { none, copy, split, stage, snapshot, automatic };

/// The name of a strategy as in eo_configure(); "" for none.
const char* name_of(Strategy strategy);

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
  /// Waits for the background work and returns its failure, once.
  Status wait();
  Result<std::uint64_t> restore(const Store& store, std::string_view series, std::uint64_t n);

  Strategy used() const { return used_; }

 private:
  /// EINVAL in a child of the process that opened the store: it has no background thread.
  Status check_process() const;
  Status run(Job& job, Strategy strategy);

  const pid_t process_ = ::getpid();
  std::atomic<Strategy> used_ = Strategy::none;

  std::mutex calls_;  // held during each call; guards what follows
  std::map<std::string, Protected, std::less<>> arrays_;
  Strategy strategy_ = Strategy::copy;
  Medium medium_;
};

/// Restores the arrays from version n or, with EO_LATEST, from the newest good one; returns its
/// number. Verifies all before it changes the memory.
Result<std::uint64_t> restore_arrays(const Store& store, std::string_view series, std::uint64_t n,
                                     const std::vector<Protected>& arrays);

}  // namespace efs::objects
