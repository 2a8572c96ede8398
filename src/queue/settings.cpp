// SPDX-License-Identifier: BSD-3-Clause
#include "queue/settings.hpp"

#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <map>
#include <span>
#include <vector>

#include "base/text.hpp"

namespace efs::queue {
namespace {

constexpr std::array<std::string_view, 3> policies{"fifo", "smallest-first", "deadline"};
constexpr unsigned most_slots = 1024;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blank = " \t\r\"'";
  const auto first = text.find_first_not_of(blank);
  return first == text.npos ? std::string_view{}
                            : text.substr(first, text.find_last_not_of(blank) - first + 1);
}

Status set_policy(Settings& settings, std::string_view value) {
  for (std::size_t i = 0; i < policies.size(); ++i) {
    if (policies.at(i) == value) {
      settings.policy = static_cast<Policy>(i);
      return {};
    }
  }
  return fail(EINVAL, "policy is one of fifo, smallest-first, deadline, not " + std::string(value));
}

Result<double> number(std::string_view key, std::string_view value, double least, double most) {
  const std::string text(value);
  char* end = nullptr;
  const double n = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(n) || n < least || n > most) {
    return fail(EINVAL, std::string(key) + " is \"" + text + "\"; it must be a number from " +
                            std::to_string(least) + " to " + std::to_string(most));
  }
  return n;
}

// Returns the bytes of a unit: a unit of sizes as in job files, with or without "/s". 0: unknown
// unit.
double bytes_of(std::string_view unit) {
  if (unit.ends_with("/s")) {
    unit.remove_suffix(2);
  }
  std::string lower;
  for (const char c : unit) {
    lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (lower.empty() || lower == "b") {
    return 1;
  }
  const auto power = std::string_view("kmgt").find(lower[0]);
  const auto rest = std::string_view(lower).substr(1);
  if (power == std::string_view::npos || (!rest.empty() && rest != "b" && rest != "ib")) {
    return 0;
  }
  return std::pow(rest == "ib" ? 1024.0 : 1000.0, static_cast<double>(power + 1));
}

Status set_rate(Settings& settings, std::string_view value) {
  const auto digits = value.find_first_not_of("0123456789.");
  const double unit = digits == value.npos ? 1 : bytes_of(trimmed(value.substr(digits)));
  const auto n = number("least-rate", trimmed(value.substr(0, digits)), 0, 1e15);
  if (unit == 0 || !n) {
    return fail(EINVAL, "least-rate is \"" + std::string(value) +
                            "\"; it must be a size per second, as 10 MiB/s");
  }
  settings.least_rate = *n * unit;
  return {};
}

Status set_count(unsigned& count, std::string_view key, std::string_view value) {
  const auto n = number(key, value, 1, most_slots);
  if (!n) {
    return std::unexpected(n.error());
  }
  if (*n != std::floor(*n)) {
    return fail(EINVAL, std::string(key) + " must be a whole number");
  }
  count = static_cast<unsigned>(*n);
  return {};
}

Status set_seconds(double& seconds, std::string_view key, std::string_view value) {
  const auto n = number(key, value, key == "ageing" ? 0 : 0.001, 1e8);
  if (!n) {
    return std::unexpected(n.error());
  }
  seconds = *n;
  return {};
}

std::unexpected<Error> unknown_key(std::string_view key,
                                   const std::vector<std::string_view>& known) {
  const auto near = nearest(key, known);
  return fail(EINVAL, "unknown key \"" + std::string(key) + "\"" +
                          (near.empty() ? "" : "; did you mean " + std::string(near) + "?"));
}

Status set(Settings& settings, std::string_view key, std::string_view value) {
  if (key == "policy") {
    return set_policy(settings, value);
  }
  if (key == "least-rate") {
    return set_rate(settings, value);
  }
  const std::map<std::string_view, unsigned*> counts{{"slots-in", &settings.slots_in},
                                                     {"slots-out", &settings.slots_out}};
  const std::map<std::string_view, double*> seconds{{"ageing", &settings.ageing},
                                                    {"longest-wait", &settings.longest_wait},
                                                    {"longest-hold", &settings.longest_hold},
                                                    {"heartbeat", &settings.heartbeat},
                                                    {"stale-after", &settings.stale_after},
                                                    {"poll", &settings.poll}};
  if (const auto count = counts.find(key); count != counts.end()) {
    return set_count(*count->second, key, value);
  }
  if (const auto field = seconds.find(key); field != seconds.end()) {
    return set_seconds(*field->second, key, value);
  }
  std::vector<std::string_view> known{"policy", "least-rate"};
  for (const auto& [name, field] : counts) {
    known.push_back(name);
  }
  for (const auto& [name, field] : seconds) {
    known.push_back(name);
  }
  return unknown_key(key, known);
}

}  // namespace

const char* name_of(Policy policy) {
  return policies.at(static_cast<std::size_t>(policy)).data();
}

Result<Settings> parse_settings(std::string_view text) {
  Settings settings;
  for (int line = 1; !text.empty(); ++line) {
    const auto end = std::min(text.find('\n'), text.size());
    auto words = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    words = trimmed(words.substr(0, words.find('#')));
    if (words.empty()) {
      continue;
    }
    const auto colon = words.find(':');
    const Status done = colon == words.npos ? fail(EINVAL, "a line is KEY: VALUE")
                                            : set(settings, trimmed(words.substr(0, colon)),
                                                  trimmed(words.substr(colon + 1)));
    if (!done) {
      return fail(EINVAL, "line " + std::to_string(line) + ": " + done.error().what);
    }
  }
  return settings;
}

}  // namespace efs::queue
