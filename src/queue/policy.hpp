// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The order of grants: pure functions over tickets. The real queue, the estimate of waiting times,
// and the simulation in the tests use the same functions.
//
// A policy gives each ticket a rank when it is drawn; the lowest rank goes first. A rank never
// changes, and no ticket gets a rank far below those of earlier tickets. So only a bounded set of
// tickets can overtake a waiter, and none starves:
//   fifo            the number of the ticket
//   smallest-first  the time of the draw + `ageing` seconds for each GiB: only tickets drawn
//                   within the next B * ageing seconds overtake a ticket of B GiB
//                   (shortest job first with linear ageing)
//   deadline        the ticket's deadline, at the latest `longest_wait` after the draw
//                   (earliest deadline first)

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "queue/settings.hpp"

namespace efs::queue {

enum class Direction : std::uint8_t { in = 0, out = 1 };
const char* name_of(Direction direction);

/// A waiter or a holder.
struct Ticket {
  std::uint64_t number = 0;  // drawn in order; unique in a directory
  Direction direction = Direction::in;
  std::string job, node;
  std::uint32_t uid = 0;     // the job's user, for display
  std::uint64_t bytes = 0;   // bytes to move
  std::uint64_t done = 0;    // bytes moved, as last reported
  Nanoseconds drawn = 0;     // wall clock of the file server
  Nanoseconds deadline = 0;  // wall clock; 0: none
  Nanoseconds granted = 0;   // wall clock of the file server; 0: waits
  int slot = -1;             // slot held; -1: waits
};

/// Returns whether `a` goes before `b`.
bool goes_before(const Settings& settings, const Ticket& a, const Ticket& b);

/// Returns whether a ticket of this number can go before `b`, whatever its other fields say. If
/// not, there is no need to read its file.
inline bool can_go_before(const Settings& settings, std::uint64_t number, const Ticket& b) {
  return settings.policy != Policy::fifo || number < b.number;
}

/// Returns whether a waiter may take a slot. `ahead`: the live waiters that go before it; `free`:
/// the free slots.
inline bool may_take(std::size_t ahead, std::size_t free) {
  return ahead < free;
}

/// Estimates the seconds until a holder has moved all its bytes, at its own rate since the grant.
/// `now`: the file server's clock; `silence`: seconds since the holder last reported its bytes.
/// Negative: unknown, because the holder has moved nothing yet.
double estimate_left(const Ticket& holder, Nanoseconds now, double silence);

struct Holder {
  Ticket ticket;
  // from estimate_left(); if unknown, `rate` is used for the holder
  double left = -1;
};

/// Estimates the seconds until the last of `waiters` (in their order) gets a slot. Each waiter
/// moves `rate` bytes/s on one of `slots` slots. Negative: unknown, because no rate is known.
double estimate_wait(const std::vector<Holder>& holders, const std::vector<Ticket>& waiters,
                     unsigned slots, double rate);

}  // namespace efs::queue
