// SPDX-License-Identifier: BSD-3-Clause
// Performs each operation with a quiet worker and kills the worker at every stage: at the entry and
// the return of each system call, and at the functions between which a request changes its state.
// The operation's results and the files afterwards must equal those of a native file system.
//   efs-kill-points [--kill VICTIM] [--random N] [--steps N] [--seed N] [--only NAME]
//   SUPERVISOR EFSD EFS INSTANCE MOUNT NATIVE PFS RESULTS
// - --kill worker: as above.
// - --kill successor: kills the worker at a random stage, and then its successor at each of its
//   stages, from its first instruction on.
// - --kill all: kills each successor at the same stage until the supervisor gives up. A process
//   that waits for the mount must then get an error.
// - --random N: uses N of the points, at random.
// - --steps N: N more kills for each operation, each after a random number of instructions, also
//   within the copy of a record.
// Exit code 0: every result was right; 1: a result was wrong; 2: usage.
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "takeover/trial.hpp"

namespace {

using takeover::Operation;
using takeover::Place;
using takeover::Trial;
using takeover::Victim;

// entry and return of the system calls that receive a request and answer it
constexpr long fewest_stages = 4;

struct Arguments {
  std::string whom = "worker";
  std::string only;
  long random = 0, steps = 0;
  unsigned seed = 1;
};

std::vector<const Operation*> chosen(const std::string& only) {
  std::vector<const Operation*> all;
  for (const auto& operation : takeover::operations()) {
    if (only.empty() || only == operation.name) {
      all.push_back(&operation);
    }
  }
  return all;
}

struct Point {
  const Operation* operation;
  long at;
};

void draw_some(std::vector<Point>& points, long random, std::mt19937& draw) {
  if (random <= 0) {
    return;
  }
  std::shuffle(points.begin(), points.end(), draw);
  points.resize(std::min(points.size(), static_cast<std::size_t>(random)));
}

// Prints whether the test was meaningful. The number of stops differs a little from run to run.
void show_worth(Trial& trial, std::size_t points) {
  std::printf("%zu points, %ld of them not reached\n", points, trial.late);
  if (points == 0 || 2 * static_cast<std::size_t>(trial.late) > points) {
    ++trial.failures, std::printf("FAIL too many points were not reached\n");
  }
}

void kill_workers(Trial& trial, const Arguments& arguments, std::mt19937& draw) {
  std::vector<Point> points;
  long total = 0;
  const auto operations = chosen(arguments.only);
  for (const auto* operation : operations) {
    const long stops = trial.stops_of(*operation);
    for (long n = 1; n <= stops; ++n) {
      points.push_back({operation, n});
    }
    total += stops + 1;
    std::printf("%s: %ld stages\n", operation->name, stops);
    if (stops < fewest_stages) {
      ++trial.failures, std::printf("FAIL %s: its request was not seen\n", operation->name);
    }
    if (arguments.steps == 0) {
      continue;
    }
    const long instructions = trial.kill_at(*operation, Victim::never, true);
    for (long i = 0; i < arguments.steps && instructions > 0; ++i) {
      trial.kill_at(*operation,
                    1 + static_cast<long>(draw() % static_cast<unsigned long>(instructions)), true);
    }
    std::printf("%s: %ld instructions\n", operation->name, instructions);
    std::fflush(stdout);
  }
  draw_some(points, arguments.random, draw);
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (i % 500 == 499) {
      std::printf("%zu of %zu points\n", i + 1, points.size());
    }
    trial.kill_at(*points[i].operation, points[i].at, false);
  }
  show_worth(trial, points.size());
  std::printf("%zu operations of %ld points, %ld kills, %ld failures\n", operations.size(), total,
              trial.kills, trial.failures);
}

// Uses each stage of a takeover once, under the operations in turn.
void kill_successors(Trial& trial, const Arguments& arguments, std::mt19937& draw) {
  const auto operations = chosen(arguments.only);
  const auto drawn_stop = [&](const Operation& operation) {
    return 1 +
           static_cast<long>(draw() % static_cast<unsigned long>(trial.stops_of(operation) + 1));
  };
  const long stops =
      trial.kill_successor_at(*operations.front(), drawn_stop(*operations.front()), Victim::never);
  std::printf("a takeover: %ld stages\n", stops);
  std::vector<Point> points;
  for (long n = 1; n <= stops; ++n) {
    points.push_back(
        {operations[(static_cast<std::size_t>(n) + arguments.seed) % operations.size()], n});
  }
  draw_some(points, arguments.random, draw);
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (i % 500 == 499) {
      std::printf("%zu of %zu points\n", i + 1, points.size());
    }
    trial.kill_successor_at(*points[i].operation, drawn_stop(*points[i].operation), points[i].at);
  }
  show_worth(trial, points.size());
  std::printf("a takeover of %ld points, %ld kills, %ld failures\n", stops, trial.kills,
              trial.failures);
}

// The instance ends, so there is only one point.
void kill_all(Trial& trial, const Arguments& arguments, std::mt19937& draw) {
  const auto operations = chosen(arguments.only);
  const auto& operation = *operations[draw() % operations.size()];
  const long first =
      1 + static_cast<long>(draw() % static_cast<unsigned long>(trial.stops_of(operation) + 1));
  const long stops = trial.kill_successor_at(operation, first, Victim::never);
  trial.kill_all_at(operation, first,
                    1 + static_cast<long>(draw() % static_cast<unsigned long>(stops)));
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  int at = 1;
  for (; at + 1 < argc && argv[at][0] == '-'; at += 2) {
    const std::string option = argv[at];
    if (option == "--random") {
      arguments.random = std::atol(argv[at + 1]);
    } else if (option == "--steps") {
      arguments.steps = std::atol(argv[at + 1]);
    } else if (option == "--seed") {
      arguments.seed = static_cast<unsigned>(std::atol(argv[at + 1]));
    } else if (option == "--only") {
      arguments.only = argv[at + 1];
    } else if (option == "--kill") {
      arguments.whom = argv[at + 1];
    } else {
      return 2;
    }
  }
  const std::map<std::string, void (*)(Trial&, const Arguments&, std::mt19937&)> ways{
      {"worker", kill_workers}, {"successor", kill_successors}, {"all", kill_all}};
  if (argc - at != 8 || !ways.contains(arguments.whom) || chosen(arguments.only).empty()) {
    return 2;
  }
  ::umask(022);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::mt19937 draw(arguments.seed);
  Trial trial(static_cast<pid_t>(std::atoi(argv[at])), argv[at + 1],
              Place{.native = false,
                    .name = "",
                    .efs = argv[at + 2],
                    .instance = argv[at + 3],
                    .pfs = argv[at + 6],
                    .results = argv[at + 7]},
              argv[at + 4], argv[at + 5]);
  ways.at(arguments.whom)(trial, arguments, draw);
  return trial.failures == 0 ? 0 : 1;
}
