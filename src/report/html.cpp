// SPDX-License-Identifier: BSD-3-Clause
// The report as one page. The policy in its head forbids scripts, loads, frames and forms, so a
// name that slipped through an escape could not act.
#include "base/text.hpp"
#include "report/picture.hpp"
#include "report/report.hpp"

namespace efs::report {
namespace {

constexpr const char* head =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
    "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n"
    "<meta name=\"referrer\" content=\"no-referrer\">\n"
    "<meta name=\"generator\" content=\"efs report\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";

constexpr const char* style =
    "<style>\n"
    "body{font:15px/1.5 system-ui,sans-serif;color:#1b1f24;background:#fff;max-width:60em;"
    "margin:2em auto;padding:0 1em}\n"
    "h1{font-size:1.5em;margin-bottom:0;overflow-wrap:anywhere}"
    "h2{font-size:1.15em;margin-top:1.8em}section{overflow-x:auto}\n"
    "svg{width:100%;min-width:38em;height:auto;font:12px system-ui,sans-serif}"
    "svg text{fill:#1b1f24}\n"
    ".staging{fill:#1f6feb}.run{fill:#1a7f37}.other{fill:#9a6700}.beside{fill:#8250df}\n"
    ".space{fill:#1f6feb}.frame{fill:#f6f8fa;stroke:#57606a}\n"
    "table{border-collapse:collapse;width:100%}caption{text-align:left;padding:.3em 0}\n"
    "th,td{text-align:right;padding:.2em .7em;border-bottom:1px solid #d0d7de;"
    "vertical-align:top;white-space:nowrap}\n"
    "th.text,td.text{text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:9em;"
    "width:99%}th.reason,td.reason{width:60%}\n"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.2em 1em}dt{font-weight:600}\n"
    "dd{margin:0;overflow-wrap:anywhere}pre{background:#f6f8fa;padding:.6em;overflow:auto}\n"
    ".complete{color:#116329}.partial{color:#7d4e00}.failed{color:#a40e26}\n"
    "@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}"
    "svg text{fill:#e6edf3}.frame,pre{fill:#161b22;background:#161b22}th,td{border-color:#30363d}"
    ".complete{color:#56d364}.partial{color:#e3b341}.failed{color:#ff7b72}}\n"
    "</style>\n";

std::string element(const std::string& name, const std::string& text) {
  return "<" + name + ">" + as_html(text) + "</" + name + ">";
}

void add_section(std::string& page, const std::string& title, const std::string& content) {
  if (!content.empty()) {
    page += "<section>" + element("h2", title) + "\n" + content + "</section>\n";
  }
}

// Names and sentences wrap; numbers and words of efs do not.
std::string cell(const Table& table, std::size_t column, const char* name,
                 const std::string& text) {
  const char* const form = column + 1 == table.heads.size()  ? " class=\"text\""
                           : table.heads[column] == "reason" ? " class=\"text reason\""
                                                             : "";
  return std::string("<") + name + form + (name[1] == 'h' ? " scope=\"col\">" : ">") +
         as_html(text) + "</" + name + ">";
}

std::string html_of(const Table& table) {
  std::string text;
  if (!table.note.empty()) {
    text += element("p", table.note) + "\n";
  }
  if (table.rows.empty()) {
    return text;
  }
  text += "<table><thead><tr>";
  for (std::size_t i = 0; i < table.heads.size(); ++i) {
    text += cell(table, i, "th", table.heads[i]);
  }
  text += "</tr></thead><tbody>\n";
  for (const auto& row : table.rows) {
    text += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += cell(table, i, "td", row[i]);
    }
    text += "</tr>\n";
  }
  return text + "</tbody></table>\n";
}

std::string html_of(const std::vector<Advice>& all) {
  std::string text;
  for (const auto& advice : all) {
    text += (text.empty() ? "<ul>\n<li>" : "<li>") + element("p", advice.text);
    if (!advice.lines.empty()) {
      text += "<pre>";
      for (const auto& line : advice.lines) {
        text += as_html(line) + "\n";
      }
      text += "</pre>";
    }
    text += "</li>\n";
  }
  return text.empty() ? "" : text + "</ul>\n";
}

std::string html_of(const std::vector<Fact>& facts) {
  std::string text = "<dl>";
  for (const auto& fact : facts) {
    text += element("dt", fact.label) + element("dd", fact.text) + "\n";
  }
  return text + "</dl>\n";
}

}  // namespace

bool begins_page(std::string_view text) {
  return text.starts_with(head);
}

std::string to_html(const Report& report) {
  std::string page = head;
  page += element("title", "efs: " + report.job + ": " + report.verdict) + "\n" + style +
          "</head>\n<body><main>\n";
  page += "<h1>" + as_html(report.job) + ": <span class=\"" + as_html(report.verdict) + "\">" +
          as_html(report.verdict) + "</span></h1>\n";
  page += element("p", report.when + (report.results_dir.empty()
                                          ? std::string()
                                          : ", results in " + report.results_dir)) +
          "\n";
  add_section(page, "What happened", html_of(report.summary));
  add_section(page, "Advice for the job file", html_of(report.advice));
  add_section(page, "Time line", time_line_picture(report));
  add_section(page, "Buffer use over time", space_picture(report));
  for (const auto& table : report.tables) {
    const bool is_opens = table.title == "Opens by path";
    add_section(page, table.title, (is_opens ? opens_picture(report) : "") + html_of(table));
  }
  return page + "</main></body></html>\n";
}

}  // namespace efs::report
