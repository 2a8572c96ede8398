#pragma once
// How a site's turns are taken. The file `settings` in the queue's directory says it, so that all
// nodes agree.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace efs::queue {

enum class Policy : std::uint8_t { fifo, smallest_first, deadline };
const char* name_of(Policy policy);

struct Settings {
  unsigned slots_in = 1;   // stage-ins at a time
  unsigned slots_out = 1;  // stage-outs at a time
  Policy policy = Policy::fifo;
  double ageing = 60;          // smallest-first: seconds that one GiB is worth
  double longest_wait = 3600;  // seconds; then staging goes ahead without a turn
  // seconds; then the slot goes to the next, and staging goes on without it
  double longest_hold = 14400;
  // bytes/s; a holder that moves less for a minute is taken for one that holds too long; 0: none
  double least_rate = 0;
  double heartbeat = 10;  // seconds between signs of life
  // seconds; a waiter that gave no sign of life for so long is passed over
  double stale_after = 120;
  // seconds between looks of the first in the queue; those behind look less often
  double poll = 0.25;
};

/// Lines "key: value" with the names above (- for _); # begins a comment. least-rate takes units,
/// as "10 MiB/s". EINVAL names the line.
Result<Settings> parse_settings(std::string_view text);

}  // namespace efs::queue
