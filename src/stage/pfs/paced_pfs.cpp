// SPDX-License-Identifier: BSD-3-Clause
#include "stage/pfs/paced_pfs.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

namespace efs::stage {
namespace {

constexpr Nanoseconds second = 1'000'000'000;
constexpr Nanoseconds longest_pause = 10 * second;
constexpr Nanoseconds catch_up = second / 10;

// Temporary errors of a network file system: the call may have taken effect.
constexpr std::array network_errors{ETIMEDOUT,    ESTALE,      ECONNRESET, ECONNABORTED,
                                    ECONNREFUSED, ENOTCONN,    EHOSTDOWN,  EHOSTUNREACH,
                                    ENETDOWN,     ENETUNREACH, EREMOTEIO};

Nanoseconds pause_before_retry(Nanoseconds first, unsigned attempt) {
  Nanoseconds pause = first;
  for (unsigned i = 0; i < attempt && pause < longest_pause; ++i) {
    pause *= 2;
  }
  return attempt == 0 ? first : std::min(pause, longest_pause);
}

}  // namespace

Pace pace_of(const config::JobConfig& config) {
  return {.max_rate = config.max_rate, .max_ops = config.max_ops, .retries = config.retries};
}

Nanoseconds RateLimit::take(std::uint64_t units, Nanoseconds now) {
  if (per_second_ == 0) {
    return 0;
  }
  const MutexLock lock(mutex_);
  const Nanoseconds mine = std::max(next_, now - catch_up);
  next_ = mine +
          static_cast<Nanoseconds>(static_cast<double>(units) / static_cast<double>(per_second_) *
                                   static_cast<double>(second));
  return std::max<Nanoseconds>(0, mine - now);
}

bool may_pass(int code, CallKind kind) {
  if (code == EAGAIN) {
    return true;
  }
  if (code == EIO) {
    return kind == CallKind::reading;
  }
  return std::ranges::find(network_errors, code) != network_errors.end() && kind != CallKind::once;
}

PacedPfs::PacedPfs(PfsIo& pfs, const Pace& pace, Throttle& throttle,
                   const std::atomic<bool>& cancel, Pauses& pauses)
    : ForwardingPfs(pfs, this),
      pace_(pace),
      throttle_(throttle),
      cancel_(cancel),
      pauses_(pauses) {}

Status PacedPfs::before(const PfsCall& call) {
  if (pace_.max_ops != 0 || pace_.max_rate != 0) {
    const auto now = pauses_.now();
    pause_until(
        now + std::max(throttle_.operations.take(1, now), throttle_.bytes.take(call.bytes, now)),
        cancel_, pauses_);
  }
  return {};
}

bool PacedPfs::again(const PfsCall& call, const Error& error, unsigned attempt) {
  if (attempt >= pace_.retries || cancel_ || !may_pass(error.code, call.kind)) {
    return false;
  }
  ++retried_;
  pause_until(pauses_.now() + jittered(pause_before_retry(pace_.first_pause, attempt)), cancel_,
              pauses_);
  return true;
}

void PacedPfs::made_further_calls(std::uint64_t calls) {
  if (pace_.max_ops != 0 && calls != 0) {
    (void)throttle_.operations.take(calls, pauses_.now());
  }
}

}  // namespace efs::stage
