#pragma once
// Who goes next: pure functions over tickets, used alike by the real queue, by the estimate of
// waiting times and by the simulation in the tests.
//
// Every policy is a rank that a ticket gets when it is drawn and keeps: the lowest rank goes first.
// A rank never changes and no ticket can get a rank far below those drawn before it, so each waiter
// is overtaken by a bounded set of others and nobody starves:
//   fifo            the number of the ticket
//   smallest-first  the time it was drawn + `ageing` seconds for each GiB: a ticket of B GiB is
//   overtaken only by
//                   tickets drawn within the next B * ageing seconds (shortest job first with
//                   linear ageing)
//   deadline        its deadline, at the latest `longest_wait` after it was drawn (earliest
//   deadline first)

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "queue/settings.hpp"

namespace efs::queue {

enum class Direction : std::uint8_t { in = 0, out = 1 };
const char* name_of(Direction direction);

/// One who waits or holds.
struct Ticket {
  std::uint64_t number = 0;  // drawn in order; unique in a directory
  Direction direction = Direction::in;
  std::string job, node;
  std::uint32_t uid = 0;     // of the job's user, to show
  std::uint64_t bytes = 0;   // to move
  std::uint64_t done = 0;    // moved, as last reported
  Nanoseconds drawn = 0;     // wall clock of the file server
  Nanoseconds deadline = 0;  // wall clock; 0: none
  Nanoseconds granted = 0;   // wall clock of the file server; 0: waits
  int slot = -1;             // held; -1: waits
};

/// The lower one goes first.
bool goes_before(const Settings& settings, const Ticket& a, const Ticket& b);

/// Can the ticket of this number go before `b`, whatever else it says? Who cannot need not be read.
inline bool can_go_before(const Settings& settings, std::uint64_t number, const Ticket& b) {
  return settings.policy != Policy::fifo || number < b.number;
}

/// May `mine` take a slot? `ahead`: the live waiters that go before it; `free`: slots that nobody
/// holds.
inline bool may_take(std::size_t ahead, std::size_t free) {
  return ahead < free;
}

/// Seconds until a holder has moved all, at its own rate since its slot was granted. `now`: the
/// file server's clock; `silence`: seconds since the holder wrote what it had moved. Negative:
/// unknown, as it has moved nothing yet.
double estimate_left(const Ticket& holder, Nanoseconds now, double silence);

struct Holder {
  Ticket ticket;
  // as estimate_left() says; where it is unknown the holder is taken to move at `rate`
  double left = -1;
};

/// Seconds until the last of `waiters` (in the order they will go) gets a slot. Waiters move at
/// `rate` bytes/s each on `slots` slots. Negative: unknown, as no rate is known.
double estimate_wait(const std::vector<Holder>& holders, const std::vector<Ticket>& waiters,
                     unsigned slots, double rate);

}  // namespace efs::queue
