// SPDX-License-Identifier: BSD-3-Clause
#include "cli/top_table.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <exception>
#include <functional>
#include <string_view>

#include "base/text.hpp"
#include "cli/colour.hpp"
#include "control/status_reply.hpp"

namespace efs::cli {

using Json = nlohmann::json;
namespace replies = control::replies;

namespace {

bool begins_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
}

std::size_t characters_of(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, begins_character));
}

// Writes the number with at most three digits, and the unit for the power of `step`.
std::string short_number(double value, double step, std::string_view units) {
  constexpr double longest = 999.5, with_fraction = 9.95;
  std::size_t power = 0;
  while (value >= longest && power + 1 < units.size()) {
    value /= step;
    ++power;
  }
  const bool is_small = value < with_fraction && (power > 0 || value != std::floor(value));
  std::array<char, 32> text{};
  (void)std::snprintf(text.data(), text.size(), "%.*f", is_small ? 1 : 0, std::min(value, 999.0));
  return power == 0 ? text.data() : std::string(text.data()) + units[power];
}

// "12s", "3m20s", "1h05m", ">99h"
std::string short_seconds(double seconds) {
  constexpr double most = 359999;  // less than 100 hours
  if (!(seconds <= most)) {
    return ">99h";
  }
  const int all = static_cast<int>(std::max(0.0, seconds));
  const int hours = all / 3600, minutes = all / 60 % 60;
  std::array<char, 32> text{};
  if (hours > 0) {
    (void)std::snprintf(text.data(), text.size(), "%dh%02dm", hours, minutes);
  } else if (minutes > 0) {
    (void)std::snprintf(text.data(), text.size(), "%dm%02ds", minutes, all % 60);
  } else {
    (void)std::snprintf(text.data(), text.size(), "%ds", all);
  }
  return text.data();
}

// The place of a transfer that waits for its turn; nullopt: it does not wait.
std::optional<unsigned> ahead_in(const std::optional<replies::Turn>& turn) {
  return turn && turn->standing == "waiting" ? std::optional(static_cast<unsigned>(turn->ahead))
                                             : std::nullopt;
}

Transfer transfer_of(const replies::Progress& progress) {
  return {.what = progress.state.substr(sizeof "staging-" - 1),
          .done = progress.bytes_done,
          .total = progress.bytes_total,
          .started = progress.started,
          .left = progress.eta_seconds,
          .ahead = ahead_in(progress.turn)};
}

Transfer transfer_of(const replies::Task& task) {
  return {.what = printable(task.kind),
          .task = task.task,
          .done = task.bytes_done,
          .total = task.bytes_total,
          .started = task.started,
          .ahead = ahead_in(task.turn)};
}

void add_transfers(const replies::Status& status, TopSample& sample) {
  if (sample.state == "staging-in" || sample.state == "staging-out") {
    sample.transfers.push_back(transfer_of(status.progress));
  }
  for (const auto& task : status.tasks) {
    if (task.task_state == "running") {
      sample.transfers.push_back(transfer_of(task));
    }
  }
}

void read_status(const Json& answer, TopSample& sample) {
  const auto status = replies::from_json<replies::Status>(answer);
  sample.name = status.job.name.empty() ? "?" : escaped(status.job.name);
  sample.state = status.progress.state.empty() ? "?" : printable(status.progress.state);
  sample.since = status.job.since;
  if (status.store) {
    sample.capacity = status.store->capacity;
    sample.used = status.store->used;
  }
  sample.io = status.mount ? printable(status.mount->io) : "-";
  const Json counters = status.mount ? status.mount->counters : Json();
  if (counters.is_object()) {
    sample.requests = counters.value("requests", std::uint64_t{0});
    sample.opens = counters.value("opens", std::uint64_t{0});
    sample.read = counters.value("read_bytes", std::uint64_t{0});
    sample.written = counters.value("written_bytes", std::uint64_t{0});
    sample.errors = counters.value("errors", std::uint64_t{0});
  }
  add_transfers(status, sample);
}

const Transfer* same_transfer(const Transfer& transfer, const TopSample* before) {
  if (before == nullptr) {
    return nullptr;
  }
  const auto found = std::ranges::find_if(before->transfers, [&](const Transfer& other) {
    return other.what == transfer.what && other.task == transfer.task &&
           other.started == transfer.started && other.done <= transfer.done;
  });
  return found == before->transfers.end() ? nullptr : &*found;
}

// Returns bytes per second since `before`; since the start of the transfer if there is no earlier
// sample of it.
double rate_of(const Transfer& transfer, const TopSample& now, const TopSample* before) {
  const Transfer* const last = same_transfer(transfer, before);
  const double bytes = static_cast<double>(transfer.done - (last == nullptr ? 0 : last->done));
  const double seconds = last != nullptr        ? now.at - before->at
                         : transfer.started > 0 ? now.now - transfer.started
                                                : 0;
  return seconds > 0 ? bytes / seconds : 0;
}

std::string text_of(const Transfer& transfer, double rate) {
  if (transfer.ahead) {
    return transfer.what + " waits, " + std::to_string(*transfer.ahead) + " ahead";
  }
  const auto done = static_cast<double>(transfer.done), total = static_cast<double>(transfer.total);
  const int percent = total > 0 ? static_cast<int>(100 * std::min(1.0, done / total)) : 0;
  std::string text =
      transfer.what + " " + std::to_string(percent) + "% " + short_bytes(rate) + "/s";
  if (transfer.left) {
    return text + " " + short_seconds(*transfer.left);
  }
  return rate > 0 && total >= done ? text + " " + short_seconds((total - done) / rate) : text;
}

// Describes the first transfer and counts the others.
void add_transfer(TopRow& row, const TopSample* before) {
  constexpr double bytes_of_request = 65536;
  const auto& all = row.sample.transfers;
  for (const auto& transfer : all) {
    const double rate = rate_of(transfer, row.sample, before);
    row.activity += rate / bytes_of_request;
    if (&transfer == &all.front()) {
      row.transfer = text_of(transfer, rate);
    }
  }
  if (all.size() > 1) {
    row.transfer += " +" + std::to_string(all.size() - 1);
  }
}

void add_activity(TopRow& row) {
  constexpr double bytes_of_request = 65536;
  row.activity +=
      row.requests + (row.read + row.written + std::abs(row.growth.value_or(0))) / bytes_of_request;
}

double increase(std::uint64_t now, std::uint64_t before, double seconds) {
  return now > before ? static_cast<double>(now - before) / seconds : 0;
}

TopRow rate_row(const TopSample& now, const TopSample* before) {
  TopRow row{.sample = now};
  const double seconds = before == nullptr ? 0 : now.at - before->at;
  if (seconds > 0) {
    row.requests = increase(now.requests, before->requests, seconds);
    row.opens = increase(now.opens, before->opens, seconds);
    row.read = increase(now.read, before->read, seconds);
    row.written = increase(now.written, before->written, seconds);
  }
  if (seconds > 0 && now.used && before->used) {
    row.growth = (static_cast<double>(*now.used) - static_cast<double>(*before->used)) / seconds;
  }
  add_transfer(row, before);
  add_activity(row);
  return row;
}

void sort_rows(std::vector<TopRow>& rows) {
  std::ranges::sort(rows, [](const TopRow& a, const TopRow& b) {
    return a.activity != b.activity ? a.activity > b.activity : a.sample.name < b.sample.name;
  });
}

// A column, how to fill it, and its place: a narrow table has the columns of the lowest rank.
struct Column {
  const char* rate_heading;   // "": not in a table of rates
  const char* total_heading;  // "": not in a table of totals
  std::size_t width;          // at least
  unsigned rank;
  bool is_left;  // aligned
  std::function<std::string(const TopRow&)> text;
};

std::string bytes_or_dash(const std::optional<std::uint64_t>& bytes) {
  return bytes ? short_bytes(static_cast<double>(*bytes)) : "-";
}

std::string growth_text(const TopRow& row) {
  if (!row.growth) {
    return "-";
  }
  const std::string sign = *row.growth > 0 ? "+" : *row.growth < 0 ? "-" : "";
  return sign + short_bytes(std::abs(*row.growth));
}

std::string share_text(const TopRow& row) {
  const auto& s = row.sample;
  if (!s.used || s.capacity.value_or(0) == 0) {
    return "-";
  }
  const double share = static_cast<double>(*s.used) / static_cast<double>(*s.capacity);
  return std::to_string(static_cast<int>(100 * std::min(share, 9.99))) + "%";
}

std::string io_text(const TopRow& row) {
  return row.sample.io == "passthrough" ? "pass" : row.sample.io == "daemon" ? "efsd" : "-";
}

// In the order of the table.
std::vector<Column> all_columns() {
  return {{"NAME", "NAME", 10, 0, true,
           [](const TopRow& row) {
             return row.sample.name;
           }},
          {"STATE", "STATE", 11, 1, true,
           [](const TopRow& row) {
             return row.sample.state;
           }},
          {"I/O", "I/O", 4, 8, true, io_text},
          {"USED", "USED", 4, 4, false,
           [](const TopRow& row) {
             return bytes_or_dash(row.sample.used);
           }},
          {"OF", "OF", 4, 12, false,
           [](const TopRow& row) {
             return bytes_or_dash(row.sample.capacity);
           }},
          {"USE%", "USE%", 4, 5, false, share_text},
          {"GROW/s", "", 6, 2, false, growth_text},
          {"REQ/s", "REQ", 5, 3, false,
           [](const TopRow& row) {
             return short_count(row.requests);
           }},
          {"OPEN/s", "OPEN", 6, 6, false,
           [](const TopRow& row) {
             return short_count(row.opens);
           }},
          {"READ/s", "READ", 6, 9, false,
           [](const TopRow& row) {
             return short_bytes(row.read);
           }},
          {"WRIT/s", "WRITTEN", 7, 10, false,
           [](const TopRow& row) {
             return short_bytes(row.written);
           }},
          {"ERRORS", "ERRORS", 6, 11, false,
           [](const TopRow& row) {
             return short_count(static_cast<double>(row.sample.errors));
           }},
          {"TRANSFER", "TRANSFER", 18, 7, true, [](const TopRow& row) {
             return row.transfer.empty() ? "-" : row.transfer;
           }}};
}

const char* heading_of(const Column& column, bool rates) {
  return rates ? column.rate_heading : column.total_heading;
}

std::size_t width_of(const std::vector<Column>& columns) {
  std::size_t width = columns.empty() ? 0 : columns.size() - 1;
  for (const auto& column : columns) {
    width += column.width;
  }
  return width;
}

// Returns the columns that fit, without those of a higher rank than the first that does not fit.
std::vector<Column> columns_for(const TopForm& form) {
  constexpr unsigned always = 1;  // NAME and STATE
  std::vector<Column> columns = all_columns();
  std::erase_if(columns, [&](const Column& c) { return *heading_of(c, form.rates) == '\0'; });
  while (form.width != 0 && width_of(columns) > form.width) {
    const auto last = std::ranges::max_element(columns, {}, &Column::rank);
    if (last->rank <= always) {
      break;
    }
    columns.erase(last);
  }
  return columns;
}

// Gives the width that is left to the last column, then to the first, as far as their texts need
// it.
void widen(std::vector<Column>& columns, const std::vector<TopRow>& rows, const TopForm& form) {
  for (Column* const column : {&columns.back(), &columns.front()}) {
    std::size_t longest = column->width;
    for (const auto& row : rows) {
      longest = std::max(longest, characters_of(column->text(row)));
    }
    const std::size_t taken = width_of(columns);
    const std::size_t spare = form.width == 0      ? longest
                              : form.width > taken ? form.width - taken
                                                   : 0;
    column->width = std::min(longest, column->width + spare);
  }
}

std::string padded(const std::string& text, const Column& column) {
  const std::string cut = cut_to(text, column.width);
  const std::string blanks(column.width - characters_of(cut), ' ');
  return column.is_left ? cut + blanks : blanks + cut;
}

// Without blanks at its end.
std::string joined(const std::vector<std::string>& cells, std::size_t width) {
  std::string line;
  for (const auto& cell : cells) {
    line += (line.empty() ? "" : " ") + cell;
  }
  line = width == 0 ? line : cut_to(line, width);
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string heading_line(const std::vector<Column>& columns, const TopForm& form) {
  std::vector<std::string> cells;
  cells.reserve(columns.size());
  for (const auto& column : columns) {
    cells.push_back(padded(heading_of(column, form.rates), column));
  }
  const std::string line = joined(cells, form.width);
  return painted(line, Tone::heading, form.colour);
}

std::string row_line(const std::vector<Column>& columns, const TopRow& row, const TopForm& form) {
  std::vector<std::string> cells;
  cells.reserve(columns.size());
  for (const auto& column : columns) {
    cells.push_back(padded(column.text(row), column));
  }
  const std::string line = joined(cells, form.width);
  const Tone tone = tone_of(row.sample.state);
  return painted(line, tone == Tone::good ? Tone::plain : tone, form.colour);
}

std::string note_line(bool is_empty, const TopForm& form) {
  const std::string note =
      is_empty     ? "no instance is running"
      : form.rates ? "GROW/s: change of USED, also by passthrough. READ, WRIT: by efsd alone."
                   : "READ and WRITTEN are of the daemon's path: passthrough is not counted.";
  return form.width == 0 ? note : cut_to(note, form.width);
}

}  // namespace

std::string short_bytes(double bytes) {
  return short_number(std::floor(bytes), 1024, " KMGTPE");
}

std::string short_count(double count) {
  return short_number(count, 1000, " kMGTPE");
}

std::string cut_to(const std::string& line, std::size_t width) {
  std::size_t characters = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (begins_character(line[i]) && ++characters > width) {
      return line.substr(0, i);
    }
  }
  return line;
}

TopSample sample_of(const Json& status, double at, double now) {
  TopSample sample;
  sample.at = at;
  sample.now = now;
  try {
    read_status(status, sample);
  } catch (const std::exception&) {
    sample.state = "?";
  }
  return sample;
}

std::vector<TopRow> rates_of(const TopSamples& now, const TopSamples& before) {
  std::vector<TopRow> rows;
  for (const auto& [directory, sample] : now) {
    const auto last = before.find(directory);
    const bool is_same = last != before.end() && last->second.since == sample.since;
    rows.push_back(rate_row(sample, is_same ? &last->second : nullptr));
  }
  sort_rows(rows);
  return rows;
}

std::vector<TopRow> totals_of(const TopSamples& now) {
  std::vector<TopRow> rows;
  for (const auto& [directory, sample] : now) {
    TopRow row{.sample = sample,
               .requests = static_cast<double>(sample.requests),
               .opens = static_cast<double>(sample.opens),
               .read = static_cast<double>(sample.read),
               .written = static_cast<double>(sample.written)};
    add_transfer(row, nullptr);
    add_activity(row);
    rows.push_back(std::move(row));
  }
  sort_rows(rows);
  return rows;
}

std::string table_of(const std::vector<TopRow>& rows, const TopForm& form) {
  constexpr std::size_t other_lines = 2;  // the heading and the note
  std::vector<Column> columns = columns_for(form);
  widen(columns, rows, form);
  const std::size_t room = form.height == 0            ? rows.size()
                           : form.height > other_lines ? form.height - other_lines
                                                       : 0;
  std::string text = heading_line(columns, form) + "\n";
  for (std::size_t i = 0; i < std::min(room, rows.size()); ++i) {
    text += row_line(columns, rows[i], form) + "\n";
  }
  return text + note_line(rows.empty(), form) + "\n";
}

}  // namespace efs::cli
