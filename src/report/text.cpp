// SPDX-License-Identifier: BSD-3-Clause
// The report for a terminal.
#include <algorithm>
#include <cmath>

#include "base/text.hpp"
#include "report/report.hpp"

namespace efs::report {
namespace {

constexpr std::size_t columns = 80;
constexpr std::size_t bar_columns = 40;

/// Wraps at blanks. Each line begins with `indent` blanks.
std::string wrapped(const std::string& text, std::size_t indent) {
  const std::string margin(indent, ' ');
  std::string result, line;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!line.empty() && indent + line.size() + 1 + word.size() > columns) {
      result += margin + line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
    at = end + 1;
  }
  return line.empty() ? result : result + margin + line + "\n";
}

void add_heading(std::string& text, const std::string& title) {
  text += "\n" + title + "\n";
}

void add_summary(std::string& text, const Report& report) {
  for (const auto& fact : report.summary) {
    text += "  " + fact.label +
            std::string(11 - std::min<std::size_t>(10, fact.label.size()), ' ') +
            printable(fact.text) + "\n";
  }
}

double end_of(const std::vector<Bar>& bars) {
  double end = 0;
  for (const auto& bar : bars) {
    end = std::max(end, bar.begin + bar.seconds);
  }
  return end;
}

void add_time_line(std::string& text, const Report& report) {
  const double end = end_of(report.bars);
  if (end <= 0) {
    return;
  }
  add_heading(text, "Time line, 0 to " + time_text(end));
  for (const auto& bar : report.bars) {
    const auto column = [&](double seconds) {
      return static_cast<std::size_t>(std::lround(seconds / end * bar_columns));
    };
    const std::size_t from = std::min(column(bar.begin), bar_columns - 1);
    const std::size_t to = std::clamp(column(bar.begin + bar.seconds), from + 1, bar_columns);
    const std::string name = escaped(bar.name).substr(0, 10);
    text += "  " + name + std::string(11 - name.size(), ' ') + "|" + std::string(from, ' ') +
            std::string(to - from, bar.beside ? '=' : '#') + std::string(bar_columns - to, ' ') +
            "| " + time_text(bar.seconds);
    if (const auto rate = rate_text(bar.bytes, bar.seconds); !rate.empty()) {
      text += ", " + rate;
    }
    text += "\n";
  }
}

void add_space(std::string& text, const Report& report) {
  if (report.space.empty() || report.capacity == 0) {
    return;
  }
  const auto peak = std::ranges::max(report.space, {}, &Point::used);
  add_heading(text, "Buffer use");
  text += "  at most " + format_bytes(peak.used) + " of " + format_bytes(report.capacity) +
          ", after " + time_text(std::max(0.0, peak.seconds)) + " (" +
          std::to_string(report.space.size()) + " samples)\n";
}

/// The columns but the last are right-aligned.
void add_table(std::string& text, const Table& table) {
  add_heading(text, table.title);
  text += wrapped(printable(table.note), 2);
  if (table.rows.empty()) {
    return;
  }
  std::vector<std::vector<std::string>> rows{table.heads};
  for (const auto& row : table.rows) {
    rows.emplace_back();
    std::ranges::transform(row, std::back_inserter(rows.back()), escaped);
  }
  std::vector<std::size_t> widths(table.heads.size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  for (const auto& row : rows) {
    text += " ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool is_last = i + 1 == row.size();
      text += (is_last ? "  " : " " + std::string(widths[i] - row[i].size(), ' ')) + row[i];
    }
    text += "\n";
  }
}

void add_advice(std::string& text, const Report& report) {
  if (report.advice.empty()) {
    return;
  }
  add_heading(text, "Advice for the job file");
  for (const auto& advice : report.advice) {
    text += wrapped("* " + printable(advice.text), 2);
    for (const auto& line : advice.lines) {
      text += "      " + printable(line) + "\n";
    }
  }
}

}  // namespace

std::string to_text(const Report& report) {
  std::string text =
      escaped(report.job) + ": stage-out " + report.verdict + ", " + report.when + "\n";
  if (!report.results_dir.empty()) {
    text += "  results    " + escaped(report.results_dir) + "\n";
  }
  add_summary(text, report);
  add_time_line(text, report);
  add_space(text, report);
  for (const auto& table : report.tables) {
    add_table(text, table);
  }
  add_advice(text, report);
  return text;
}

}  // namespace efs::report
