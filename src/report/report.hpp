// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The report of a job, made from its receipt: the same content as text, as one HTML page and as
// JSON. Pure functions. Names in a Report are raw bytes; text.cpp and html.cpp escape them.

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stage/export/receipt.hpp"

namespace efs::report {

/// A line of the summary.
struct Fact {
  std::string label, text;
};

struct Table {
  std::string title;
  std::string note;  // a sentence before the rows; may be all of the section
  std::vector<std::string> heads;
  std::vector<std::vector<std::string>> rows;  // the last column is a name, the others are short
};

/// A change of the job file that would help a later run.
struct Advice {
  std::string text;
  std::vector<std::string> lines;  // of the job file: "resources:", "  - path: input/a"
};

/// A bar of the time line, in seconds since its begin.
struct Bar {
  std::string name;
  double begin = 0, seconds = 0;
  std::uint64_t bytes = 0;
  bool beside = false;  // ran while programs used the mount
};

struct Point {
  double seconds = 0;
  std::uint64_t used = 0;
};

struct Report {
  std::string job, results_dir, verdict;
  std::string when;  // "2026-01-31 12:00:00 UTC": the end
  std::vector<Fact> summary;
  std::vector<Bar> bars;
  std::vector<Point> space;  // buffer use over time
  std::uint64_t capacity = 0;
  std::uint64_t passthrough_opens = 0, daemon_opens = 0;
  std::vector<Table> tables;
  std::vector<Advice> advice;
};

/// Names of files that a table lists at most.
inline constexpr std::size_t most_rows = 10;

/// A receipt without a record gives a report without the sections that need one.
Report make_report(const stage::Receipt& receipt);

/// For a terminal: at most 80 columns where names permit.
std::string to_text(const Report& report);

/// One self-contained page: no script, no load, no link. Its policy forbids them, too.
std::string to_html(const Report& report);

/// True if a page of to_html() begins so.
bool begins_page(std::string_view text);

nlohmann::json to_json(const Report& report);

/// "0.25 s", "3m20s".
std::string time_text(double seconds);

/// Bytes moved in a time: "1.2 GiB/s"; "" if they are too few for a rate to mean something.
std::string rate_text(std::uint64_t bytes, double seconds);

}  // namespace efs::report
