// SPDX-License-Identifier: BSD-3-Clause
#include <unistd.h>

#include <chrono>
#include <iomanip>
#include <iostream>
#include <map>
#include <thread>

#include "base/text.hpp"
#include "cli/cli.hpp"

namespace efs::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Look {
  Clock::time_point time;
  Json status;
};

std::uint64_t counter(const Json& status, const char* key) {
  return status.contains("counters") ? status["counters"].value(key, std::uint64_t{0}) : 0;
}

// Returns the increase of a counter per second since the last look, or the total if there was none.
std::uint64_t rate(const Look& now, const Look* before, const char* key) {
  const std::uint64_t value = counter(now.status, key);
  if (before == nullptr) {
    return value;
  }
  const double seconds = std::chrono::duration<double>(now.time - before->time).count();
  const std::uint64_t last = counter(before->status, key);
  return seconds <= 0 || value < last
             ? 0
             : static_cast<std::uint64_t>(static_cast<double>(value - last) / seconds);
}

std::string staged(const Json& status) {
  const auto total = status.value("bytes_total", std::uint64_t{0});
  const std::string state = status.value("state", "");
  if (total == 0 || (state != "staging-in" && state != "staging-out")) {
    return "-";
  }
  return std::to_string(100 * status.value("bytes_done", std::uint64_t{0}) / total) + "%";
}

void print_head(std::ostream& out, bool rates) {
  const char* const per = rates ? "/s" : "";
  out << std::left << std::setw(20) << "NAME" << std::setw(13) << "STATE" << std::setw(13) << "I/O"
      << std::right << std::setw(11) << "USED" << std::setw(11) << "OF" << std::setw(9) << "STAGED"
      << std::setw(10) << (std::string("REQ") + per) << std::setw(9) << (std::string("OPEN") + per)
      << std::setw(12) << (std::string("READ") + per) << std::setw(12)
      << (std::string("WRITTEN") + per) << std::setw(8) << "ERRORS"
      << "\n";
}

void print_row(std::ostream& out, const Look& now, const Look* before) {
  const Json& s = now.status;
  const bool has_space = s.contains("capacity");
  out << std::left << std::setw(20) << escaped(s.value("name", "?")).substr(0, 19) << std::setw(13)
      << printable(s.value("state", "?")) << std::setw(13) << printable(s.value("io", "-"))
      << std::right << std::setw(11)
      << (has_space ? format_bytes(s["used"].get<std::uint64_t>()) : "-") << std::setw(11)
      << (has_space ? format_bytes(s["capacity"].get<std::uint64_t>()) : "-") << std::setw(9)
      << staged(s) << std::setw(10) << rate(now, before, "requests") << std::setw(9)
      << rate(now, before, "opens") << std::setw(12)
      << format_bytes(rate(now, before, "read_bytes")) << std::setw(12)
      << format_bytes(rate(now, before, "written_bytes")) << std::setw(8) << counter(s, "errors")
      << "\n";
}

Result<std::vector<control::Instance>> watched(const std::string& which) {
  if (which.empty()) {
    return control::list_instances();
  }
  auto instance = find_instance(which);
  if (!instance) {
    return std::unexpected(instance.error());
  }
  return std::vector{*instance};
}

// by the directory of the instance
using Looks = std::map<std::string, Look>;

Looks look_at_all(const std::vector<control::Instance>& instances) {
  Looks looks;
  for (const auto& instance : instances) {
    looks[instance.directory] = {Clock::now(), status_of(instance)};
  }
  return looks;
}

Json document_of_looks(const Looks& looks) {
  Json all = Json::array();
  for (const auto& [directory, look] : looks) {
    all.push_back(look.status);
  }
  return all;
}

// Prints rates since `before`; with `once` totals.
void print_looks(std::ostream& out, const Looks& now, const Looks& before, bool once) {
  if (!once) {
    out << "\033[H\033[2J";
  }
  print_head(out, !once);
  for (const auto& [directory, look] : now) {
    const auto last = before.find(directory);
    // Without an earlier look there is no rate: print zeros.
    print_row(out, look, once ? nullptr : last == before.end() ? &look : &last->second);
  }
  out << (now.empty() ? "no instance is running\n"
                      : "READ and WRITTEN are of the daemon's path: passthrough I/O is the "
                        "kernel's and not counted.\n")
      << std::flush;
}

}  // namespace

int top(World& world, const TopArguments& arguments) {
  const bool once = arguments.once || world.json || ::isatty(1) != 1;
  Looks before;
  while (true) {
    const auto instances = watched(arguments.which);
    if (!instances) {
      return report(world, instances.error());
    }
    Looks now = look_at_all(*instances);
    if (world.json) {
      print_document(world, document_of_looks(now));
      return exit_good;
    }
    print_looks(world.out, now, before, once);
    if (once || !world.out) {
      return exit_good;
    }
    before = std::move(now);
    std::this_thread::sleep_for(std::chrono::duration<double>(arguments.interval));
  }
}

}  // namespace efs::cli
