// SPDX-License-Identifier: BSD-3-Clause
#include "report/picture.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/text.hpp"

namespace efs::report {
namespace {

constexpr double picture_width = 720, left_edge = 110, right_edge = 150;
constexpr double row_height = 24;

std::string number(double value) {
  std::array<char, 32> text{};
  (void)std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

/// `id` names the title and the description within the page.
std::string begin_picture(const std::string& id, double height, const std::string& title,
                          const std::string& description) {
  return "<svg role=\"img\" aria-labelledby=\"" + id + "-t " + id + "-d\" viewBox=\"0 0 " +
         number(picture_width) + " " + number(height) + "\"><title id=\"" + id + "-t\">" +
         as_html(title) + "</title><desc id=\"" + id + "-d\">" + as_html(description) + "</desc>\n";
}

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
};

std::string rectangle(const Box& box, const std::string& kind) {
  return "<rect class=\"" + kind + "\" x=\"" + number(box.x) + "\" y=\"" + number(box.y) +
         "\" width=\"" + number(box.width) + "\" height=\"" + number(box.height) + "\"/>\n";
}

std::string label(double x, double y, const std::string& text, const char* anchor = "start") {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor + "\">" +
         as_html(text) + "</text>\n";
}

/// The class that colours a bar.
std::string kind_of(const Bar& bar) {
  if (bar.beside) {
    return "beside";
  }
  if (bar.name == "run") {
    return "run";
  }
  return bar.name.starts_with("stage-") ? "staging" : "other";
}

std::string text_of(const Bar& bar) {
  const auto rate = rate_text(bar.bytes, bar.seconds);
  return time_text(bar.seconds) + (rate.empty() ? "" : ", " + rate);
}

std::string points_of(const Report& report, double end, double top, double height) {
  std::string points;
  for (const auto& point : report.space) {
    const double x = left_edge + (picture_width - left_edge - right_edge) *
                                     std::clamp(point.seconds / end, 0.0, 1.0);
    const double share = static_cast<double>(point.used) /
                         static_cast<double>(std::max<std::uint64_t>(1, report.capacity));
    points += number(x) + "," + number(top + height * (1 - std::min(1.0, share))) + " ";
  }
  return points;
}

}  // namespace

std::string as_html(std::string_view text) {
  std::string result;
  for (const char c : escaped(text)) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      case '\'': result += "&#39;"; break;
      default: result += c;
    }
  }
  return result;
}

std::string time_line_picture(const Report& report) {
  double end = 0;
  std::string description;
  for (const auto& bar : report.bars) {
    end = std::max(end, bar.begin + bar.seconds);
    description += bar.name + " " + text_of(bar) + "; ";
  }
  if (end <= 0) {
    return "";
  }
  const double height = row_height * static_cast<double>(report.bars.size()) + 26;
  std::string picture = begin_picture("time", height, "Time line", description);
  double y = 4;
  for (const auto& bar : report.bars) {
    const double x = left_edge + (picture_width - left_edge - right_edge) * bar.begin / end;
    const double wide = std::max(1.5, (picture_width - left_edge - right_edge) * bar.seconds / end);
    picture += rectangle({.x = x, .y = y, .width = wide, .height = row_height - 6}, kind_of(bar));
    picture += label(left_edge - 8, y + 13, bar.name, "end");
    picture += label(picture_width - right_edge + 6, y + 13, text_of(bar));
    y += row_height;
  }
  picture += label(left_edge, y + 14, "0 s") +
             label(picture_width - right_edge, y + 14, time_text(end), "end") + "</svg>\n";
  return picture;
}

std::string space_picture(const Report& report) {
  if (report.space.size() < 2 || report.capacity == 0) {
    return "";
  }
  constexpr double top = 8, height = 120;
  const auto peak = std::ranges::max(report.space, {}, &Point::used);
  const double end = std::max(1e-3, report.space.back().seconds);
  std::string picture =
      begin_picture("space", top + height + 24, "Buffer use over time",
                    "At most " + format_bytes(peak.used) + " of " + format_bytes(report.capacity) +
                        ", after " + time_text(std::max(0.0, peak.seconds)));
  const double x_of_first =
      left_edge + (picture_width - left_edge - right_edge) *
                      std::clamp(report.space.front().seconds / end, 0.0, 1.0);
  picture += rectangle(
      {.x = left_edge, .y = top, .width = picture_width - left_edge - right_edge, .height = height},
      "frame");
  picture += "<polygon class=\"space\" points=\"" + number(x_of_first) + "," +
             number(top + height) + " " + points_of(report, end, top, height) +
             number(picture_width - right_edge) + "," + number(top + height) + "\"/>\n";
  picture +=
      label(left_edge - 8, top + 10, format_bytes(report.capacity), "end") +
      label(left_edge - 8, top + height, "0", "end") + label(left_edge, top + height + 16, "0 s") +
      label(picture_width - right_edge, top + height + 16, time_text(end), "end") + "</svg>\n";
  return picture;
}

std::string opens_picture(const Report& report) {
  const double all = static_cast<double>(report.passthrough_opens + report.daemon_opens);
  if (all <= 0) {
    return "";
  }
  const double wide = picture_width - left_edge - right_edge;
  const double share = static_cast<double>(report.passthrough_opens) / all;
  const std::string text = std::to_string(report.passthrough_opens) + " passthrough, " +
                           std::to_string(report.daemon_opens) + " daemon";
  return begin_picture("opens", 44, "Opens by path", text) +
         rectangle({.x = left_edge, .y = 4, .width = wide * share, .height = 18}, "run") +
         rectangle(
             {.x = left_edge + wide * share, .y = 4, .width = wide * (1 - share), .height = 18},
             "other") +
         label(left_edge - 8, 17, "opens", "end") +
         label(left_edge, 38, std::to_string(report.passthrough_opens) + " passthrough") +
         label(picture_width - right_edge, 38, std::to_string(report.daemon_opens) + " daemon",
               "end") +
         "</svg>\n";
}

}  // namespace efs::report
