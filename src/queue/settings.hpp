// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The settings of a site's queue. All nodes read them from the file `settings` in the queue's
// directory.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace efs::queue {

enum class Policy : std::uint8_t { fifo, smallest_first, deadline };
const char* name_of(Policy policy);

struct Settings {
  unsigned slots_in = 1;   // concurrent stage-ins
  unsigned slots_out = 1;  // concurrent stage-outs
  Policy policy = Policy::fifo;
  double ageing = 60;          // smallest-first: seconds for each GiB
  double longest_wait = 3600;  // seconds; then staging starts without a slot
  // seconds; then the slot goes to the next ticket, and staging continues without it
  double longest_hold = 14400;
  // bytes/s; a holder below this rate for a minute loses its slot; 0: no minimum
  double least_rate = 0;
  double heartbeat = 10;  // seconds between heartbeats
  // seconds; a waiter without a heartbeat for this long is skipped
  double stale_after = 120;
  // seconds between polls of the first waiter; later waiters poll less often
  double poll = 0.25;
};

/// Parses lines "key: value" with the names above (- for _); # begins a comment. least-rate accepts
/// units, as "10 MiB/s". EINVAL names the line.
Result<Settings> parse_settings(std::string_view text);

}  // namespace efs::queue
