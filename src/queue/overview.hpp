#pragma once
// Who holds, who waits, since when, and for how long still: what `efs queue` shows.

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

#include "queue/directory.hpp"

namespace efs::queue {

struct Line {
  Ticket ticket;
  double wait = -1;  // of a waiter: estimated seconds until its turn; negative: unknown
  // of a holder: estimated seconds until all is moved, at its rate so far; negative: unknown
  double left = -1;
  double silence = 0;  // seconds since its last sign of life, by this machine's clock
};

struct Side {
  unsigned slots = 0;
  double rate = 0;                     // bytes/s of one slot, measured; 0: not known yet
  std::vector<Line> holders, waiters;  // waiters in the order they will go
};

struct Overview {
  std::string directory;
  Settings settings;
  std::string problem;  // of the settings file
  Side in, out;
};

/// Changes nothing. Who may not see the locks (an ordinary user at a site's queue) sees tickets of
/// the dead until somebody else removes them; their silence tells.
Result<Overview> look_at(const std::string& directory);

nlohmann::json to_json(const Overview& overview);  // users by number
/// Users by name, which the system may have to ask another machine for.
std::string describe(const Overview& overview);

}  // namespace efs::queue
