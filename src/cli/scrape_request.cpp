// SPDX-License-Identifier: BSD-3-Clause
#include "cli/scrape_request.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <utility>

namespace efs::cli {
namespace {

constexpr std::array<std::pair<int, const char*>, 7> statuses{{{200, "OK"},
                                                               {400, "Bad Request"},
                                                               {403, "Forbidden"},
                                                               {404, "Not Found"},
                                                               {405, "Method Not Allowed"},
                                                               {431, "Header Too Large"},
                                                               {503, "Service Unavailable"}}};

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  return first == text.npos ? "" : text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

bool is_same(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

// Removes and returns the part before `mark`, or all.
std::string_view cut_off(std::string_view& text, std::string_view mark) {
  const auto end = text.find(mark);
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(end == text.npos ? text.size() : end + mark.size());
  return part;
}

// One entry of an Accept header.
struct MediaRange {
  std::string_view type, version;
  double quality = 1;
};

MediaRange media_range_of(std::string_view entry) {
  MediaRange range{.type = trimmed(cut_off(entry, ";")), .version = {}};
  while (!entry.empty()) {
    std::string_view value = cut_off(entry, ";");
    const std::string_view name = trimmed(cut_off(value, "="));
    if (is_same(name, "q")) {
      range.quality = std::strtod(std::string(trimmed(value)).c_str(), nullptr);
    } else if (is_same(name, "version")) {
      range.version = trimmed(value);
    }
  }
  return range;
}

// How much the client wants each format.
struct Preference {
  double openmetrics = 0, text = 0;

  void read(std::string_view accept) {
    while (!accept.empty()) {
      const MediaRange range = media_range_of(cut_off(accept, ","));
      const bool has_version = range.version.empty() || range.version == "1.0.0";
      if (is_same(range.type, "application/openmetrics-text") && has_version) {
        openmetrics = std::max(openmetrics, range.quality);
      } else if (is_same(range.type, "text/plain")) {
        text = std::max(text, range.quality);
      }
    }
  }

  ScrapeFormat format() const {
    return openmetrics > 0 && openmetrics >= text ? ScrapeFormat::openmetrics : ScrapeFormat::text;
  }
};

// Returns the status for a request line: METHOD TARGET HTTP/1.x
int status_of_line(std::string_view line) {
  const std::string_view method = cut_off(line, " "), target = cut_off(line, " ");
  if (method.empty() || target.empty() || (line != "HTTP/1.1" && line != "HTTP/1.0")) {
    return 400;
  }
  if (method != "GET") {
    return 405;
  }
  return target.substr(0, target.find('?')) == "/metrics" ? 200 : 404;
}

// A page in a browser of this machine can reach a loopback address by a name of its own server, and
// then names that server here (DNS rebinding).
bool is_this_machine(std::string_view host) {
  if (host.starts_with("[::1]")) {
    return true;
  }
  const std::string_view name = cut_off(host, ":");
  return name.empty() || is_same(name, "localhost") ||
         (name.starts_with("127.") && name.find_first_not_of("0123456789.") == name.npos);
}

// Returns the end of the head with its blank line.
std::optional<std::size_t> end_of_head(std::string_view received) {
  const auto with_return = received.find("\n\r\n"), without = received.find("\n\n");
  const auto end = std::min(with_return, without);
  return end == received.npos ? std::nullopt : std::optional(end + 1);
}

}  // namespace

std::optional<ScrapeAnswer> judge_scrape(std::string_view received) {
  const auto end = end_of_head(received.substr(0, longest_scrape_request));
  if (!end) {
    return received.size() < longest_scrape_request ? std::nullopt
                                                    : std::optional(ScrapeAnswer{.status = 431});
  }
  std::string_view head = received.substr(0, *end);
  ScrapeAnswer answer{.status = status_of_line(trimmed(cut_off(head, "\n")))};
  Preference preference;
  while (!head.empty()) {
    std::string_view value = cut_off(head, "\n");
    if (!value.contains(':')) {
      return ScrapeAnswer{.status = 400};
    }
    const std::string_view name = cut_off(value, ":");
    if (is_same(name, "accept")) {
      preference.read(trimmed(value));
    } else if (is_same(name, "host") && !is_this_machine(trimmed(value))) {
      return ScrapeAnswer{.status = 403};
    }
  }
  answer.format = preference.format();
  return answer;
}

std::string head_of_answer(const ScrapeAnswer& answer, std::size_t length) {
  const bool is_openmetrics = answer.status == 200 && answer.format == ScrapeFormat::openmetrics;
  const std::string type = is_openmetrics
                               ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                           : answer.status == 200 ? "text/plain; version=0.0.4; charset=utf-8"
                                                  : "text/plain; charset=utf-8";
  std::string line = text_of_status(answer.status);
  line.pop_back();
  return "HTTP/1.1 " + line + "\r\nContent-Type: " + type +
         "\r\nContent-Length: " + std::to_string(length) +
         (answer.status == 405 ? "\r\nAllow: GET" : "") + "\r\nConnection: close\r\n\r\n";
}

std::string text_of_status(int status) {
  const auto found = std::ranges::find(statuses, status, &decltype(statuses)::value_type::first);
  return std::to_string(status) + " " + (found == statuses.end() ? "Error" : found->second) + "\n";
}

}  // namespace efs::cli
