// SPDX-License-Identifier: BSD-3-Clause
#include "queue/overview.hpp"

#include <algorithm>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text.hpp"
#include "base/user.hpp"

namespace efs::queue {
namespace {

using Json = nlohmann::json;

Nanoseconds now() {
  return wall_clock();
}

// Returns the line of this entry; nullopt if its job is dead or its ticket unreadable.
std::optional<Line> line_of(const Directory& directory, const Entry& entry) {
  if (directory.sees_locks() && !directory.is_alive(entry.number)) {
    return std::nullopt;
  }
  auto ticket = directory.read(entry);
  if (!ticket) {
    return std::nullopt;
  }
  if (!entry.holds) {
    ticket->slot = -1;
  }
  const auto seen = now();
  const double silence = directory.silence(entry, seen);
  Line line{.ticket = std::move(*ticket), .silence = std::max(0.0, silence)};
  if (entry.holds) {
    line.left = estimate_left(line.ticket, seen, silence);
  }
  return line;
}

// The waiters are in the order of their turns.
void estimate_waits(Side& side) {
  std::vector<Holder> holders;
  std::vector<Ticket> ahead;
  for (const auto& line : side.holders) {
    holders.push_back({.ticket = line.ticket, .left = line.left});
  }
  for (auto& line : side.waiters) {
    ahead.push_back(line.ticket);
    line.wait = estimate_wait(holders, ahead, side.slots, side.rate);
  }
}

Side look_at_side(const Directory& directory, const Settings& settings, Direction direction) {
  Side side{.slots = direction == Direction::in ? settings.slots_in : settings.slots_out,
            .rate = directory.state().rate(direction)};
  for (const auto& entry : directory.list(direction)) {
    if (auto line = line_of(directory, entry)) {
      (entry.holds ? side.holders : side.waiters).push_back(std::move(*line));
    }
  }
  std::ranges::sort(side.waiters, [&](const Line& a, const Line& b) {
    return goes_before(settings, a.ticket, b.ticket);
  });
  estimate_waits(side);
  return side;
}

Json to_json(const Line& line) {
  const Ticket& t = line.ticket;
  Json json{{"job", t.job},
            {"node", t.node},
            {"uid", t.uid},
            {"bytes", t.bytes},
            {"bytes_done", t.done},
            {"ticket", t.number},
            {"since", static_cast<double>(t.slot >= 0 ? t.granted : t.drawn) / 1e9},
            {"silence_seconds", line.silence}};
  if (t.slot >= 0) {
    json["slot"] = t.slot;
  }
  if (t.deadline != 0) {
    json["deadline"] = static_cast<double>(t.deadline) / 1e9;
  }
  if (line.wait >= 0) {
    json["wait_seconds"] = line.wait;
  }
  if (line.left >= 0) {
    json["left_seconds"] = line.left;
  }
  return json;
}

Json to_json(const Side& side) {
  Json json{{"slots", side.slots},
            {"rate", side.rate},
            {"holders", Json::array()},
            {"waiters", Json::array()}};
  for (const auto& line : side.holders) {
    json["holders"].push_back(to_json(line));
  }
  for (const auto& line : side.waiters) {
    json["waiters"].push_back(to_json(line));
  }
  return json;
}

std::string clock_time(Nanoseconds ns) {
  const time_t seconds = ns / 1'000'000'000;
  struct tm parts{};
  ::localtime_r(&seconds, &parts);
  char text[32];
  (void)std::strftime(text, sizeof text, "%F %T", &parts);
  return text;
}

// The owner of the queue controls its text, so no control character may reach the terminal.
std::string plain(std::string text) {
  std::ranges::replace_if(text, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text;
}

// User names by number; each is looked up once, because the lookup may ask another machine.
using Names = std::map<std::uint32_t, std::string>;

const std::string& name_of(std::uint32_t uid, Names& names) {
  const auto [name, is_new] = names.try_emplace(uid);
  if (!is_new) {
    return name->second;
  }
  const auto user = find_user(std::to_string(uid));
  return name->second = user ? user->name : std::to_string(uid);
}

std::string describe(const Line& line, const Settings& settings, Names& names) {
  const Ticket& t = line.ticket;
  std::string text = "  " + std::string(t.slot >= 0 ? "holds " : "waits ") + plain(t.job) + " on " +
                     plain(t.node) + ", user " + name_of(t.uid, names) + ", " +
                     format_bytes(t.bytes) + ", since " +
                     clock_time(t.slot >= 0 ? t.granted : t.drawn);
  if (t.slot >= 0 && t.bytes > 0) {
    text += ", " + std::to_string(std::min<std::uint64_t>(100, t.done * 100 / t.bytes)) + "% moved";
  }
  if (line.left >= 0) {
    text += ", about " + format_seconds(line.left) + " left";
  }
  if (t.slot < 0) {
    text +=
        line.wait >= 0 ? ", turn in about " + format_seconds(line.wait) : ", turn: not known yet";
  }
  if (line.silence > settings.stale_after) {
    text += ", silent for " + format_seconds(line.silence);
  }
  return text + "\n";
}

std::string describe(const char* title, const Side& side, const Settings& settings, Names& names) {
  std::string text = std::string(title) + ": " + std::to_string(side.holders.size()) + " of " +
                     std::to_string(side.slots) + " slots held, " +
                     std::to_string(side.waiters.size()) + " waiting";
  if (side.rate > 0) {
    text += ", " + format_bytes(static_cast<std::uint64_t>(side.rate)) + "/s each";
  }
  text += "\n";
  for (const auto& line : side.holders) {
    text += describe(line, settings, names);
  }
  for (const auto& line : side.waiters) {
    text += describe(line, settings, names);
  }
  return text;
}

}  // namespace

Result<Overview> look_at(const std::string& path) {
  const auto directory = Directory::open(path, false);
  if (!directory) {
    return std::unexpected(directory.error());
  }
  Overview overview{.directory = path};
  if (auto settings = directory->settings()) {
    overview.settings = *settings;
  } else {
    overview.problem = efs::describe(settings.error());
  }
  overview.in = look_at_side(*directory, overview.settings, Direction::in);
  overview.out = look_at_side(*directory, overview.settings, Direction::out);
  return overview;
}

Json to_json(const Overview& overview) {
  Json json{{"directory", overview.directory},
            {"policy", name_of(overview.settings.policy)},
            {"in", to_json(overview.in)},
            {"out", to_json(overview.out)}};
  if (!overview.problem.empty()) {
    json["problem"] = overview.problem;
  }
  return json;
}

std::string describe(const Overview& overview) {
  std::string text =
      "queue " + overview.directory + ", " + name_of(overview.settings.policy) + "\n";
  if (!overview.problem.empty()) {
    text += "problem: " + overview.problem + "\n";
  }
  Names names;
  text += describe("stage-in", overview.in, overview.settings, names);
  return text + describe("stage-out", overview.out, overview.settings, names);
}

}  // namespace efs::queue
