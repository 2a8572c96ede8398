// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A PfsIo with retries and rate limits. It repeats calls that failed for a temporary reason. It
// limits the bandwidth and the operations per second, so that one job does not overload the PFS's
// servers.

#include <atomic>
#include <cstdint>

#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "config/job_config.hpp"
#include "stage/pfs/forwarding_pfs.hpp"
#include "stage/pfs/pauses.hpp"

namespace efs::stage {

struct Pace {
  std::uint64_t max_rate = 0;  // bytes per second, reads and writes together; 0: no cap
  std::uint64_t max_ops = 0;   // calls per second; 0: no cap
  unsigned retries = 0;        // repetitions of one call at most
  // before the first repetition; doubled each time, up to 10 s
  Nanoseconds first_pause = 100'000'000;
};

/// The pace in the job file.
Pace pace_of(const config::JobConfig& config);

/// One queue for all threads: each caller gets a start time and waits until then. Thread-safe.
class RateLimit {
 public:
  /// `per_second` units; 0: no limit.
  explicit RateLimit(std::uint64_t per_second) : per_second_(per_second) {}

  /// How long the caller must wait before it uses so many units. Units that were unused in the last
  /// tenth of a second are still available; older ones are not.
  Nanoseconds take(std::uint64_t units, Nanoseconds now);

 private:
  const std::uint64_t per_second_;
  Mutex mutex_;  // rank 90 (leaf)
  Nanoseconds next_ EFS_GUARDED_BY(mutex_) = 0;
};

/// The limits that all transfers of a job share. Thread-safe.
struct Throttle {
  explicit Throttle(const Pace& pace) : operations(pace.max_ops), bytes(pace.max_rate) {}

  RateLimit operations;
  RateLimit bytes;
};

/// True if a call that failed with `code` may be repeated: a `reading` call after every temporary
/// error, EIO included (an evicted Lustre client returns EIO); an `idempotent` one not after EIO,
/// which may mean that data are lost; a `once` call only after EAGAIN, which excludes that it took
/// effect.
bool may_pass(int code, CallKind kind);

/// Thread-safe. A pause ends at the latest a tenth of a second after `cancel` is set. All arguments
/// are borrowed. If a call makes several calls to the PFS, their number is known only afterwards;
/// the next caller then waits for them. A close counts with its open.
class PacedPfs final : PfsCallPolicy, public ForwardingPfs {
 public:
  PacedPfs(PfsIo& pfs, const Pace& pace, Throttle& throttle, const std::atomic<bool>& cancel,
           Pauses& pauses = real_pauses());

  /// Number of retries so far.
  std::uint64_t retried() const { return retried_; }

 private:
  Status before(const PfsCall& call) override;
  bool again(const PfsCall& call, const Error& error, unsigned attempt) override;
  void made_further_calls(std::uint64_t calls) override;

  const Pace pace_;
  Throttle& throttle_;
  const std::atomic<bool>& cancel_;
  Pauses& pauses_;
  std::atomic<std::uint64_t> retried_{0};
};

}  // namespace efs::stage
