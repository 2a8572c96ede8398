// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The table of efs top: from two samples of each instance to rows, and from rows to text. Pure
// functions, and none throws: cli/top.cpp takes the samples and shows the text.

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace efs::cli {

/// A stage-in, a stage-out, a load or an unload that is running or waits for its turn at the PFS.
struct Transfer {
  std::string what;  // "in", "out", "load" or "unload"
  std::uint64_t task = 0;
  std::uint64_t done = 0, total = 0;  // bytes
  double started = 0;                 // seconds since 1970; 0: unknown
  std::optional<double> left{};       // seconds, as the daemon estimates
  std::optional<unsigned> ahead{};    // it waits for its turn behind so many
};

/// The figures of an instance at one time.
struct TopSample {
  double at = 0;   // seconds of a clock that never jumps
  double now = 0;  // seconds since 1970
  std::string name, state, io;
  std::int64_t since = 0;  // identifies a life of the instance
  std::optional<std::uint64_t> used{}, capacity{};
  std::uint64_t requests = 0, opens = 0, read = 0, written = 0, errors = 0;
  std::vector<Transfer> transfers{};
};

/// Returns the sample in an answer of status_of(). The instance's user controls that answer: the
/// sample of an answer that makes no sense has the state "?".
TopSample sample_of(const nlohmann::json& status, double at, double now);

/// Samples by the directory of the instance.
using TopSamples = std::map<std::string, TopSample>;

/// One line of the table. The figures are rates per second, or totals since the start.
struct TopRow {
  TopSample sample;
  double requests = 0, opens = 0, read = 0, written = 0;
  // the change of `used` per second; only for a rate. It is the only figure that shows writes of
  // passthrough
  std::optional<double> growth{};
  std::string transfer{};  // "in 45% 120M/s 12s"; "": none
  double activity = 0;
};

/// Returns a row for each sample of `now`, the most active first, then by name. Rates are zero for
/// an instance that `before` lacks, or that was started since. The activity is the number of
/// requests, and one for each 64 KiB that moved.
std::vector<TopRow> rates_of(const TopSamples& now, const TopSamples& before);
/// The same with totals.
std::vector<TopRow> totals_of(const TopSamples& now);

/// The form of a table.
struct TopForm {
  std::size_t width = 80;  // columns; 0: all figures and whole names, however wide
  std::size_t height = 0;  // lines; 0: all
  bool rates = true;
  bool colour = false;  // with escape sequences
};

/// Returns the table with its heading and a note. No line exceeds the width. A narrow table leaves
/// out the less important columns and cuts names; a wide one shows all.
std::string table_of(const std::vector<TopRow>& rows, const TopForm& form);

/// "999", "1.2K", "34M": binary units, at most four characters.
std::string short_bytes(double bytes);
/// "0.5", "999", "1.2k", "34M": decimal units, at most four characters.
std::string short_count(double count);
/// Returns the first `width` characters of a line of UTF-8.
std::string cut_to(const std::string& line, std::size_t width);

}  // namespace efs::cli
