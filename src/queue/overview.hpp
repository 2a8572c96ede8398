// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The output of `efs queue`: the holders and the waiters, with past and remaining times.

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

#include "queue/directory.hpp"

namespace efs::queue {

struct Line {
  Ticket ticket;
  double wait = -1;  // a waiter's estimated seconds until its grant; negative: unknown
  // a holder's estimated seconds until all its bytes are moved, at its rate so far; negative:
  // unknown
  double left = -1;
  double silence = 0;  // seconds since its last heartbeat, by this machine's clock
};

struct Side {
  unsigned slots = 0;
  double rate = 0;                     // measured bytes/s of one slot; 0: not known yet
  std::vector<Line> holders, waiters;  // waiters in the order of their grants
};

struct Overview {
  std::string directory;
  Settings settings;
  std::string problem;  // problem in the settings file
  Side in, out;
};

/// Reads the queue and changes nothing. A user without access to the locks (an ordinary user at a
/// site's queue) also sees tickets of dead processes, until another process removes them. The
/// `silence` of these tickets keeps growing.
Result<Overview> look_at(const std::string& directory);

nlohmann::json to_json(const Overview& overview);  // users as numbers
/// Users as names; the system may have to ask another machine for them.
std::string describe(const Overview& overview);

}  // namespace efs::queue
