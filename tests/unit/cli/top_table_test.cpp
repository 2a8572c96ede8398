// SPDX-License-Identifier: BSD-3-Clause
// The table of efs top: samples, rates, order, and text of a given width.
#include "cli/top_table.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <sstream>

namespace {

using namespace efs::cli;
using Json = nlohmann::json;

Json figures(const std::string& name, std::uint64_t used, std::uint64_t requests) {
  return {{"name", name},
          {"state", "running"},
          {"io", "passthrough"},
          {"since", 7},
          {"capacity", 1U << 30U},
          {"used", used},
          {"counters",
           {{"requests", requests},
            {"opens", requests / 2},
            {"read_bytes", 0},
            {"written_bytes", 0},
            {"errors", 3}}}};
}

TopSample sample_at(double seconds, const Json& status) {
  return sample_of(status, seconds, 1000 + seconds);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
  }
  return lines;
}

TEST_CASE("short numbers have at most four characters", "[top]") {
  CHECK(short_bytes(0) == "0");
  CHECK(short_bytes(999) == "999");
  CHECK(short_bytes(1000) == "1.0K");
  CHECK(short_bytes(1024 * 1.5) == "1.5K");
  CHECK(short_bytes(1024 * 1023) == "1.0M");
  CHECK(short_bytes(1024.0 * 1024 * 34) == "34M");
  CHECK(short_bytes(18446744073709551615.0) == "16E");
  CHECK(short_bytes(0.4) == "0");
  CHECK(short_count(0.5) == "0.5");
  CHECK(short_count(3) == "3");
  CHECK(short_count(999.7) == "1.0k");
  CHECK(short_count(1e30) == "999E");
  for (double value = 0.1; value < 1e21; value *= 1.7) {
    CHECK(short_bytes(value).size() <= 4);
    CHECK(short_count(value).size() <= 4);
  }
}

TEST_CASE("rates are changes per second", "[top]") {
  const TopSamples before{{"a", sample_at(10, figures("a", 1000, 100))}},
      now{{"a", sample_at(12, figures("a", 9000, 160))}};
  const auto rows = rates_of(now, before);
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].requests == 30);
  CHECK(rows[0].opens == 15);
  CHECK(rows[0].growth == 4000);
  CHECK(rates_of(before, now)[0].requests == 0);
  CHECK(rates_of({{"a", sample_at(14, figures("a", 1000, 160))}}, now)[0].growth == -4000);
}

TEST_CASE("there is no rate without an earlier sample of the same life", "[top]") {
  Json later = figures("a", 9000, 160);
  later["since"] = 8;
  const TopSamples before{{"a", sample_at(10, figures("a", 1000, 100))}};
  CHECK_FALSE(rates_of({{"a", sample_at(12, later)}}, before)[0].growth);
  CHECK(rates_of({{"a", sample_at(12, later)}}, before)[0].requests == 0);
  CHECK_FALSE(rates_of(before, {})[0].growth);
  CHECK_FALSE(rates_of(before, before)[0].growth);
}

TEST_CASE("the most active instance is the first", "[top]") {
  const TopSamples before{{"a", sample_at(0, figures("a", 0, 0))},
                          {"b", sample_at(0, figures("b", 0, 0))},
                          {"c", sample_at(0, figures("c", 0, 0))},
                          {"d", sample_at(0, figures("d", 0, 0))}},
      now{{"a", sample_at(1, figures("a", 0, 0))},
          {"b", sample_at(1, figures("b", 0, 50))},
          {"c", sample_at(1, figures("c", 100 * 65536, 0))},
          {"d", sample_at(1, figures("d", 0, 0))}};
  std::string order;
  for (const auto& row : rates_of(now, before)) {
    order += row.sample.name;
  }
  CHECK(order == "cbad");
}

TEST_CASE("transfers have a share, a rate and a remaining time", "[top]") {
  Json status{{"name", "a"},        {"state", "staging-in"}, {"since", 7},
              {"bytes_done", 1000}, {"bytes_total", 10000},  {"started", 1000.0}};
  const TopSamples before{{"a", sample_at(10, status)}};
  CHECK(rates_of(before, {})[0].transfer == "in 10% 100/s 1m30s");
  status["bytes_done"] = 3000;
  const TopSamples now{{"a", sample_at(12, status)}};
  CHECK(rates_of(now, before)[0].transfer == "in 30% 1.0K/s 7s");
  status["eta_seconds"] = 4000.0;
  CHECK(rates_of({{"a", sample_at(12, status)}}, before)[0].transfer == "in 30% 1.0K/s 1h06m");
  status["turn"] = {{"standing", "waiting"}, {"ahead", 3}};
  CHECK(rates_of({{"a", sample_at(12, status)}}, before)[0].transfer == "in waits, 3 ahead");
}

TEST_CASE("of several tasks the first is shown and the others are counted", "[top]") {
  Json status = figures("a", 0, 0);
  const auto task = [](int number, const char* kind, const char* state) {
    return Json{{"task", number},         {"kind", kind},     {"task_state", state},
                {"bytes_done", 65536000}, {"bytes_total", 0}, {"started", 1001.0}};
  };
  status["tasks"] = {task(1, "load", "done"), task(2, "unload", "running"),
                     task(3, "load", "running")};
  const auto row = rates_of({{"a", sample_at(2, status)}}, {})[0];
  CHECK(row.transfer == "unload 0% 62M/s +1");
  CHECK(row.activity == 2000);
}

TEST_CASE("an answer without sense is a row all the same", "[top]") {
  for (const Json& answer : {Json{{"name", 7}}, Json{{"name", "a"}, {"counters", "none"}},
                             Json{{"name", "a"}, {"capacity", nullptr}}, Json::array(), Json()}) {
    CHECK(sample_at(1, answer).state == "?");
  }
  CHECK(sample_at(1, {{"name", "a\nb"}, {"state", "x\033[m"}}).name == "a\\012b");
  CHECK(sample_at(1, {{"name", "a"}, {"state", "x\033[m"}}).state == "x\\033[m");
}

TEST_CASE("no line exceeds the width", "[top]") {
  Json status = figures("ein-Name-mit-Umlauten-\u00e4\u00f6\u00fc-und-vielen-Zeichen", 5000, 7);
  status["tasks"] = {{{"task", 2},
                      {"kind", "unload"},
                      {"task_state", "running"},
                      {"bytes_done", 1},
                      {"bytes_total", 100},
                      {"eta_seconds", 1e9}}};
  Json dead{{"name", "dead"}, {"state", "dead"}};
  const TopSamples now{{"a", sample_at(1, status)}, {"b", sample_at(1, dead)}};
  for (const bool rates : {true, false}) {
    const auto rows = rates ? rates_of(now, {}) : totals_of(now);
    for (std::size_t width = 1; width < 200; ++width) {
      const auto lines = lines_of(table_of(rows, {.width = width, .rates = rates}));
      REQUIRE(lines.size() == 4);
      for (const auto& line : lines) {
        CHECK(cut_to(line, width) == line);
      }
    }
  }
}

TEST_CASE("a table of 80 columns has the figures that move", "[top]") {
  const TopSamples before{{"a", sample_at(0, figures("a", 0, 0))}},
      now{{"a", sample_at(1, figures("a", 300U << 20U, 50))}};
  const auto lines = lines_of(table_of(rates_of(now, before), {.width = 80}));
  CHECK(lines[0] == "NAME       STATE       I/O  USED USE% GROW/s REQ/s OPEN/s TRANSFER");
  CHECK(lines[1] == "a          running     pass 300M  29%  +300M    50     25 -");
  const auto narrow = lines_of(table_of(rates_of(now, before), {.width = 40}));
  CHECK(narrow[0] == "NAME       STATE       USED GROW/s REQ/s");
  const auto whole = lines_of(table_of(rates_of(now, before), {.width = 0}));
  CHECK(whole[0] ==
        "NAME       STATE       I/O  USED   OF USE% GROW/s REQ/s OPEN/s READ/s  WRIT/s "
        "ERRORS TRANSFER");
  const auto totals = lines_of(table_of(totals_of(now), {.width = 0, .rates = false}));
  CHECK(totals[0] ==
        "NAME       STATE       I/O  USED   OF USE%   REQ   OPEN   READ WRITTEN ERRORS "
        "TRANSFER");
}

TEST_CASE("a low table leaves out the least active instances", "[top]") {
  TopSamples now;
  for (const char* name : {"a", "b", "c", "d"}) {
    now[name] = sample_at(1, figures(name, 0, 0));
  }
  CHECK(lines_of(table_of(rates_of(now, {}), {.height = 4})).size() == 4);
  CHECK(lines_of(table_of(rates_of(now, {}), {.height = 1})).size() == 2);
  CHECK(lines_of(table_of(rates_of(now, {}), {})).size() == 6);
  CHECK(lines_of(table_of({}, {})).at(1) == "no instance is running");
}

TEST_CASE("colour only on request, and never in the count of columns", "[top]") {
  const TopSamples now{{"a", sample_at(1, {{"name", "a"}, {"state", "dead"}})}};
  const auto rows = rates_of(now, {});
  CHECK_FALSE(table_of(rows, {.width = 80}).contains('\033'));
  const auto lines = lines_of(table_of(rows, {.width = 80, .colour = true}));
  CHECK(lines[0].starts_with("\033[1mNAME"));
  CHECK(lines[1].starts_with("\033[31ma "));
  CHECK(lines[1].ends_with("\033[m"));
}

}  // namespace
