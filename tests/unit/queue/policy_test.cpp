// SPDX-License-Identifier: BSD-3-Clause
// The policies: ranks, estimates, and a simulation of many jobs with the same code.
#include "queue/policy.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <random>
#include <sstream>

#include "support/temp.hpp"

namespace efs::queue {
namespace {

constexpr Nanoseconds second = 1'000'000'000;
constexpr std::uint64_t gib = 1u << 30;

Ticket ticket(std::uint64_t number, double drawn, std::uint64_t bytes, double deadline = 0) {
  return {.number = number,
          .job = "j",
          .node = "n",
          .bytes = bytes,
          .drawn = static_cast<Nanoseconds>(drawn * second),
          .deadline = static_cast<Nanoseconds>(deadline * second)};
}

TEST_CASE("fifo goes by number whatever the size", "[queue]") {
  const Settings settings{.policy = Policy::fifo};
  CHECK(goes_before(settings, ticket(1, 5, 100 * gib), ticket(2, 4, 1)));
  CHECK_FALSE(goes_before(settings, ticket(2, 4, 1), ticket(1, 5, 100 * gib)));
}

TEST_CASE("smallest first, but an old large one goes before a late small one", "[queue]") {
  const Settings settings{.policy = Policy::smallest_first, .ageing = 60};
  CHECK(goes_before(settings, ticket(2, 1, 1 * gib), ticket(1, 0, 10 * gib)));
  CHECK(goes_before(settings, ticket(1, 0, 10 * gib), ticket(3, 10 * 60 + 1, 0)));
}

TEST_CASE("the nearest deadline first, and none of them later than the longest wait", "[queue]") {
  const Settings settings{.policy = Policy::deadline, .longest_wait = 100};
  CHECK(goes_before(settings, ticket(2, 1, 1, 50), ticket(1, 0, 1, 60)));
  CHECK(goes_before(settings, ticket(1, 0, 1, 1e6), ticket(2, 101, 1, 250)));
  CHECK(goes_before(settings, ticket(1, 0, 1), ticket(2, 1, 1)));
}

TEST_CASE("waiting times are estimated from what is left and the rate", "[queue]") {
  auto holder = ticket(1, 0, 100);
  holder.done = 40;
  CHECK(estimate_wait({{holder}}, {ticket(2, 0, 10)}, 1, 10) == 6);
  CHECK(estimate_wait({{holder}}, {ticket(2, 0, 10), ticket(3, 0, 10)}, 1, 10) == 7);
  CHECK(estimate_wait({{holder}}, {ticket(2, 0, 10)}, 2, 10) == 0);
  CHECK(estimate_wait({}, {ticket(2, 0, 10)}, 1, 0) < 0);
}

TEST_CASE(
    "a holder that has moved something counts with its own rate, not with that of those before it",
    "[queue]") {
  auto holder = ticket(1, 0, 100);
  holder.granted = 1000 * second;
  CHECK(estimate_left(holder, 1020 * second, 0) < 0);
  holder.done = 40;
  CHECK(estimate_left(holder, 1020 * second, 0) == 30);  // 2 bytes/s
  CHECK(estimate_left(holder, 1025 * second, 5) == 25);  // reported 5 s ago
  CHECK(estimate_left(holder, 1200 * second, 180) == 0);
  const Holder slow{.ticket = holder, .left = 30};
  CHECK(estimate_wait({slow}, {ticket(2, 0, 10)}, 1, 1000) == 30);
  CHECK(estimate_wait({slow}, {ticket(2, 0, 10), ticket(3, 0, 10)}, 1, 10) == 31);
  // The first transfers of a queue: no earlier rate is known.
  CHECK(estimate_wait({slow}, {ticket(2, 0, 10)}, 1, 0) == 30);
  CHECK(estimate_wait({slow}, {ticket(2, 0, 10)}, 2, 0) == 0);
  CHECK(estimate_wait({slow, {holder}}, {ticket(2, 0, 10)}, 1, 0) < 0);
  CHECK(estimate_wait({slow}, {ticket(2, 0, 10), ticket(3, 0, 10)}, 1, 0) < 0);
}

TEST_CASE("settings name their problems", "[queue]") {
  const auto good = parse_settings(
      "# turns\nslots-in: 3\npolicy: smallest-first # fair enough\nlongest-wait: 10.5\n");
  REQUIRE(good);
  CHECK(good->slots_in == 3);
  CHECK(good->slots_out == 1);
  CHECK(good->policy == Policy::smallest_first);
  CHECK(good->longest_wait == 10.5);
  for (const auto* bad :
       {"slot-in: 3", "slots-in: 0", "slots-in: 1.5", "slots-in: many", "policy: random", "policy",
        "longest-wait: -1", "poll: nan", "\n\nageing: 1e99"}) {
    INFO(bad);
    const auto parsed = parse_settings(bad);
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().what.starts_with("line "));
  }
  CHECK(parse_settings("slot-in: 3").error().what.contains("slots-in"));
  CHECK(parse_settings("least-rat: 3").error().what.contains("least-rate"));
}

TEST_CASE("a least rate has the units of a job file's sizes", "[queue]") {
  const auto rate = [](const std::string& text) {
    const auto settings = parse_settings("least-rate: " + text);
    return settings ? settings->least_rate : -1;
  };
  CHECK(rate("0") == 0);
  CHECK(rate("1000") == 1000);
  CHECK(rate("10 MiB/s") == 10 * 1048576.0);
  CHECK(rate("1.5KiB") == 1536);
  CHECK(rate("2 GB/s") == 2e9);
  CHECK(rate("3k") == 3000);
  for (const auto* bad : {"", "-1", "fast", "10 MiB/h", "1.2.3", "10 XB", "MiB/s"}) {
    INFO(bad);
    CHECK(rate(bad) == -1);
  }
}

TEST_CASE("the example of a queue's settings shows the defaults", "[queue]") {
  std::ifstream file(EFS_SOURCE_DIR "/conf/slurm/queue-settings");
  std::ostringstream text;
  text << file.rdbuf();
  REQUIRE(file.is_open());
  const auto shown = parse_settings(text.str());
  REQUIRE(shown);
  const Settings defaults;
  CHECK(shown->slots_in == defaults.slots_in);
  CHECK(shown->slots_out == defaults.slots_out);
  CHECK(shown->policy == defaults.policy);
  CHECK(shown->ageing == defaults.ageing);
  CHECK(shown->longest_wait == defaults.longest_wait);
  CHECK(shown->longest_hold == defaults.longest_hold);
  CHECK(shown->least_rate == defaults.least_rate);
  CHECK(shown->heartbeat == defaults.heartbeat);
  CHECK(shown->stale_after == defaults.stale_after);
  CHECK(shown->poll == defaults.poll);
}

struct Finished {
  double waited = 0;
  std::uint64_t bytes = 0;
};

// Returns the bound of a waiter: seconds after its draw. A ticket that is drawn later than the
// bound never goes first. policy.hpp defines the bound for each policy.
double bound_of(const Settings& settings, const Ticket& waiter) {
  switch (settings.policy) {
    case Policy::fifo: return 0;
    case Policy::smallest_first: return static_cast<double>(waiter.bytes) / gib * settings.ageing;
    case Policy::deadline: return settings.longest_wait;
  }
  return 0;
}

// Checks that no waiter starves: every ticket just served was drawn before the bound of each
// remaining waiter.
bool is_fair(const Settings& settings, const std::vector<Ticket>& served,
             const std::vector<Ticket>& waiting) {
  return std::ranges::all_of(waiting, [&](const Ticket& waiter) {
    const double latest = static_cast<double>(waiter.drawn) / second + bound_of(settings, waiter);
    return std::ranges::all_of(served, [&](const Ticket& one) {
      return static_cast<double>(one.drawn) / second <= latest + 1e-6;
    });
  });
}

// Simulates jobs that arrive at random and move 1 GiB/s per slot. Waiters look in random order
// whenever a slot is free. Returns the waiting time of each job. Checks the number of held slots
// and the order of turns.
std::vector<Finished> simulate(const Settings& settings, std::size_t jobs, double load,
                               std::mt19937_64& random) {
  struct Running {
    double ends;
    Ticket ticket;
  };

  std::vector<Ticket> waiting;
  std::vector<Running> running;
  std::vector<Finished> finished;
  // the order of the looks has its own generator, so that all policies get the same jobs
  std::mt19937_64 order(random());
  // a mean of 10 GiB
  std::exponential_distribution<double> gap(load * settings.slots_in / 10), size(1.0 / 10);
  double now = 0, next_arrival = 0;
  std::uint64_t number = 0;
  while (finished.size() < jobs) {
    const auto first_end = std::ranges::min_element(running, {}, &Running::ends);
    if (number < jobs && (first_end == running.end() || next_arrival <= first_end->ends)) {
      now = next_arrival;
      waiting.push_back(ticket(++number, now, static_cast<std::uint64_t>(size(random) * gib)));
      next_arrival = now + gap(random);
    } else {
      REQUIRE(first_end != running.end());
      now = first_end->ends;
      running.erase(first_end);
    }
    std::vector<Ticket> served;
    for (bool taken = true; taken;) {
      taken = false;
      std::ranges::shuffle(waiting, order);
      for (auto looks = waiting.begin(); looks != waiting.end(); ++looks) {
        const auto ahead = std::ranges::count_if(waiting, [&](const Ticket& other) {
          return other.number != looks->number && goes_before(settings, other, *looks);
        });
        if (!may_take(static_cast<std::size_t>(ahead), settings.slots_in - running.size())) {
          continue;
        }
        const double seconds = static_cast<double>(looks->bytes) / gib;
        finished.push_back(
            {.waited = now - static_cast<double>(looks->drawn) / second, .bytes = looks->bytes});
        running.push_back({now + seconds, *looks});
        served.push_back(*looks);
        waiting.erase(looks);
        taken = true;
        break;
      }
    }
    REQUIRE(running.size() <= settings.slots_in);
    REQUIRE(is_fair(settings, served, waiting));
    // no slot stays idle while a job waits
    if (running.size() < settings.slots_in) {
      REQUIRE(waiting.empty());
    }
  }
  return finished;
}

TEST_CASE("10,000 jobs: slots are never exceeded nor idle, nobody starves", "[queue][alone]") {
  const auto seed = test::seed();
  INFO("EFS_TEST_SEED=" << seed);
  double mean_fifo = 0, mean_smallest = 0;
  for (const auto policy : {Policy::fifo, Policy::smallest_first, Policy::deadline}) {
    for (const unsigned slots : {1U, 4U}) {
      std::mt19937_64 random(seed);
      const Settings settings{
          .slots_in = slots, .policy = policy, .ageing = 20, .longest_wait = 3600};
      const auto finished = simulate(settings, 10'000, 0.9, random);
      REQUIRE(finished.size() == 10'000);
      double mean = 0;
      for (const auto& job : finished) {
        mean += job.waited / 10'000;
      }
      if (slots == 1 && policy == Policy::fifo) {
        mean_fifo = mean;
      }
      if (slots == 1 && policy == Policy::smallest_first) {
        mean_smallest = mean;
      }
    }
  }
  CHECK(mean_smallest < mean_fifo);  // the purpose of the policy
}

TEST_CASE("a large job under a flood of small ones gets its turn within its bound", "[queue]") {
  // Small jobs arrive faster than one slot can move them: without ageing the large job would wait
  // forever.
  for (const auto policy : {Policy::fifo, Policy::smallest_first, Policy::deadline}) {
    const Settings settings{.slots_in = 1, .policy = policy, .ageing = 2, .longest_wait = 300};
    std::vector<Ticket> waiting{ticket(1, 0, 100 * gib, 250)};
    std::uint64_t number = 1;
    double now = 0, served = -1;
    for (int step = 0; served < 0 && step < 20'000; ++step) {
      for (int i = 0; i < 2; ++i) {
        waiting.push_back(ticket(++number, now, gib, now + 1));
      }
      const auto next = std::ranges::min_element(
          waiting, [&](const Ticket& a, const Ticket& b) { return goes_before(settings, a, b); });
      if (next->number == 1) {
        served = now;
      }
      now += 1;
      waiting.erase(next);
    }
    INFO(name_of(policy));
    // Only tickets drawn before its rank overtake it: two a second, until 200 s (ageing) or 250 s
    // (its deadline).
    CHECK(served >= 0);
    CHECK(served <= 2 * 300);
  }
}

}  // namespace
}  // namespace efs::queue
