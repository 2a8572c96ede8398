// SPDX-License-Identifier: BSD-3-Clause
#include "cli/colour.hpp"

#include <catch2/catch_test_macros.hpp>

#include "cli/screen.hpp"

using namespace efs::cli;

TEST_CASE("colour: words have their tones", "[colour]") {
  CHECK(painted("complete", true) == "\033[32mcomplete\033[m");
  CHECK(painted("warning", true) == "\033[33mwarning\033[m");
  CHECK(painted("dead", true) == "\033[31mdead\033[m");
  CHECK(painted("another", true) == "another");
  CHECK(painted("dead", false) == "dead");
  CHECK(wants_colour("always"));
  CHECK_FALSE(wants_colour("never"));
}

TEST_CASE("colour: lines of a verdict", "[colour]") {
  const std::string text = "job: partial\n  failed: a: why\n  x\n\nHeading\n";
  CHECK(painted_lines(text, "partial", false) == text);
  CHECK(
      painted_lines(text, "partial", true) ==
      "\033[33mjob: partial\033[m\n  \033[31mfailed\033[m: a: why\n  x\n\n\033[1mHeading\033[m\n");
  CHECK(painted_lines("", "partial", true).empty());
}

TEST_CASE("colour: a cut line ends its colour, and escape sequences take no place", "[colour]") {
  const std::string line = "a: \033[32mrunning\033[m!";
  CHECK(cut_painted(line, 11) == line);
  CHECK(cut_painted(line, 10) == "a: \033[32mrunning\033[m");
  CHECK(cut_painted(line, 5) == "a: \033[32mru\033[m");
  CHECK(cut_painted("a: \033[32", 5) == "a: \033[32");
  CHECK(cut_to_screen(line + "\n", {.columns = 5}) == "a: \033[32mru\033[m\n");
}
